package machine

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// auditState is Audit of a partition's state, whose report must agree with the census.
func (w *world) auditState(p *part, c *census) {
	w.t.Helper()
	report, err := audit.Run(p.state, w.now, p.cfg.part())
	if err != nil {
		c.problem("audit: %v", err)
		return
	}
	for _, v := range report.Violations {
		c.problem("audit: %v", v)
	}
	events := c.formerEvents
	for _, entries := range c.journals {
		events += uint64(len(entries))
	}
	if report.Executions != uint64(len(c.headers)) || report.Promises != uint64(len(c.promises)) || report.Tasks != uint64(len(c.tasks)) ||
		report.Events != events || report.Callbacks != c.rows {
		c.problem("the audit counts %+v", report)
	}
}

// audited is what Audit finds in a state.
func audited(t *testing.T, st state.Reader, cfg Config) []audit.Violation {
	t.Helper()
	report, err := audit.Run(st, 0, cfg.part())
	if err != nil {
		t.Fatalf("audit: %v", err)
	}
	return report.Violations
}

// breaks reports whether a violation of a rule is found by an object; "" is any object.
func breaks(found []audit.Violation, rule, objectID string) bool {
	return slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == rule && (objectID == "" || v.ID == objectID) })
}

func lines(found []audit.Violation) string {
	var out []string
	for _, v := range found {
		out = append(out, v.String())
	}
	return strings.Join(out, "\n")
}

// An audit in pieces, each on a state of its own, finds what one of the whole state finds.
func TestAuditInPieces(t *testing.T) {
	w, _, _ := fullState(t)
	_, graphs := graphState(t)
	for _, p := range append(slices.Clone(w.parts), graphs) {
		broken := p.state.Clone()
		_ = p.state.Scan(nil, nil, func(key, value []byte) bool {
			if n := len(value); n > 0 && key[len(key)-1]%3 == 0 && keys.Family(key[0]) != keys.Meta {
				broken.Apply([]state.Write{{Key: bytes.Clone(key), Value: append(bytes.Clone(value[:n-1]), value[n-1]^1)}})
			}
			return true
		})
		for what, st := range map[string]*state.MemReader{"sound": p.state, "broken": broken} {
			whole, err := audit.Run(st, w.now, p.cfg.part())
			if err != nil {
				t.Fatal(err)
			}
			a, err := audit.New(p.cfg.part(), 0)
			pieces := 0
			for done := false; !done && err == nil; pieces++ {
				done, err = a.Continue(st.Clone(), w.now, func() bool { return true })
			}
			if err != nil {
				t.Fatal(err)
			}
			got := a.Report()
			if !reflect.DeepEqual(got, whole) || pieces < int(whole.Executions) {
				t.Errorf("%s, partition %d: in %d pieces\n%+v\nin one\n%+v", what, p.cfg.Partition, pieces, got, whole)
			}
			if (len(whole.Violations) > 0) != (what == "broken") || whole.Found != uint64(len(whole.Violations)) {
				t.Errorf("%s, partition %d: %d found, %d kept", what, p.cfg.Partition, whole.Found, len(whole.Violations))
			}
			few, err := audit.New(p.cfg.part(), 3)
			if err == nil {
				_, err = few.Continue(st, w.now, nil)
			}
			if short := few.Report(); err != nil || short.Found != whole.Found || len(short.Violations) != min(3, len(whole.Violations)) {
				t.Errorf("%s, partition %d: with room for 3: %d found, %d kept, %v", what, p.cfg.Partition, short.Found, len(short.Violations), err)
			}
		}
	}
}

// No key of a state can be lost, and none be doubled under another name, without being noticed.
func TestAuditMissesNoKey(t *testing.T) {
	w, _, _ := fullState(t)
	for _, p := range w.parts {
		if found := audited(t, p.state, p.cfg); len(found) > 0 {
			t.Fatalf("before anything was lost:\n%s", lines(found))
		}
		lost := 0
		_ = p.state.Scan(nil, nil, func(key, value []byte) bool {
			key, value = bytes.Clone(key), bytes.Clone(value)
			without := p.state.Clone()
			without.Apply([]state.Write{{Key: key}})
			if found := audited(t, without, p.cfg); len(found) == 0 && !dispensable(p.state, key, value) {
				t.Errorf("%s key %q is gone, and nothing is found", keys.NameOf(key), key)
			}
			longer := p.state.Clone()
			longer.Apply([]state.Write{{Key: append(bytes.Clone(key), 'x'), Value: value}})
			if found := audited(t, longer, p.cfg); len(found) == 0 && keys.Family(key[0]) != keys.Meta {
				t.Errorf("%s key %q is there twice, and nothing is found", keys.NameOf(key), key)
			}
			lost++
			return true
		})
		t.Logf("%d keys of partition %d", lost, p.cfg.Partition)
	}
}

// dispensable are keys whose loss leaves a state that could be.
func dispensable(st state.Reader, key, value []byte) bool {
	switch keys.Family(key[0]) {
	case keys.Function, keys.Inbox, keys.Channel:
		return true // never registered; nothing received; nothing sent yet
	case keys.Outbox:
		// The oldest may be acknowledged.
		oldest := true
		_ = st.Scan(key[:1+4], key, func(_, _ []byte) bool {
			oldest = false
			return false
		})
		return oldest
	case keys.Promise:
		// One of a send that has its result: a send within the partition has none.
		p, err := recovery.DecodePromise(value)
		return err == nil && state.OfSend(p) && p.State.Settled()
	case keys.Meta:
		return !slices.Contains([]string{state.MetaApplied, state.MetaReplies}, string(key[1:]))
	}
	return false
}

// A state that cannot be read, or that a newer program wrote, is an error and not a finding.
func TestAuditRefuses(t *testing.T) {
	w, _, _ := fullState(t)
	p := w.parts[0]
	gone := errors.New("the disk is gone")
	if _, err := audit.Run(brokenReader{p.state, gone}, 0, p.cfg.part()); !errors.Is(err, gone) {
		t.Errorf("a storage error came back as %v", err)
	}
	newer := p.state.Clone()
	newer.Apply([]state.Write{{Key: keys.MetaKey(state.MetaFeature), Value: []byte{0, 0, 0, 0, 0, 0, 0, state.FeatureLevel + 1}}})
	if _, err := audit.Run(newer, 0, p.cfg.part()); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("a newer state: %v", err)
	}
	if _, err := audit.Run(p.state, 0, state.Partition{Number: 2, Count: 2}); err == nil {
		t.Errorf("partition 2 of 2 was accepted")
	}
}

// brokenReader fails at the first journal entry.
type brokenReader struct {
	state.Reader
	err error
}

func (b brokenReader) Get(key []byte) ([]byte, bool, error) {
	if keys.Family(key[0]) == keys.Journal {
		return nil, false, b.err
	}
	return b.Reader.Get(key)
}
