package transport

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

type book map[raft.ServerID]raft.ServerAddress

func (b book) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if a, ok := b[id]; ok {
		return a, nil
	}
	return "", errors.New("unknown")
}

// A successor at the address of a server that was replaced is not taken for it.
func TestAnotherServerAtTheAddress(t *testing.T) {
	a, b := listen(t, Options{ServerID: "a"}), listen(t, Options{ServerID: "b-2"})
	la, lb := a.Raft(1), b.Raft(1)
	defer func() { _ = lb.Close() }()
	accepted := make(chan struct{}, 10)
	go func() {
		for {
			if _, err := lb.Accept(); err != nil {
				return
			}
			accepted <- struct{}{}
		}
	}()
	addr := raft.ServerAddress(b.Addr().String())
	names := addressed{book{"b-1": addr, "b-2": addr}, "a", raft.ServerAddress(a.Addr().String())}
	old, err := names.ServerAddr("b-1")
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := la.Dial(old, testTimeout); !errors.As(err, &refused) || refused.Code != CodeAnotherServer {
		t.Errorf("the former server was reached: %v", err)
	}
	now, err := names.ServerAddr("b-2")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := la.Dial(now, testTimeout); err != nil {
		t.Errorf("the present server: %v", err)
	} else if p, _ := PeerOf(c); p.Addr != string(addr) {
		t.Errorf("its address is announced as %q", p.Addr)
	}
	for _, id := range []raft.ServerID{"", "a"} {
		if own, err := names.ServerAddr(id); err != nil || own != raft.ServerAddress(a.Addr().String()) {
			t.Errorf("its own address: %q, %v", own, err)
		}
	}
	if _, err := names.ServerAddr("c"); err == nil {
		t.Error("an unknown server has an address")
	}
	if err := la.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-accepted:
	case <-time.After(testTimeout):
		t.Error("no connection came")
	}
}
