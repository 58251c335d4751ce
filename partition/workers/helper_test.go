package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/internal/clock"
	"perdure/internal/credit"
)

const ns = "default"

func init() { credit.Assert = true }

// A stage is a dispatcher of its own, for one partition that it leads: entries are what the test says.
type stage struct {
	*Dispatcher
	t     *testing.T
	r     *replica
	lead  Leadership
	term  uint64
	clock *handClock
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, r: &replica{}, term: 7, clock: &handClock{now: time.Unix(1_700_000_000, 0)}}
	s.r.lead = &leadership{s.r, s.term}
	s.lead = s.r.lead
	s.Dispatcher = New(Env{Clock: s.clock, Lifetime: t.Context(),
		Peer: func(string) (commandv1.PeersClient, error) { return nil, errors.New("no other node is there") },
		Term: func(string, string) uint64 { return s.term }})
	t.Cleanup(s.Close)
	s.Established(s.lead, nil, nil)
	return s
}

// assign has an entry acquire tasks for a worker.
func (s *stage) assign(worker string, tokens ...*perdurev1.TaskToken) {
	s.Applied(s.r, s.lead, assigned(worker, tokens...), s.Reserve(0))
}

// handClock advances only when a test advances it.
type handClock struct {
	clock.System
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// replica is partition 0, with a state that the test makes.
type replica struct {
	lead *leadership
	// over are the ids of tasks that are over.
	over map[string]bool

	mu       sync.Mutex
	held     []machine.Assignment
	released []string
	searches int
}

type leadership struct {
	r    *replica
	term uint64
}

func (l *leadership) Replica() Replica { return l.r }
func (l *leadership) Term() uint64     { return l.term }

func (r *replica) ID() uint32 { return 0 }

func (r *replica) Context() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

func (r *replica) Propose(context.Context, *commandv1.Command) (*commandv1.Reply, error) {
	return &commandv1.Reply{}, nil
}

func (r *replica) ProposeIn(_ context.Context, l Leadership, cmd *commandv1.Command) (*commandv1.Reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	token := cmd.GetRelease().GetTask()
	if l != Leadership(r.lead) || token == nil {
		return nil, fmt.Errorf("%v is proposed in %v", cmd, l)
	}
	r.released = append(r.released, fmt.Sprintf("%s/%d", token.Id, token.Version))
	return &commandv1.Reply{}, nil
}

// returned are the tasks that were returned, in the order of their ids.
func (r *replica) returned() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.released))
}

func (r *replica) hold(tasks []machine.Assignment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = tasks
}

func (r *replica) Leadership() Leadership { return r.lead }

func (r *replica) EachHeld(visit func(machine.Assignment)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.searches++
	for _, a := range r.held {
		visit(a)
	}
	return nil
}

// searched is how many sessions have looked for held tasks.
func (r *replica) searched() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.searches
}

func (r *replica) Task(_ context.Context, token *perdurev1.TaskToken, fromSeq uint64) (*perdurev1.Task, error) {
	if r.over[token.Id] {
		return nil, errors.New("the task is over")
	}
	return &perdurev1.Task{Token: token, Entries: []*perdurev1.JournalEntry{{Seq: fromSeq}}}, nil
}

func spec(id string, capacity int, functions ...string) Spec {
	return Spec{ID: id, Namespace: ns, Functions: functions, LeaseMS: 600_000, Capacity: capacity}
}

// waitFor waits for a state that must come.
func waitFor(t *testing.T, what string, ok func() bool, state func() []string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s: %v", what, state())
		}
		pause := time.NewTimer(time.Millisecond)
		<-pause.C
	}
}

func queueOf(function string) state.Queue { return state.Queue{Namespace: ns, Function: function} }
