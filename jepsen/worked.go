package jepsen

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// listings are the worked journals of the specification of the execution journal, each with the state after its entry.
//
//go:embed testdata/worked/*.txt
var listings embed.FS

// WorkedJournals are the names of the worked journals, and of the retry table: by a child, and by a step.
var WorkedJournals = []string{"full", "buffered", "blocking", "retry", "step"}

// workedLease is how long a lost worker's tasks stay its own.
const workedLease = 2 * time.Second

// workedTimeout bounds the wait for one entry.
const workedTimeout = time.Minute

// rest is an entry after which a journal does not grow until the driver acts. Entries that one commit or one settlement
// writes have no state between them.
type rest struct {
	at  int
	act string // "" where the cluster goes on by itself, after a pause
}

var workedRests = map[string][]rest{
	"full": {{0, "open begin"}, {4, "child 1 user"}, {6, "open fetched"}, {13, "child 4 sms"}, {15, "open got-sms"}, {17, "mail"},
		{18, "child 3 fail"}, {19, ""}, {20, "child 3 mail"}, {22, "open got-mail"}},
	"buffered": {{0, "open begin"}, {3, "child 0 order"}, {5, "signal"}, {6, "open ordered"}},
	"blocking": {{0, "open begin"}, {3, "child 0 order"}, {5, "open ordered"}, {6, "signal"}},
	"retry":    {{0, "open begin"}, {2, "child 0 fail"}, {3, ""}, {4, "child 0 fine"}, {5, "open meanwhile done"}},
	"step":     {{0, "open begin"}, {0, "open attempt-1 fail"}, {3, "open attempt-2 fine"}},
}

// WorkedOptions say which worked journals are made, and what is killed meanwhile.
type WorkedOptions struct {
	// Journals are some of WorkedJournals; default: all.
	Journals []string
	// Kills are some of "none", "worker" and "leader"; default: none alone. A kill hits each entry after
	// which the journal rests, in a run of its own.
	Kills []string
	// Every makes only every so manieth of those runs; default 1.
	Every int
	Seed  uint64
	Out   io.Writer
}

// WorkedReport says what was made.
type WorkedReport struct {
	Runs       int
	Took       time.Duration
	Listings   []string
	Violations []string
}

// String is the summary with the journals as they were recorded.
func (r *WorkedReport) String() string {
	return fmt.Sprintf("%d journals in %s\n%s", r.Runs, short3(r.Took), strings.Join(r.Listings, "\n"))
}

// workedRun makes the journals.
type workedRun struct {
	o      WorkedOptions
	c      *Cluster
	cl     *client.Client
	gates  gates
	main   *Worker
	mail   *Worker
	report *WorkedReport
}

// Worked makes each worked journal by functions on the cluster, and compares it entry by entry. No kill may change one:
// a lost lease is no failed attempt of a child, and a step without a recorded start leaves nothing of a lost attempt.
// The program must call BeWorker.
func Worked(ctx context.Context, c *Cluster, o WorkedOptions) (*WorkedReport, error) {
	if len(o.Journals) == 0 {
		o.Journals = WorkedJournals
	}
	if len(o.Kills) == 0 {
		o.Kills = []string{"none"}
	}
	o.Every = fallback(o.Every, 1)
	if o.Out == nil {
		o.Out = io.Discard
	}
	dir := filepath.Join(c.dir, fmt.Sprintf("gates-%x", o.Seed))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cl, err := c.Client(workedTimeout)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	r := &workedRun{o: o, c: c, cl: cl, gates: gates(dir), report: &WorkedReport{}}
	if r.main, err = r.worker(workedMain); err == nil {
		r.mail, err = r.worker(workedMail)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, w := range []*Worker{r.main, r.mail} {
			if err := w.Kill(); err != nil {
				c.unexpected("stopping %s: %v", w.Name, err)
			}
			c.workers = slices.DeleteFunc(c.workers, func(x *Worker) bool { return x == w })
		}
	}()
	began := time.Now()
	turn := 0
	for _, kill := range o.Kills {
		for _, name := range o.Journals {
			if workedRests[name] == nil {
				return nil, fmt.Errorf("no worked journal %q", name)
			}
			at := []int{-1}
			if kill != "none" {
				at = nil
				for i := range workedRests[name] {
					at = append(at, i)
				}
			}
			for _, i := range at {
				if turn++; turn%o.Every != 0 {
					continue
				}
				if err := r.make(ctx, name, kill, i); err != nil {
					return r.report, fmt.Errorf("journal %s, kill %s at rest %d: %w", name, kill, i, err)
				}
			}
		}
	}
	r.report.Took = time.Since(began)
	return r.report, nil
}

// worker prepares a worker process of a role.
func (r *workedRun) worker(role string) (*Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &Worker{process: process{c: r.c, Name: "worked-" + role}}
	w.LogFile, w.Book = filepath.Join(r.c.dir, w.Name+".log"), filepath.Join(r.c.dir, w.Name+".book")
	w.Steps = stepsBook(w.Book)
	w.command = func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), workedEnv+"="+strings.Join(append([]string{role, string(r.gates)}, r.c.Addrs()...), " "))
		return cmd
	}
	r.c.workers = append(r.c.workers, w)
	return w, os.WriteFile(w.Book, nil, 0o644)
}

// make makes one journal. kill says what is killed at its i-th rest.
func (r *workedRun) make(ctx context.Context, name, kill string, i int) error {
	r.report.Runs++
	id := fmt.Sprintf("worked-%x-%s-%d", r.o.Seed, name, r.report.Runs)
	if err := r.main.Start(); err != nil {
		return err
	}
	if err := r.mail.Kill(); err != nil {
		return err
	}
	if _, err := r.cl.Start(ctx, client.StartOptions{Function: "worked-" + name, ID: id, Input: []byte(`"in"`), AllowUnknownFunction: true}); err != nil {
		return err
	}
	began := time.Now()
	where := name
	for k, at := range workedRests[name] {
		if err := r.reaches(ctx, id, at); err != nil {
			return err
		}
		if k == i {
			where = fmt.Sprintf("%s, %s killed after entry %d", name, kill, at.at)
			if err := r.kill(ctx, id, kill); err != nil {
				return err
			}
		}
		if err := r.act(ctx, id, at.act); err != nil {
			return fmt.Errorf("%s: %w", at.act, err)
		}
	}
	ending, cancel := context.WithTimeout(ctx, workedTimeout)
	defer cancel()
	if _, err := r.cl.Result(ending, id); err != nil {
		return err
	}
	var lines []string
	for e, err := range r.cl.Journal(ctx, id) {
		if err != nil {
			return err
		}
		lines = append(lines, workedLine(id, e))
	}
	lines = withStates(lines)
	if wrong := CheckWorked(name, lines); wrong != "" {
		r.report.Violations = append(r.report.Violations, where+": "+wrong)
	}
	if i < 0 {
		r.report.Listings = append(r.report.Listings, name+"\n  "+strings.Join(lines, "\n  "))
	}
	fmt.Fprintf(r.o.Out, "%s: %d entries after %s\n", where, len(lines), short3(time.Since(began)))
	return r.c.WaitReady(ctx)
}

// reaches waits until the journal has the entry at which it rests. More entries are a violation, which the
// comparison names.
func (r *workedRun) reaches(ctx context.Context, id string, at rest) error {
	ctx, cancel := context.WithTimeout(ctx, workedTimeout)
	defer cancel()
	return waitFor(ctx, fmt.Sprintf("entry %d of %s", at.at, id), func(ctx context.Context) error {
		e, err := r.cl.Describe(ctx, id)
		if err != nil {
			return err
		}
		if n := int(e.GetJournalEvents()); n <= at.at {
			return fmt.Errorf("it has %d entries; its last problem is %q", n, e.GetLastProblem())
		}
		return nil
	})
}

// kill kills the workers that run or the leader of the execution's partition, and starts them again.
func (r *workedRun) kill(ctx context.Context, id, what string) error {
	if what == "worker" {
		for _, w := range []*Worker{r.main, r.mail} {
			if w.Running() {
				if err := errors.Join(w.Kill(), w.Start()); err != nil {
					return err
				}
			}
		}
		return nil
	}
	n, err := r.c.leaderOf(ctx, r.cl, id)
	if err != nil {
		return err
	}
	return errors.Join(n.Kill(), n.Start())
}

// act does what lets a journal go on.
func (r *workedRun) act(ctx context.Context, id, act string) error {
	words := append(strings.Fields(act), "", "", "")
	switch words[0] {
	case "open":
		return r.gates.open(id, words[1], words[2])
	case "mail":
		return r.mail.Start()
	case "signal":
		return r.cl.Signal(ctx, id, "user_approval", []byte(`{"approved":true}`))
	case "child":
		e, err := r.cl.Describe(ctx, id+":"+words[1])
		if err != nil {
			return err
		}
		return r.gates.open(e.GetId(), strconv.FormatUint(e.GetIncarnation(), 10), words[2])
	}
	return nil
}

// CheckWorked compares a journal with the worked one of a name, and names the first difference.
func CheckWorked(name string, lines []string) string {
	text, err := listings.ReadFile("testdata/worked/" + name + ".txt")
	if err != nil {
		return err.Error()
	}
	var want []string
	for _, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == strconv.Itoa(len(want)) {
			want = append(want, strings.Join(words[1:], " "))
		}
	}
	for i := range max(len(want), len(lines)) {
		switch {
		case i >= len(want):
			return fmt.Sprintf("entry %d is %q, the worked journal ends before it", i, lines[i])
		case i >= len(lines):
			return fmt.Sprintf("entry %d is missing: %q", i, want[i])
		case lines[i] != want[i]:
			return fmt.Sprintf("entry %d is %q, in the worked journal %q", i, lines[i], want[i])
		}
	}
	return ""
}

// withStates adds to each line the execution's state after it.
func withStates(lines []string) []string {
	states := map[string]string{"ExecutionStarted": "Running", "ExecutionResumed": "Running", "ExecutionAwaiting": "Blocked",
		"ExecutionCompleted": "Completed", "ExecutionFailed": "Failed", "CancelRequested": "Cancelling", "ExecutionCancelled": "Cancelled"}
	state := "None"
	var out []string
	for _, line := range lines {
		kind, _, _ := strings.Cut(line, "(")
		if next, ok := states[kind]; ok {
			state = next
		}
		out = append(out, line+" "+state)
	}
	return out
}

// workedLine is an entry as the worked journals have it: ids begin with root, and what differs from run to
// run is left out.
func workedLine(id string, e *perdurev1.JournalEntry) string {
	p := func(promise string) string { return strings.Replace(promise, id+":", "root.", 1) }
	o := func(o *perdurev1.Outcome) string {
		if f := o.GetFailure(); f != nil {
			return "Err(" + f.GetType() + ")"
		}
		return "Ok(" + string(o.GetValue()) + ")"
	}
	line := func(kind string, fields ...any) string {
		var words []string
		for _, f := range fields {
			words = append(words, fmt.Sprint(f))
		}
		return kind + "(" + strings.Join(words, ", ") + ")"
	}
	attempt := func(n uint32) string { return fmt.Sprintf("attempt=%d", n) }
	switch k := e.GetEvent().GetKind().(type) {
	case *perdurev1.Event_ExecutionStarted:
		return line("ExecutionStarted", string(k.ExecutionStarted.GetInput()))
	case *perdurev1.Event_ExecutionCompleted:
		return line("ExecutionCompleted", "Ok("+string(k.ExecutionCompleted.GetResult())+")")
	case *perdurev1.Event_ExecutionFailed:
		return line("ExecutionFailed", k.ExecutionFailed.GetError().GetType(), k.ExecutionFailed.GetError().GetMessage())
	case *perdurev1.Event_RandomGenerated:
		return line("RandomGenerated", p(k.RandomGenerated.GetPromiseId()))
	case *perdurev1.Event_InvokeScheduled:
		input := string(k.InvokeScheduled.GetInput())
		if input == "" {
			input = "null"
		}
		return line("InvokeScheduled", p(k.InvokeScheduled.GetPromiseId()), k.InvokeScheduled.GetFunctionName(), input)
	case *perdurev1.Event_InvokeStarted:
		return line("InvokeStarted", p(k.InvokeStarted.GetPromiseId()), attempt(k.InvokeStarted.GetAttempt()))
	case *perdurev1.Event_InvokeRetrying:
		return line("InvokeRetrying", p(k.InvokeRetrying.GetPromiseId()), attempt(k.InvokeRetrying.GetFailedAttempt()), k.InvokeRetrying.GetError().GetType())
	case *perdurev1.Event_InvokeCompleted:
		return line("InvokeCompleted", p(k.InvokeCompleted.GetPromiseId()), o(k.InvokeCompleted.GetResult()), attempt(k.InvokeCompleted.GetAttempt()))
	case *perdurev1.Event_ExecutionAwaiting:
		w := k.ExecutionAwaiting
		var on []string
		for _, promise := range w.GetWaitingOn() {
			on = append(on, p(promise))
		}
		kind := map[perdurev1.AwaitKind]string{perdurev1.AwaitKind_AWAIT_KIND_SINGLE: "Single", perdurev1.AwaitKind_AWAIT_KIND_ANY: "Any",
			perdurev1.AwaitKind_AWAIT_KIND_ALL: "All", perdurev1.AwaitKind_AWAIT_KIND_SIGNAL: "Signal(" + w.GetSignalName() + ")"}[w.GetKind()]
		return line("ExecutionAwaiting", "["+strings.Join(on, ", ")+"]", kind)
	case *perdurev1.Event_ExecutionResumed:
		return "ExecutionResumed"
	case *perdurev1.Event_SignalDelivered:
		s := k.SignalDelivered
		return line("SignalDelivered", s.GetName(), o(s.GetPayload()), fmt.Sprintf("delivery_id=%d", s.GetDeliveryId()))
	case *perdurev1.Event_SignalReceived:
		s := k.SignalReceived
		return line("SignalReceived", p(s.GetPromiseId()), s.GetName(), o(s.GetPayload()), fmt.Sprintf("delivery_id=%d", s.GetDeliveryId()))
	case *perdurev1.Event_JoinSetCreated:
		return line("JoinSetCreated", p(k.JoinSetCreated.GetJoinSetId()))
	case *perdurev1.Event_JoinSetSubmitted:
		return line("JoinSetSubmitted", p(k.JoinSetSubmitted.GetJoinSetId()), p(k.JoinSetSubmitted.GetPromiseId()))
	case *perdurev1.Event_JoinSetAwaited:
		a := k.JoinSetAwaited
		return line("JoinSetAwaited", p(a.GetJoinSetId()), p(a.GetPromiseId()), o(a.GetResult()))
	}
	return e.GetEvent().String()
}
