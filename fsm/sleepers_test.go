package fsm

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// bed is a store in which executions sleep.
type bed struct {
	b     testing.TB
	fs    vfs.FS
	s     *Store
	cache *pebble.Cache
	index uint64
	now   int64
}

func newBed(b testing.TB) *bed {
	d := &bed{b: b, fs: vfs.NewMem(), now: 1_000_000, cache: pebble.NewCache(64 << 20)}
	b.Cleanup(d.cache.Unref)
	d.open(true)
	d.apply(&commandv1.Entry{Commands: []*commandv1.Command{{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: state.FeatureLevel}}}}})
	return d
}

func (d *bed) open(create bool) {
	var err error
	d.s, err = Open("state", Options{FS: d.fs, Create: create, Stamp: stampOfTests, Logger: quiet{}, Cache: d.cache, Machine: machine.Config{Partitions: 1}, OnFatal: func(err error) { d.b.Error(err) }})
	if err != nil {
		d.b.Fatal(err)
	}
}

// reopen drops what is in memory.
func (d *bed) reopen() {
	if err := d.s.Close(); err != nil {
		d.b.Fatal(err)
	}
	d.open(false)
}

func (d *bed) apply(e *commandv1.Entry) *machine.Result {
	d.index++
	d.now++
	e.TimeMs = d.now
	data, err := EncodeEntry(e)
	if err != nil {
		d.b.Fatal(err)
	}
	res, applied := d.s.Apply(&raft.Log{Index: d.index, Term: 1, Type: raft.LogCommand, Data: data}).(*machine.Result)
	if !applied {
		d.b.Fatalf("entry %d is not applied", d.index)
	}
	for _, r := range res.Replies {
		if e := wire.ReplyError(r); e != nil {
			d.b.Fatal(e)
		}
	}
	return res
}

const sideBySide = 64

func sleeperID(n int) string { return fmt.Sprintf("sleeper-%08d", n) }

func sleeperGrants() []*commandv1.Grant {
	return []*commandv1.Grant{{Worker: "w", Namespace: ns, Functions: []string{"f"}, Credit: sideBySide, LeaseMs: 10_000}}
}

// sleep starts n executions that wake at a time.
func (d *bed) sleep(n int, at int64) {
	for first := 0; first < n; first += sideBySide {
		start, wait := &commandv1.Entry{Grants: sleeperGrants()}, &commandv1.Entry{}
		for i := first; i < min(first+sideBySide, n); i++ {
			id := sleeperID(i)
			start.Commands = append(start.Commands, &commandv1.Command{Namespace: ns, Id: id, Request: &perdurev1.RequestID{Id: fmt.Appendf(nil, "%016d", i)},
				Kind: &commandv1.Command_Start{Start: &perdurev1.StartRequest{Id: id, Function: "f", Input: []byte(`"2026-01-01T00:00:00.000000000Z"`), AllowUnknownFunction: true}}})
		}
		for _, a := range d.apply(start).Effects.Assigned {
			timer := a.Token.Id + ":0"
			wait.Commands = append(wait.Commands, d.commit(a.Token, 0, 1,
				&perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: timer, DurationMs: at - d.now}}},
				&perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{WaitingOn: []string{timer}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE}}}))
		}
		d.apply(wait)
	}
}

func (d *bed) commit(task *perdurev1.TaskToken, child uint32, known uint64, events ...*perdurev1.Event) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: task.Id, Request: &perdurev1.RequestID{Id: fmt.Appendf(nil, "%012d%d", d.index, known)},
		Kind: &commandv1.Command_Commit{Commit: &perdurev1.Commit{Task: task, NextChild: child, KnownSeq: known, Events: events}}}
}

// wake runs all expirations, and ends the executions that wake.
func (d *bed) wake(n int) {
	due := 0
	for ended := 0; ended < n; {
		e := &commandv1.Entry{Grants: sleeperGrants()}
		if due < n {
			e.Commands = append(e.Commands, &commandv1.Command{Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{Limit: 256}}})
		} else {
			e.Commands = append(e.Commands, &commandv1.Command{Kind: &commandv1.Command_Assign{Assign: &commandv1.Assign{}}})
		}
		res := d.apply(e)
		due += int(res.Replies[0].GetTick().GetDone())
		end := &commandv1.Entry{}
		for _, a := range res.Effects.Assigned {
			end.Commands = append(end.Commands, d.commit(a.Token, 1, 5, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte("1")}}}))
		}
		ended += len(end.Commands)
		d.apply(end)
	}
}

// BenchmarkWake is what a replica does for one execution that has slept for long: its timer, its task, and its end.
func BenchmarkWake(b *testing.B) {
	d := newBed(b)
	const at = 100_000_000
	d.sleep(b.N, at)
	d.reopen()
	d.now = at
	b.ReportAllocs()
	b.ResetTimer()
	d.wake(b.N)
	b.StopTimer()
	_ = d.s.Close()
}

// maxSleeperBytes bounds what an execution that sleeps takes in the state: 12 rows of 690 bytes.
const maxSleeperBytes = 750

func TestSleeperSize(t *testing.T) {
	d := newBed(t)
	defer func() { _ = d.s.Close() }()
	const n = 1000
	d.sleep(n, 100_000_000)
	all, bytes := 0, map[string]int{}
	if err := d.s.View(func(r state.Reader) error {
		return r.Scan([]byte{0}, []byte{0xff}, func(key, value []byte) bool {
			if family := keys.Family(key[0]); family != keys.Reply && family != keys.ReplyAge { // bounded in number
				all += len(key) + len(value)
				bytes[keys.NameOf(key)] += len(key) + len(value)
			}
			return true
		})
	}); err != nil {
		t.Fatal(err)
	}
	if all > maxSleeperBytes*n {
		t.Errorf("%d sleepers take %d bytes: %v", n, all, bytes)
	}
}
