package audit

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// The rules that only this package has. Violations of the journal's and the recovery protocol's rules keep
// their names (journal.Rule…, recovery.OrphanTasks and so on).
const (
	// RuleDamaged: every key is one, and every value is what its key says.
	RuleDamaged = "damaged"
	// RuleMisplaced: a value is stored under its own object's key, and the object belongs to this partition.
	RuleMisplaced = "misplaced"
	// RuleOrphanJournal: a journal belongs to the present incarnation of an execution.
	RuleOrphanJournal = "orphan_journal"
	// RuleOrphanExecution: an execution has a promise and a task, and these have an execution.
	RuleOrphanExecution = "orphan_execution"
	// RuleHeader: an execution's header says what its journal and its promise say.
	RuleHeader = "header_journal"
	// RuleIncarnation: a former incarnation is older than the present one, and only an unfinished sweep
	// leaves any of it.
	RuleIncarnation = "incarnation"
	// RuleEnding: journal and promise end together, in the same way and with the same result.
	RuleEnding = "ending"
	// RuleSuspended: a task is suspended exactly while its execution is Blocked.
	RuleSuspended = "suspended_blocked"
	// RuleWaitResumed: an execution whose wait is satisfied is not Blocked.
	RuleWaitResumed = "satisfied_wait_resumed"
	// RuleOperation: what an open execution waits for has a promise that will bring it, and an operation's
	// promise is one that the journal knows.
	RuleOperation = "operation_promise"
	// RuleDeadline: the deadline index holds what objects ask for, and nothing else.
	RuleDeadline = "deadline_index"
	// RuleReady: the queues hold the pending tasks, each once, and nothing else.
	RuleReady = "ready_queue"
	// RuleCode: the halted tasks of functions are those of stuck executions, each listed once.
	RuleCode = "stuck_code"
	// RuleListing: every execution is listed once, under its status.
	RuleListing = "visibility_index"
	// RuleChannel: messages are numbered without gaps, up to what their channel says.
	RuleChannel = "channel_numbers"
	// RuleReplies: stored replies and their ages go together, and are counted.
	RuleReplies = "stored_replies"
	// RuleGraph: the nodes of a graph run agree with its graph, journal, promises and attempts, and
	// accumulation can have left its state (staged reduction, Definition 1 and Proposition 1).
	RuleGraph = "graph_run"
	// RuleStuck: every open execution has something that will wake it.
	RuleStuck = "stuck"
	// RuleOutcome: every result, error and payload in a journal or a settled promise is an outcome in its
	// canonical encoding, and a failure exactly where one belongs.
	RuleOutcome = "outcome_encoding"
	// RuleResult: what a journal records of an operation is what its promise holds.
	RuleResult = "result_promise"
	// RuleInput: a child was started with the function, the input and the digest that its parent recorded.
	RuleInput = "child_input"
	// RuleWait: a suspended task has a callback on every pending promise of its wait, and a task's callbacks and
	// resumes name promises that its execution knows.
	RuleWait = "wait_callbacks"
	// RuleClock: no time in the state is after the machine's, and a journal's times do not fall.
	RuleClock = "clock"
	// RuleCleanup: an execution that was cancelled with a clean-up registered has one, started as recorded;
	// and a clean-up belongs to such an execution.
	RuleCleanup = "clean_up"
	// RuleMessage: a message in the outbox agrees with the objects that sent it.
	RuleMessage = "message_sender"
	// RuleEntity: an entity has the task, the deadline and the promises of clients' calls that it needs. The rules of
	// its lists and its lock are those of package entity.
	RuleEntity = "entity"
	// RuleBacklog: at an entity wait no more operations of clients than it admits.
	RuleBacklog = "entity_backlog"
	// RuleHeartbeat: heartbeats are of open executions whose headers say so, and of steps that have no result.
	RuleHeartbeat = "step_heartbeat"
	// RuleSection: a critical section belongs to an open execution, its promise says whether it is entered, and it has
	// locked the entities of this partition.
	RuleSection = "critical_section"
	// RuleClient: a client's promise has the target, the flags and the delay of its tags, and a target that is an address is
	// a client's.
	RuleClient = "client_promise"
	// RulePurge: what is being purged has ended, and the deadline index leads to it.
	RulePurge = "purge"
	// RuleSchedule: a schedule's next run is after its last one.
	RuleSchedule = "schedule"
)

// Violation is one broken rule in a state.
type Violation struct {
	// Rule is one of the Rule constants here, in journal, or a name of recovery's.
	Rule string
	// Namespace and ID name the object concerned; both are empty for what is the partition's own.
	Namespace, ID string
	// Seq is the journal entry concerned, if HasSeq.
	Seq    uint64
	HasSeq bool
	// Detail says what was found.
	Detail string
}

// String is the violation in one line.
func (v Violation) String() string {
	where := ""
	if v.ID != "" {
		where = fmt.Sprintf(" %q", v.ID)
	}
	if v.Namespace != "" {
		where += fmt.Sprintf(" in namespace %q", v.Namespace)
	}
	if v.HasSeq {
		where += fmt.Sprintf(" at entry %d", v.Seq)
	}
	return v.Rule + ":" + where + ": " + v.Detail
}

// Report says what an audit has read, and what it found.
type Report struct {
	// Applied is the index of the last entry in the state where the audit began, ClockMS the machine's time
	// there. Through is the index where it ended: Applied, unless the audit went over several states.
	Applied, Through uint64
	ClockMS          int64
	// Namespaces are those with any key in the state, in order.
	Namespaces []string
	// The numbers of objects. Open counts the executions that have not ended, Events the entries of all
	// journals, Messages those in the outbox, Keys all keys.
	Executions, Open, Events, Promises, Tasks, Callbacks, Listeners, Messages, Replies, Keys uint64
	// Found counts the violations. Violations are ordered by namespace and id, and for one object in the
	// order of finding. They are Found in number, up to the caller's limit.
	Found      uint64
	Violations []Violation
	// Content is a hash over every key and value that all replicas of the partition share at Applied. It means
	// something only if Through is Applied.
	Content uint64
}

// Run checks a whole state by every rule and changes nothing: every value by its decoder, every journal by
// journal.Check, promises and tasks by recovery's invariants, their agreement with the headers, and every
// index against what it indexes. All rules hold as of the machine's clock, except that of wake sources, which
// holds as of now (unix milliseconds) if now is later.
//
// The report holds the problems found. An error comes from the storage, or says that a newer program wrote
// the state.
func Run(r state.Reader, now int64, part state.Partition) (Report, error) {
	a, err := New(part, 0)
	if err != nil {
		return Report{}, err
	}
	if _, err := a.Continue(r, now, nil); err != nil {
		return Report{}, err
	}
	return a.Report(), nil
}

// Auditor is one audit in progress. The caller may continue it on later states of the same partition: it
// checks each rule within one state, so the caller can release a state between two keys. It is not safe for
// concurrent use.
//
// It holds in memory one journal, one graph run, and the violations. It shares only keys and decoders with
// the machine, so that a wrong rule of the machine does not check itself.
//
//	a, err := audit.New(part, 100)
//	for done := false; !done && err == nil; {
//		err = store.View(func(r state.Reader) (err error) { done, err = a.Continue(r, now, enough); return err })
//	}
//	report := a.Report()
type Auditor struct{ a auditor }

// New begins an audit that keeps at most so many violations; 0 keeps all.
func New(part state.Partition, most int) (*Auditor, error) {
	if err := part.Check(); err != nil {
		return nil, err
	}
	return &Auditor{auditor{part: part, most: most, namespaces: map[string]bool{}}}, nil
}

// Continue resumes the audit where the last call ended. It runs until all keys are checked (done) or pause
// returns true. It calls pause between two objects; nil never pauses. After an error the audit cannot be
// continued.
func (x *Auditor) Continue(r state.Reader, now int64, pause func() bool) (done bool, err error) {
	a := &x.a
	defer state.Catch(&err)
	a.Must, a.now, a.pause, a.runs = state.Must{From: r}, now, pause, nil
	return a.piece()
}

// Keys counts the keys checked so far.
func (x *Auditor) Keys() uint64 { return x.a.report.Keys }

// Report is what was found up to now.
func (x *Auditor) Report() Report {
	out := x.a.report
	out.Namespaces = slices.Sorted(maps.Keys(x.a.namespaces))
	out.Content = x.a.content.Sum64()
	out.Violations = slices.Clone(out.Violations)
	slices.SortStableFunc(out.Violations, func(x, y Violation) int {
		if c := strings.Compare(x.Namespace, y.Namespace); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	return out
}

// auditor is one running audit.
type auditor struct {
	state.Must // the state that is being read
	now        int64
	part       state.Partition
	most       int
	pause      func() bool
	report     Report
	// next is the key to continue from; begun says that Continue has run on a first state.
	next  []byte
	begun bool
	// content goes over keys and values.
	content xxhash.Digest

	namespaces map[string]bool
	// group is the journal being read.
	group journalGroup
	// runs remembers, of graph runs of this state, when their nodes get their next attempt.
	runs map[state.Ref]map[string]int64
	// outbox is the channel whose messages are being read.
	outbox outbox
	// newest is the latest incarnation that there may be.
	newest uint64
	// counted: the replies of this audit were counted.
	counted bool
}

// families says what an audit does with each family of keys.
var families = map[keys.Family]func(a *auditor, key, value []byte){
	keys.Meta:       (*auditor).meta,
	keys.Promise:    (*auditor).promise,
	keys.Task:       (*auditor).task,
	keys.Callback:   (*auditor).callback,
	keys.AwaitedBy:  (*auditor).awaited,
	keys.Listener:   (*auditor).listener,
	keys.Notify:     (*auditor).notification,
	keys.Unblock:    (*auditor).unblock,
	keys.Schedule:   (*auditor).schedule,
	keys.Header:     (*auditor).header,
	keys.Journal:    (*auditor).entry,
	keys.Graph:      (*auditor).storedGraph,
	keys.Node:       (*auditor).node,
	keys.Latch:      (*auditor).latch,
	keys.Heartbeat:  (*auditor).heartbeats,
	keys.Remains:    (*auditor).remains,
	keys.Entity:     (*auditor).entityHead,
	keys.EntityItem: (*auditor).entityItem,
	keys.Holder:     (*auditor).holder,
	keys.Deadline:   (*auditor).deadline,
	keys.Ready:      (*auditor).place,
	keys.Stuck:      (*auditor).stuck,
	keys.Outbox:     (*auditor).message,
	keys.Channel:    (*auditor).channel,
	keys.Inbox:      (*auditor).inbox,
	keys.Reply:      (*auditor).reply,
	keys.ReplyAge:   (*auditor).replyAge,
	keys.Visibility: (*auditor).listed,
	keys.Function:   (*auditor).function,
}

// piece audits from the next key on.
func (a *auditor) piece() (done bool, err error) {
	applied := a.number(state.MetaApplied)
	if !a.begun {
		a.begun = true
		a.content.Reset()
		a.report.Applied = applied
	}
	a.report.Through = applied
	a.report.ClockMS = int64(a.number(state.MetaClock))
	a.now = max(a.now, a.report.ClockMS)
	if level := a.number(state.MetaFeature); level > state.FeatureLevel {
		return false, fmt.Errorf("fsm: %w", &state.LevelError{What: "the state", Level: level, Known: state.FeatureLevel})
	}
	if a.number(state.MetaImporting) != 0 {
		return true, nil // the rules hold when the restore has ended
	}
	a.newest = a.report.Through + a.number(state.MetaBase)
	if !a.counted {
		a.counted = true
		a.countReplies()
	}
	a.outbox.resume(a)
	done = true
	first := true
	a.Scan(a.next, nil, func(key, value []byte) bool {
		if !a.group.continues(key) {
			a.endGroup()
			if !first && a.pause != nil && a.pause() {
				a.next, done = bytes.Clone(key), false
				return false
			}
		}
		first = false
		a.report.Keys++
		check := families[0]
		if len(key) > 0 {
			check = families[keys.Family(key[0])]
		}
		if check == nil {
			a.damaged("", "", key, "a key of no known family")
			return true
		}
		a.hash(key, value)
		check(a, key, value)
		return true
	})
	a.endGroup()
	return done, nil
}

// hash adds a key and its value to the content's hash, unless they are the store's own.
func (a *auditor) hash(key, value []byte) {
	if keys.Family(key[0]) == keys.Meta && !state.MachineMeta(string(key[1:])) {
		return
	}
	var sizes [16]byte
	binary.BigEndian.PutUint64(sizes[:8], uint64(len(key)))
	binary.BigEndian.PutUint64(sizes[8:], uint64(len(value)))
	_, _ = a.content.Write(sizes[:])
	_, _ = a.content.Write(key)
	_, _ = a.content.Write(value)
}

// found reports a violation by an object.
func (a *auditor) found(ns, objectID, rule, format string, args ...any) {
	a.violation(Violation{Rule: rule, Namespace: ns, ID: objectID, Detail: fmt.Sprintf(format, args...)})
}

// violation counts a violation, and keeps it while the list is below its bound.
func (a *auditor) violation(v Violation) {
	a.report.Found++
	if a.most == 0 || len(a.report.Violations) < a.most {
		a.report.Violations = append(a.report.Violations, v)
	}
}

// broken reports what the recovery protocol's invariants say.
func (a *auditor) broken(ns string, found []recovery.Violation) {
	for _, v := range found {
		a.found(ns, v.ID, v.Name, "%s", v.Detail)
	}
}

// damaged reports bytes that cannot be decoded as their key's kind of value.
func (a *auditor) damaged(ns, objectID string, key []byte, detail string) {
	a.found(ns, objectID, RuleDamaged, "%s (%s key %x)", detail, keys.NameOf(key), key)
}

// number reads one of the machine's own values; meta reports it if it is damaged.
func (a *auditor) number(name string) uint64 {
	n, err := state.MetaNumber(a.From, name)
	if _, bad := err.(*state.CorruptError); err != nil && !bad {
		panic(state.Fault{Err: err})
	}
	return n
}

// meta checks the machine's own values.
func (a *auditor) meta(key, value []byte) {
	if name := string(key[1:]); state.MachineMeta(name) && len(value) != 8 {
		a.damaged("", "", key, fmt.Sprintf("the value %s has %d bytes, not 8", name, len(value)))
	}
}

// parts splits the key of a named object: its namespace, n more strings, and the rest. It reports a malformed
// key.
func (a *auditor) parts(key []byte, n int) (ns string, more []string, rest []byte, ok bool) {
	ns, rest, err := keys.CutString(key[1:])
	for range n {
		if err == nil {
			var part string
			part, rest, err = keys.CutString(rest)
			more = append(more, part)
		}
	}
	if err != nil {
		a.damaged(ns, "", key, err.Error())
		return "", nil, nil, false
	}
	a.namespaces[ns] = true
	return ns, more, rest, true
}

// canonical reports a key that is not in its canonical encoding, and a value under a key that has none.
func (a *auditor) canonical(ns, objectID string, key, want, value []byte) bool {
	if !bytes.Equal(key, want) {
		a.damaged(ns, objectID, key, fmt.Sprintf("the key of this is %x", want))
		return false
	}
	if len(value) > 0 {
		a.damaged(ns, objectID, key, fmt.Sprintf("%d bytes where no value belongs", len(value)))
	}
	return true
}

// here reports an object that belongs to another partition.
func (a *auditor) here(ns, objectID string) {
	if p := state.PartitionOf(ns, objectID, a.part.Count); p != a.part.Number {
		a.found(ns, objectID, RuleMisplaced, "it belongs to partition %d, this is %d", p, a.part.Number)
	}
}

// function checks the record that a function was registered.
func (a *auditor) function(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	switch _, err := state.DecodeDigests(value); {
	case err != nil:
		a.damaged(ns, "", key, err.Error())
		return
	case more[0] == "":
		a.damaged(ns, "", key, "a function without a name")
	}
	if !bytes.Equal(key, keys.Of(keys.Function, ns, more[0])) {
		a.damaged(ns, "", key, fmt.Sprintf("the key of function %q is another", more[0]))
	}
}
