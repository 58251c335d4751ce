package partition

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/partition/stable"
)

// A node that starts on many ids learns of all of them, in each partition, without requests: then it knows free ids without
// a read.
func TestNodeLearnsIDs(t *testing.T) {
	const held = 600 // in both partitions more than a piece
	terms := stable.NewMemory()
	cfg := memConfig(t, vfs.NewMem(), terms, 2)
	first, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ready(t, first)
	var ids []string
	for i := range held {
		ids = append(ids, idIn(first.Router(), uint32(i%2), fmt.Sprint("p", i)))
		must(t, first.Router(), promiseCmd(ids[i], 1<<40))
	}
	closeNode(t, first)

	cfg.Stable = terms.Clone() // a closed store is opened again
	n := startNode(t, cfg)
	replicas := n.Router().Replicas()
	waitFor(t, "the node to learn", func() bool {
		return replicas[0].Store().Free(ns, "free") && replicas[1].Store().Free(ns, "free")
	}, func() string { return "" })
	for i, name := range ids {
		if replicas[i%2].Store().Free(ns, name) {
			t.Errorf("%s counts as free", name)
		}
	}
}
