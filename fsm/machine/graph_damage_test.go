package machine

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/internal/testkit"
	"perdure/journal"
)

// touchGraphs are commands and queries that read every graph run of graphState.
func touchGraphs(w *world) ([]*commandv1.Command, []*commandv1.Query) {
	cmds := []*commandv1.Command{
		signalCmd(nil, "run", "s", "1"), signalCmd(nil, "wave", "s", "1"), signalCmd(nil, "many", "s", "1"),
		w.commitCmd(w.views[viewKey{"w1", "wave:1.0"}], "return 1"), cancelCmd("run", "why", 50), terminateCmd("wave", ""),
		retryCmd([]byte("retry 1"), "failed"), retryCmd([]byte("retry 2"), "stopped"), terminateCmd("many", ""),
		submitCmd(nil, "done", graphOf("a"), ""), settlePromiseCmd("run:1", resolve, ""),
	}
	var queries []*commandv1.Query
	for _, run := range []string{"run", "wave", "many", "failed", "done", "stopped"} {
		queries = append(queries,
			&commandv1.Query{Namespace: ns, Id: run, Kind: &commandv1.Query_GraphStatus{GraphStatus: &perdurev1.GraphStatusRequest{}}},
			&commandv1.Query{Namespace: ns, Id: run, Kind: &commandv1.Query_Graph{Graph: &perdurev1.GetGraphRequest{}}},
			&commandv1.Query{Namespace: ns, Id: run, Kind: &commandv1.Query_NodeOutcome{NodeOutcome: &perdurev1.NodeOutcomeRequest{Node: "a"}}},
			&commandv1.Query{Namespace: ns, Id: run, Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}})
	}
	return cmds, queries
}

// Damage in a graph run stops the machine with an error that says so. It never panics.
func TestGraphDamage(t *testing.T) {
	w, p := graphState(t)
	cmds, queries := touchGraphs(w)
	probeGraphs := func(below *state.MemReader) error {
		cfg := p.cfg
		cfg.CheckInvariants = false
		for _, q := range queries {
			if _, err := query.Answer(below, 0, q); err != nil {
				return err
			}
		}
		m, err := New(cfg, below)
		if err != nil {
			return err
		}
		return probeCommands(m, p.index, w.now, cmds)
	}
	if err := probeGraphs(p.state.Clone()); err != nil {
		t.Fatalf("undamaged: %v", err)
	}
	values, flips, noticed := 0, 0, 0
	_ = p.state.Scan(nil, nil, func(key, value []byte) bool {
		key, value = bytes.Clone(key), bytes.Clone(value)
		family := keys.Family(key[0])
		if family != keys.Graph && family != keys.Node && family != keys.Header && family != keys.Promise ||
			bytes.Contains(key, []byte("many")) && values%16 != 0 {
			values++
			return true
		}
		values++
		try := func(what string, changed []byte) error {
			below := p.state.Clone()
			below.Apply([]state.Write{{Key: key, Value: changed}})
			defer func() {
				if r := recover(); r != nil {
					t.Fatalf("%s of %q: %x became %x: panic: %v", what, key, value, changed, r)
				}
			}()
			err := probeGraphs(below)
			var damage *state.CorruptError
			var broken *audit.InvariantError
			var rule *journal.Violation
			if err != nil && !errors.As(err, &damage) && !errors.As(err, &broken) && !errors.As(err, &rule) {
				t.Errorf("%s of %q: stopped with %v (%T)", what, key, err, err)
			}
			return err
		}
		if family == keys.Graph || family == keys.Node {
			for what, changed := range map[string][]byte{"cutting": value[:len(value)-1], "growing": append(bytes.Clone(value), 0), "emptying": {}} {
				var damage *state.CorruptError
				if err := try(what, changed); !errors.As(err, &damage) && !ofFormerIncarnation(p, key) && !bytes.Contains(key, []byte("run:6.0\x00")) {
					// No reader uses the remains of an earlier incarnation and its subgraph.
					t.Errorf("%s of %q went unnoticed: %v", what, key, err)
				}
			}
		}
		for i := range value {
			if every := testkit.Choose(48, 48, 8); i%every != len(key)%every {
				continue
			}
			flipped := bytes.Clone(value)
			flipped[i] ^= []byte{0x01, 0x80, 0xff}[i%3]
			flips++
			if try("flipping", flipped) != nil {
				noticed++
			}
		}
		return true
	})
	t.Logf("%d values, %d flips, %d of them noticed", values, flips, noticed)
}

// A Reader that fails under a graph run stops the machine with its error.
func TestGraphStorageErrors(t *testing.T) {
	w, p := graphState(t)
	cmds, queries := touchGraphs(w)
	bad := errors.New("the disk is gone")
	stopped := 0
	for _, cmd := range append(cmds, tickCmd(0)) {
		for after := 0; after < 60; after++ {
			f := &failing{Reader: p.state, after: 1 << 30, err: bad}
			m, err := New(p.cfg, f)
			if err != nil {
				t.Fatal(err)
			}
			f.after = after
			if _, err = m.Apply(p.index+1, &commandv1.Entry{TimeMs: w.now + 70_000,
				Commands: []*commandv1.Command{proto.Clone(cmd).(*commandv1.Command)}}); err == nil {
				break
			}
			if !errors.Is(err, bad) || len(m.Writes()) != 0 {
				t.Fatalf("read %d of %v: %v, %d writes", after, cmd, err, len(m.Writes()))
			}
			stopped++
		}
	}
	for _, q := range queries {
		for after := range 10 {
			if _, err := query.Answer(&failing{Reader: p.state, after: after, err: bad}, 0, q); err != nil && !errors.Is(err, bad) {
				t.Errorf("%v: %v", q, err)
			}
		}
	}
	if stopped < 100 {
		t.Errorf("only %d reads failed", stopped)
	}
}
