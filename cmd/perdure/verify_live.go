package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/journal"
)

// verifyLive checks the executions of a running cluster through its API, and compares its replicas.
func (a *app) verifyLive(ctx context.Context, o verifyOptions) error {
	if len(o.namespaces) == 0 {
		o.namespaces = []string{a.namespace} // "" leaves it to dial
	}
	l := &liveVerification{progress: a.newProgress()}
	audits, err := a.auditReplicas(ctx)
	if err != nil {
		return err
	}
	l.findings = audits.findings
	var asked []string
	for _, ns := range o.namespaces {
		if len(l.findings) > 0 {
			break // the audits covered what clients see, and reading damaged state halts its replica
		}
		a.namespace = ns
		c, err := a.dial()
		if err != nil {
			return err
		}
		if !slices.Contains(asked, c.Namespace()) {
			asked = append(asked, c.Namespace())
			err = l.namespace(ctx, c, o.parallel)
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	v := verdict{findings: l.findings, audits: audits, counts: []count{
		{"namespaces", names(asked)}, {"executions", l.executions}, {"open", l.open}, {"events", l.events}, {"gone", l.gone},
	}}
	if !a.json {
		for _, line := range audits.lines() {
			fmt.Fprintln(a.out, line)
		}
	}
	if !a.json { // before the comparison, which may take long
		if err := errors.Join(a.printChecked(v), a.out.Flush()); err != nil {
			return err
		}
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	replicas, err := a.compareReplicas(ctx, c, o.compareWithin)
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	v.replicas, v.waited = &replicas, o.compareWithin
	if a.json {
		v.findings = append(v.findings, replicas.findings()...)
		return a.deliver(v)
	}
	for _, line := range replicas.lines() {
		fmt.Fprintln(a.out, line)
	}
	for _, f := range replicas.findings() {
		fmt.Fprintln(a.out, findingText(f))
		v.findings = append(v.findings, f)
	}
	return a.printEnd(v)
}

// liveVerification is one under way.
type liveVerification struct {
	progress *progress

	mu sync.Mutex
	// gone counts executions that were purged between their listing and their reading.
	executions, open, events, gone int
	findings                       []finding
}

// namespace checks all executions of a namespace, several at a time. The first error ends it.
func (l *liveVerification) namespace(ctx context.Context, c *client.Client, parallel int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ids := make(chan string)
	var wg sync.WaitGroup
	for range parallel {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for id := range ids {
				if err := l.execution(ctx, c, id); err != nil {
					cancel(err)
				}
			}
		}()
	}
	var listing error
	for e, err := range c.List(ctx, client.ListOptions{PageSize: 1000}) {
		if err != nil {
			listing = err
			break
		}
		select {
		case ids <- e.GetId():
			continue
		case <-ctx.Done():
			listing = ctx.Err()
		}
		break
	}
	close(ids)
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return listing
}

// execution reads and checks one execution.
func (l *liveVerification) execution(ctx context.Context, c *client.Client, id string) error {
	described, err := c.Describe(ctx, id)
	if err == nil {
		var entries []journal.Entry
		if entries, err = readJournal(ctx, c, id); err == nil {
			l.check(c.Namespace(), described, entries)
			return nil
		}
	}
	if e, ok := api.FromStatus(err); ok && e.Reason == perdurev1.Reason_REASON_EXECUTION_NOT_FOUND {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gone++
		return nil
	}
	return err
}

// readJournal reads a whole journal, also entries behind the end, which must not be there.
func readJournal(ctx context.Context, c *client.Client, id string) ([]journal.Entry, error) {
	var entries []journal.Entry
	for from, more := uint64(0), true; more; {
		more = false
		for w, err := range c.Journal(ctx, id, client.FromSeq(from)) {
			if err != nil {
				return nil, err
			}
			entry, err := wire.DecodeEntry(w)
			if err != nil {
				// Not an error of the server's, so it does not keep its code.
				return nil, fmt.Errorf("execution %q, entry %d: %s: a newer perdure may know it", id, w.GetSeq(), err.Error())
			}
			entries = append(entries, entry)
			from, more = max(from, entry.Seq)+1, true
		}
	}
	return entries, nil
}

// check checks one execution and records the violations.
func (l *liveVerification) check(ns string, described *perdurev1.Execution, entries []journal.Entry) {
	found := audit.CheckJournal(described.GetId(), entries)
	found = append(found, compareDescription(described, entries)...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.executions++
	l.events += len(entries)
	if !ended(described.GetStatus()) {
		l.open++
	}
	for _, v := range found {
		v.Namespace = ns
		l.findings = append(l.findings, finding{Violation: v, partition: -1})
	}
	executions, events := l.executions, l.events
	l.progress.at(func() string { return fmt.Sprintf("%d executions, %d events so far", executions, events) })
}

// ended reports whether a status is final.
func ended(s perdurev1.ExecutionStatus) bool {
	return s >= perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
}

// compareDescription compares an execution's description with its journal, which was read later: the
// described part cannot have changed since.
func compareDescription(e *perdurev1.Execution, entries []journal.Entry) []audit.Violation {
	var out []audit.Violation
	bad := func(rule, format string, args ...any) {
		out = append(out, audit.Violation{Rule: rule, ID: e.GetId(), Detail: fmt.Sprintf(format, args...)})
	}
	if e.GetWakeSource() == "stuck" {
		bad(audit.RuleStuck, "it is %s, and nothing will wake it", statusText(e.GetStatus()))
	}
	if n := uint64(len(entries)); n < e.GetJournalEvents() {
		bad(audit.RuleHeader, "the journal has %d entries, it is described with %d", n, e.GetJournalEvents())
		return out
	}
	entries = entries[:e.GetJournalEvents()]
	status := perdurev1.ExecutionStatus(journal.StatusOf(entries))
	if overdue(e) && !ended(status) {
		// Its deadline has passed; the status shows that before the expiration runs.
		return out
	}
	if status != e.GetStatus() {
		bad(audit.RuleHeader, "the journal is %s, it is described as %s", statusText(status), statusText(e.GetStatus()))
		return out
	}
	if !ended(status) {
		if e.GetOutcome() != nil {
			bad(audit.RuleEnding, "it is %s, and has a result", statusText(status))
		}
		return out
	}
	if !sameEnd(entries[len(entries)-1].Event, e.GetOutcome()) {
		bad(audit.RuleEnding, "the journal ends with %s, and its result is another", entries[len(entries)-1].Event.Kind())
	}
	return out
}

// overdue reports whether a deadline that the journal does not have yet has ended an execution.
func overdue(e *perdurev1.Execution) bool {
	return e.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED && e.GetClosedMs() == 0 &&
		e.GetDeadlineMs() != 0 && e.GetOutcome().GetFailure().GetType() == state.FailureTimeout
}

// sameEnd compares the last event of a journal with the result that callers get.
func sameEnd(last journal.Event, outcome *perdurev1.Outcome) bool {
	failure := outcome.GetFailure()
	switch e := last.(type) {
	case journal.ExecutionCompleted:
		return outcome != nil && failure == nil && bytes.Equal(e.Result, outcome.GetValue())
	case journal.ExecutionFailed:
		said := wire.EncodeEntry(journal.Entry{Event: e}).GetEvent().GetExecutionFailed().GetError()
		return failure != nil && proto.Equal(said, failure)
	case journal.ExecutionCancelled:
		return failure.GetType() == state.FailureCancelled || failure.GetType() == state.FailureTimeout
	}
	return false
}
