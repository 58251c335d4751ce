package durable

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// Heartbeats of steps. A step reports how far it has come, and the next attempt reads that. The worker keeps the last
// report of each step in memory and sends it with its next heartbeat to the cluster, however often the
// step reports. What it has not sent yet is lost with the worker: up to a third of WorkerOptions.Lease.

// MaxHeartbeatBytes is the most that the details of a heartbeat may have when encoded.
const MaxHeartbeatBytes = id.MaxHeartbeatBytes

// Bounds of what the steps in one heartbeat report, and in all heartbeats of one third of a lease. Other
// reports wait for the next heartbeat, the oldest come first.
const (
	beatSteps       = 256
	beatDetails     = 32 << 10
	beatAllDetails  = 1 << 20
	heartbeatFields = 64 // bytes of a report beside its texts and details
)

// Heartbeat reports from a running step that it works, and how far it has come: a repetition of the step, by
// this worker or another one, reads the last details by HeartbeatDetails. ctx is the context that Run or
// GoStep has given to the step, or one derived from it. With nil as details those of the last report stay.
//
// It does not block, and a step may call it often: only the last report is sent, with the worker's next
// heartbeat. The error says that the attempt is over (ErrCancelled if the execution is cancelling): the step
// should return it. It is an *Error if the details cannot be encoded or exceed MaxHeartbeatBytes.
func Heartbeat(ctx context.Context, details any) error {
	a, err := attemptOf(ctx, "Heartbeat")
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var data []byte
	if details != nil {
		what := "the heartbeat of step " + strconv.Quote(a.label)
		if data, err = encode(a.t.codec, what, "", details); err != nil {
			return err
		}
		if len(data) > MaxHeartbeatBytes {
			return &Error{Type: TypeTooLarge, NonRetryable: true,
				Message: what + " has " + strconv.Itoa(len(data)) + " bytes, the limit is " + strconv.Itoa(MaxHeartbeatBytes)}
		}
	}
	now := a.t.w.clock.Now()
	a.mu.Lock()
	a.last = now
	a.mu.Unlock()
	a.beats.report(a, data, now)
	return nil
}

// HeartbeatDetails returns what the step last reported by Heartbeat: in this attempt or, before the first
// call of that, in an earlier one. ok is false if nothing was. The report of a worker that was lost shortly
// after may be missing, and then it is the one before. ctx is as for Heartbeat.
func HeartbeatDetails[T any](ctx context.Context) (details T, ok bool, err error) {
	a, err := attemptOf(ctx, "HeartbeatDetails")
	if err != nil {
		return details, false, err
	}
	data, ok := a.beats.details(a)
	if !ok {
		return details, false, nil
	}
	err = decode(a.t.codec, "the heartbeat of step", a.label, data, &details)
	return details, err == nil, err
}

// WithHeartbeatTimeout ends an attempt of the step that calls Heartbeat less often than every d: its context
// ends, and it has failed with type "timeout", to be retried by the step's policy. An attempt that does not
// heed its context is left behind two seconds later. It may still run and have effects beside the next one,
// but what it returns is dropped.
func WithHeartbeatTimeout(d time.Duration) StepOption {
	return func(o *stepOptions) { o.heartbeat = d }
}

// errNoHeartbeat ends the context of an attempt.
var errNoHeartbeat = errors.New("durable: the step's heartbeat timeout is over")

type attemptKey struct{}

// stepAttempt is an attempt of a step that runs.
type stepAttempt struct {
	t         *activation
	beats     *stepBeats
	id, label string
	attempt   uint32

	mu   sync.Mutex
	last time.Time // of its last heartbeat, or its beginning
}

func attemptOf(ctx context.Context, what string) (*stepAttempt, error) {
	a, ok := ctx.Value(attemptKey{}).(*stepAttempt)
	if !ok {
		return nil, errors.New("durable: " + what + ": the context is not a step's")
	}
	return a, nil
}

// silent is how long ago the attempt's last heartbeat was.
func (a *stepAttempt) silent(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return elapsed(a.last, now)
}

// watched makes one attempt of a step with a heartbeat timeout, in a goroutine of its own, so that an attempt that does
// not return can be left behind.
func (s *stepRun) watched(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		data []byte
		err  error
	}
	returned := make(chan result, 1)
	go func() {
		r := result{err: &Error{Type: TypePanic, Message: "runtime.Goexit was called"}}
		defer func() { returned <- r }()
		r.data, r.err = s.call(ctx)
	}()
	clock, a := s.t.w.clock, ctx.Value(attemptKey{}).(*stepAttempt)
	for left := s.o.heartbeat; left > 0; left = s.o.heartbeat - a.silent(clock.Now()) {
		select {
		case r := <-returned:
			return r.data, r.err
		case <-clock.After(left):
		}
	}
	cancel(errNoHeartbeat)
	late := &Error{Type: TypeTimeout, Message: "no heartbeat within " + s.o.heartbeat.String()}
	select {
	case r := <-returned:
		if r.err == nil {
			return r.data, nil
		}
	case <-clock.After(stepStopTimeout):
		s.t.logger().Warn("step did not end after its heartbeat timeout", "event", "step_abandoned", "step", strconv.Quote(s.name), "attempt", s.attempt)
	}
	return nil, late
}

// stepBeats are the last heartbeats of a task's steps that have no result. It is safe for concurrent use.
type stepBeats struct {
	mu    sync.Mutex
	steps map[string]*stepReport // by promise id
}

// stepReport is the last heartbeat of one step.
type stepReport struct {
	label   string
	attempt uint32
	details []byte
	// version counts the heartbeats under this task, stored are those up to which the cluster has them. since
	// is when the first of the others was.
	version, stored uint64
	since           time.Time
}

// load takes what the cluster has.
func (b *stepBeats) load(stored []*perdurev1.StepHeartbeat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range stored {
		b.putLocked(s.GetPromiseId(), &stepReport{label: s.GetName(), attempt: s.GetAttempt(), details: s.GetDetails()})
	}
}

func (b *stepBeats) putLocked(promise string, r *stepReport) {
	if b.steps == nil {
		b.steps = map[string]*stepReport{}
	}
	b.steps[promise] = r
}

// report takes a step's heartbeat; nil details leave the former ones.
func (b *stepBeats) report(a *stepAttempt, details []byte, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.steps[a.id]
	if r == nil || r.label != a.label {
		r = &stepReport{label: a.label}
		b.putLocked(a.id, r)
	}
	if r.version == r.stored {
		r.since = now
	}
	r.version++
	r.attempt = a.attempt
	if details != nil {
		r.details = details
	}
}

// details are those of the step's last heartbeat; ok is false if it has reported none.
func (b *stepBeats) details(a *stepAttempt) (data []byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.steps[a.id]
	if r == nil || r.label != a.label || len(r.details) == 0 {
		return nil, false
	}
	return r.details, true
}

// none reports whether no step has a heartbeat here.
func (b *stepBeats) none() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.steps) == 0
}

// drop forgets a step, which has its result.
func (b *stepBeats) drop(promise string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.steps, promise)
}

// sentReport is a step's heartbeat that the cluster does not have yet.
type sentReport struct {
	t       *hold
	version uint64
	since   time.Time
	step    *perdurev1.StepHeartbeat
}

func (r *sentReport) size() int {
	return len(r.step.PromiseId) + len(r.step.Name) + len(r.step.Details) + heartbeatFields
}

// unsent lists the heartbeats of a task's steps that the cluster does not have yet, oldest first.
func (t *hold) unsent() (out []sentReport) {
	b := &t.beats
	b.mu.Lock()
	defer b.mu.Unlock()
	for promise, r := range b.steps {
		if _, own := id.PromiseID(promise).IsChildOf(id.PromiseID(t.key.id)); own && r.version != r.stored {
			out = append(out, sentReport{t, r.version, r.since, &perdurev1.StepHeartbeat{
				PromiseId: promise, Name: r.label, Attempt: r.attempt, Details: r.details}})
		}
	}
	sortReports(out)
	return out
}

func sortReports(reports []sentReport) {
	slices.SortFunc(reports, func(x, y sentReport) int { return x.since.Compare(y.since) })
}

// lastReports are what a release tells of the task's steps.
func (t *hold) lastReports() (steps []*perdurev1.StepHeartbeat) {
	size := 0
	for _, r := range t.unsent() {
		if size += r.size(); size > beatDetails {
			break
		}
		steps = append(steps, r.step)
	}
	return steps
}

// reportsOf are what the heartbeats of one round tell of the tasks' steps, within beatAllDetails.
func reportsOf(holds []*hold) map[*hold][]sentReport {
	var all []sentReport
	for _, t := range holds {
		all = append(all, t.unsent()...)
	}
	if len(all) == 0 {
		return nil
	}
	sortReports(all)
	out, size := map[*hold][]sentReport{}, 0
	for _, r := range all {
		if size += r.size(); size > beatAllDetails {
			break
		}
		out[r.t] = append(out[r.t], r)
	}
	return out
}

// stored notes that the cluster has a report.
func (r *sentReport) stored() {
	b := &r.t.beats
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.steps[r.step.PromiseId]; now != nil && now.label == r.step.Name && r.version > now.stored && r.version <= now.version {
		now.stored = r.version
		if now.version != now.stored {
			now.since = r.since
		}
	}
}
