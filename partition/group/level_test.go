package group

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/partition/stable"
)

// No kind of command gets into a log before the cluster, or the state, has reached its level.
func TestGate(t *testing.T) {
	newest := newMemNode(t, 1).router.all[0]
	cfg := memConfig(vfs.NewMem(), stable.NewMemory(), 1)
	cfg.Level = state.BaseLevel
	base := startNode(t, cfg).router.all[0]
	fields := (&commandv1.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	gated := 0
	for i := range fields.Len() {
		cmd := &commandv1.Command{}
		cmd.ProtoReflect().Set(fields.Get(i), cmd.ProtoReflect().NewField(fields.Get(i)))
		level, known := machine.LevelOf(cmd)
		if !known {
			t.Errorf("%s is not known", fields.Get(i).Name())
		}
		entry := &commandv1.Entry{Commands: []*commandv1.Command{cmd}}
		if _, err := newest.encode(entry); err != nil {
			t.Errorf("%s at level %d: %v", fields.Get(i).Name(), state.FeatureLevel, err)
		}
		_, err := base.encode(entry)
		if level > state.BaseLevel {
			gated++
			if reasonOf(err) != perdurev1.Reason_REASON_FEATURE_LEVEL || !strings.Contains(err.Error(), string(fields.Get(i).Name())) {
				t.Errorf("%s at level %d: %v", fields.Get(i).Name(), state.BaseLevel, err)
			}
			if _, err := base.Propose(bg(t), cmd); reasonOf(err) != perdurev1.Reason_REASON_FEATURE_LEVEL {
				t.Errorf("%s proposed at level %d: %v", fields.Get(i).Name(), state.BaseLevel, err)
			}
		} else if err != nil {
			t.Errorf("%s at level %d: %v", fields.Get(i).Name(), state.BaseLevel, err)
		}
	}
	if gated == 0 {
		t.Error("no kind is above the base level")
	}
	if _, err := newest.Propose(bg(t), raiseTo(state.FeatureLevel+1)); reasonOf(err) != perdurev1.Reason_REASON_FEATURE_LEVEL {
		t.Errorf("a raise beyond the cluster's level: %v", err)
	}
	// A command that a newer member forwards arrives without a kind.
	if _, err := newest.Propose(bg(t), &commandv1.Command{}); reasonOf(err) != perdurev1.Reason_REASON_FEATURE_LEVEL {
		t.Errorf("a command of an unknown kind: %v", err)
	}
	// encode is the only way of an entry into a log.
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		calls += strings.Count(string(b), "fsm.EncodeEntry(")
	}
	if calls != 1 {
		t.Errorf("fsm.EncodeEntry is called %d times, must be once: in encode", calls)
	}
}

func raiseTo(level uint64) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: level}}}
}
