package jepsen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"perdure/internal/testkit"
)

// wiresForTest is a network of so many nodes, each with an echo server at port 7000.
func wiresForTest(t *testing.T, nodes int) *wires {
	t.Helper()
	if err := CheckNetns(); err != nil {
		testkit.Lacks(t, "network namespaces", err)
	}
	w, err := newWires(t.Context(), nodes, rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano()))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		cmd := exec.Command("ip", "netns", "exec", w.namespace(i), self)
		cmd.Env = append(os.Environ(), echo+"="+w.addr(i)+":7000")
		ownGroup(cmd)
		if err := spawn(cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait() // killed
		})
	}
	return w
}

// A node that must answer has answerTime, which ends with the answer; a node counts as silent after
// silentTimeout.
const answerTime, silentTimeout = 30 * time.Second, 500 * time.Millisecond

// echoes checks that an open connection still carries data.
func echoes(conn net.Conn, within time.Duration) error {
	conn.SetDeadline(time.Now().Add(within))
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func dial(addr string, within time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr+":7000", within)
}

func TestCable(t *testing.T) {
	w := wiresForTest(t, 2)
	ctx := within(t, testTimeout)
	conns := make([]net.Conn, 2)
	for i := range conns {
		if err := waitFor(ctx, "an echo", func(context.Context) (err error) { conns[i], err = dial(w.addr(i), answerTime); return err }); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		if err := echoes(conns[i], answerTime); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.cut(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := echoes(conns[0], silentTimeout); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a cut cable answers %v, expected silence", err)
	}
	if conn, err := dial(w.addr(0), silentTimeout); err == nil {
		conn.Close()
		t.Error("a host without a cable takes connections")
	}
	if err := echoes(conns[1], answerTime); err != nil {
		t.Errorf("the other host: %v", err)
	}
	if err := w.join(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(ctx, "the host to be back", func(context.Context) error {
		conn, err := dial(w.addr(0), answerTime)
		if err != nil {
			return err
		}
		defer conn.Close()
		return echoes(conn, answerTime)
	}); err != nil {
		t.Error(err)
	}
}

// TestMute: only the muted pair loses its messages, and only while it is muted.
func TestMute(t *testing.T) {
	testkit.LacksTool(t, "bash", "timeout")
	w := wiresForTest(t, 3)
	ctx := within(t, testTimeout)
	// reach checks that the host i reaches the host j.
	reach := func(i, j int, within time.Duration) bool {
		err := exec.CommandContext(ctx, "ip", "netns", "exec", w.namespace(i), "timeout", fmt.Sprint(within.Seconds()),
			"bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/7000 && echo x >&3 && read <&3", w.addr(j))).Run()
		return err == nil
	}
	expect := func(when string, cut ...[2]int) {
		t.Helper()
		for i := range 3 {
			for j := range 3 {
				want := i != j
				for _, c := range cut {
					want = want && c != [2]int{i, j}
				}
				within := silentTimeout
				if want {
					within = answerTime
				}
				if i != j && reach(i, j, within) != want {
					t.Errorf("%s: that %d reaches %d is %v", when, i, j, !want)
				}
			}
		}
	}
	if err := waitFor(ctx, "everyone to reach everyone", func(context.Context) error {
		for i := range 3 {
			if !reach(i, (i+1)%3, answerTime) {
				return fmt.Errorf("%d does not reach its neighbour", i)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.mute(ctx, 0, 1); err != nil {
		t.Fatal(err)
	}
	// A conversation takes both directions.
	expect("muted", [2]int{0, 1}, [2]int{1, 0})
	if conn, err := dial(w.addr(0), answerTime); err != nil {
		t.Errorf("the harness does not reach the muted host: %v", err)
	} else {
		conn.Close()
	}
	if err := w.unmute(ctx, 0, 1); err != nil {
		t.Fatal(err)
	}
	expect("no longer muted")
}

// TestSweep: the next harness removes a network whose harness is gone, and leaves its own.
func TestSweep(t *testing.T) {
	w := wiresForTest(t, 1)
	ctx := within(t, testTimeout)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		testkit.Lacks(t, "a process that ends at once", err)
	}
	left := &wires{name: fmt.Sprintf("%s%s-xx", netPrefix, base36(gone.Process.Pid)), subnet: "10.78.0", nodes: 2, muted: map[[2]int]bool{}}
	if err := left.make(ctx); err != nil {
		t.Fatal(errors.Join(err, left.Close()))
	}
	if err := SweepNetns(ctx); err != nil {
		t.Error(errors.Join(err, left.Close()))
	}
	names, err := ip(ctx, "netns", "list")
	if err != nil {
		t.Fatal(err)
	}
	links, err := ip(ctx, "-o", "link", "show")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(names+links, left.name) {
		t.Errorf("left after the sweep: %s%s", names, links)
	}
	if !strings.Contains(names, w.namespace(0)) || !strings.Contains(links, w.cable(0)) {
		t.Errorf("the sweep removed a network that is in use: %s%s", names, links)
	}
}
