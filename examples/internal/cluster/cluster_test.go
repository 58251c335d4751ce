package cluster

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"perdure/client"
)

func TestSplitAddrs(t *testing.T) {
	got, err := SplitAddrs("a:1, [::1]:2,unix:///run/p.sock")
	if err != nil || !slices.Equal(got, []string{"a:1", "[::1]:2", "unix:///run/p.sock"}) {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "a", "a:", "a:1,", "::1"} {
		if got, err := SplitAddrs(text); err == nil || !strings.Contains(err.Error(), "not host:port") {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
}

// TestNode: a node answers with its cluster's id, the same one after a restart; when it is gone, the error
// names its address.
func TestNode(t *testing.T) {
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	var opts client.Options
	first := ""
	for range 2 {
		node, err := Start(t.Context(), dir, log)
		if err != nil {
			t.Fatal(err)
		}
		opts = client.Options{Addrs: []string{node.GRPCAddr()}}
		id, namespace, err := Which(t.Context(), opts)
		if err != nil || id == "" || namespace != client.DefaultNamespace || first != "" && id != first {
			t.Errorf("cluster %q (%q before), namespace %q, %v", id, first, namespace, err)
		}
		first = id
		Stop(node, log)
	}
	AnswerTime = time.Second
	if _, _, err := Which(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "no node answers at "+opts.Addrs[0]) {
		t.Errorf("gone: %v", err)
	}
}
