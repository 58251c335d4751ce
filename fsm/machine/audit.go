package machine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"perdure/fsm/keys"
	"perdure/recovery"
)

// The rules that Audit judges besides the journal's and the recovery protocol's, whose violations keep
// the names they have there (journal.Rule…, recovery.OrphanTasks and so on).
const (
	// RuleDamaged: every key is one, and every value is what its key says.
	RuleDamaged = "damaged"
	// RuleMisplaced: a value stands under its own object's key, and the object belongs to this partition.
	RuleMisplaced = "misplaced"
	// RuleOrphanJournal: a journal belongs to the present incarnation of an execution.
	RuleOrphanJournal = "orphan_journal"
	// RuleOrphanExecution: an execution has a promise and a task, and these have an execution.
	RuleOrphanExecution = "orphan_execution"
	// RuleHeader: an execution's header says what its journal and its promise say.
	RuleHeader = "header_journal"
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
	// RuleListing: every execution is listed once, under its status.
	RuleListing = "visibility_index"
	// RuleChannel: messages are numbered without gaps, up to what their channel says.
	RuleChannel = "channel_numbers"
	// RuleReplies: stored replies and their ages go together, and are counted.
	RuleReplies = "stored_replies"
	// RuleGraph: the nodes of a graph run are what its graph, its journal, its promises and attempts say, and
	// its state is one that accumulation can have left (staged reduction, Definition 1 and Proposition 1).
	RuleGraph = "graph_run"
	// RuleStuck: every open execution has something that will wake it.
	RuleStuck = "stuck"
)

// Violation is something in a state that the rules say cannot be.
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

// Report is what an audit has looked at, and what it found.
type Report struct {
	// Applied is the index of the last entry in the state, ClockMS the machine's time there.
	Applied uint64
	ClockMS int64
	// Namespaces are those that own anything in the state, in order.
	Namespaces []string
	// What there is. Open are the executions that have not ended, Events the journal entries of all,
	// Messages those under way to other partitions.
	Executions, Open, Events, Promises, Tasks, Callbacks, Listeners, Messages, Replies uint64
	// Violations are ordered by namespace and id, and for one object in the order of finding.
	Violations []Violation
}

// Audit judges a whole state by every rule there is, and changes nothing: every value by its decoder, every
// journal by journal.Check, promises and tasks by recovery.Invariants, how they and the headers agree, and
// every index against what it indexes. now, in unix milliseconds, is when it is asked what will wake an
// execution, if that is later than the machine's clock; the other rules are judged as of the clock.
//
// It holds in memory one journal, and of what is open ids, deadlines and waits. What it finds is in the
// report; an error is of the storage, or says that a newer program wrote the state.
func Audit(r Reader, now int64, cfg Config) (report Report, err error) {
	if cfg.Partitions == 0 || cfg.Partition >= cfg.Partitions {
		return Report{}, fmt.Errorf("fsm: partition %d of %d", cfg.Partition, cfg.Partitions)
	}
	a := &auditor{r: r, now: now, cfg: cfg, namespaces: map[string]bool{}, callbacks: map[string][]pair{},
		awaitedBy: map[string][]pair{}, listeners: map[string][]pair{}, deadlines: map[string][]deadline{},
		outboxes: map[uint32]*outbox{}, retries: map[Ref]int64{}}
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(fault)
			if !ok {
				panic(p)
			}
			report, err = Report{}, f.err
		}
	}()
	if err := a.all(); err != nil {
		return Report{}, err
	}
	return a.report, nil
}

// auditor is one audit under way. It shares with the machine only keys and decoders, so that what the
// machine does wrong is not judged by the same code.
type auditor struct {
	r      Reader
	now    int64
	cfg    Config
	report Report

	namespaces map[string]bool
	// The relations and the deadline index, by namespace, in the order of their keys.
	callbacks, awaitedBy, listeners map[string][]pair
	deadlines                       map[string][]deadline
	// group is the journal under way.
	group journalGroup
	// retries is when nodes of graphs get their next attempt, by their promises.
	retries map[Ref]int64
	// outboxes are the messages under way, by destination; ages counts the replies' ages.
	outboxes map[uint32]*outbox
	ages     uint64
}

// families says what an audit does with each family of keys. It reads them in the order of their numbers,
// which is that of this table.
var families = []struct {
	family keys.Family
	judge  func(a *auditor, key, value []byte)
}{
	{keys.Meta, (*auditor).meta},
	{keys.Promise, (*auditor).promise},
	{keys.Task, (*auditor).task},
	{keys.Callback, (*auditor).callback},
	{keys.AwaitedBy, (*auditor).awaited},
	{keys.Listener, (*auditor).listener},
	{keys.Header, (*auditor).header},
	{keys.Journal, (*auditor).entry},
	{keys.Graph, (*auditor).storedGraph},
	{keys.Node, (*auditor).node},
	{keys.Latch, (*auditor).latch},
	{keys.Deadline, (*auditor).deadline},
	{keys.Ready, (*auditor).place},
	{keys.Outbox, (*auditor).message},
	{keys.Channel, (*auditor).channel},
	{keys.Inbox, (*auditor).inbox},
	{keys.Reply, (*auditor).reply},
	{keys.ReplyAge, (*auditor).replyAge},
	{keys.Visibility, (*auditor).listed},
	{keys.Function, (*auditor).function},
}

func (a *auditor) all() error {
	a.report.Applied = a.number(metaApplied)
	a.report.ClockMS = int64(a.number(metaClock))
	a.now = max(a.now, a.report.ClockMS)
	if level := a.number(metaFeature); level > FeatureLevel {
		return fmt.Errorf("fsm: the state is at feature level %d, this program knows up to %d: it was written by a newer version", level, FeatureLevel)
	}
	next := 0
	a.scan(nil, nil, func(key, value []byte) bool {
		for next < len(families) && (len(key) == 0 || families[next].family < keys.Family(key[0])) {
			if families[next].family == keys.Journal {
				a.endGroup()
			}
			next++
		}
		if next == len(families) || len(key) == 0 || families[next].family != keys.Family(key[0]) {
			a.damaged("", "", key, "a key of no known family")
			return true
		}
		families[next].judge(a, key, value)
		return true
	})
	a.endGroup()
	a.channels()
	a.countReplies()
	a.report.Namespaces = slices.Sorted(maps.Keys(a.namespaces))
	for _, ns := range a.report.Namespaces {
		for _, v := range recovery.Invariants(a.snapshot(ns), a.report.ClockMS) {
			a.found(ns, v.ID, v.Name, "%s", v.Detail)
		}
	}
	slices.SortStableFunc(a.report.Violations, func(x, y Violation) int {
		if c := strings.Compare(x.Namespace, y.Namespace); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	return nil
}

// found reports a violation by an object.
func (a *auditor) found(ns, objectID, rule, format string, args ...any) {
	a.report.Violations = append(a.report.Violations, Violation{
		Rule: rule, Namespace: ns, ID: objectID, Detail: fmt.Sprintf(format, args...)})
}

// damaged reports bytes that cannot be read as what they stand for.
func (a *auditor) damaged(ns, objectID string, key []byte, detail string) {
	a.found(ns, objectID, RuleDamaged, "%s (%s key %x)", detail, familyName(key), key)
}

func familyName(key []byte) string {
	for _, row := range keys.Table() {
		if len(key) > 0 && row.Family == keys.Family(key[0]) {
			return row.Name
		}
	}
	return "unknown"
}

// get is Get for rules that cannot carry a storage error; see fault.
func (a *auditor) get(key []byte) ([]byte, bool) {
	v, ok, err := a.r.Get(key)
	if err != nil {
		panic(fault{err})
	}
	return v, ok
}

func (a *auditor) has(key []byte) bool {
	_, ok := a.get(key)
	return ok
}

func (a *auditor) scan(lower, upper []byte, fn func(key, value []byte) bool) {
	scan(a.r, lower, upper, fn)
}

// number reads one of the machine's own values; meta reports it if it is damaged.
func (a *auditor) number(name string) uint64 {
	n, err := metaNumber(a.r, name)
	if _, bad := err.(*CorruptError); err != nil && !bad {
		panic(fault{err})
	}
	return n
}

// meta judges the machine's own values. Others belong to the store that keeps the state.
func (a *auditor) meta(key, value []byte) {
	switch name := string(key[1:]); name {
	case metaApplied, metaClock, metaChecksum, metaFeature, metaEvicted, metaReplies:
		if len(value) != 8 {
			a.damaged("", "", key, fmt.Sprintf("the value %s has %d bytes, not 8", name, len(value)))
		}
	}
}

// parts takes the key of a named object apart: its namespace, n more strings, and what is left. A key that
// is none is reported.
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

// canonical reports a key that is not the one way to write what it says, and a value where there is none.
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
	if p := Place(ns, objectID, a.cfg.Partitions); p != a.cfg.Partition {
		a.found(ns, objectID, RuleMisplaced, "it belongs to partition %d, this is %d", p, a.cfg.Partition)
	}
}

// function judges the note that a function was registered.
func (a *auditor) function(key, value []byte) {
	if ns, more, _, ok := a.parts(key, 1); ok {
		a.canonical(ns, more[0], key, keys.Of(keys.Function, ns, more[0]), value)
	}
}
