package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"perdure/journal"
)

// clauses maps the clauses by which the published cases explain a refusal to the rules that name it here.
// A clause that asks for a status ("live", "running") has a rule for each status it excludes.
var clauses = map[string][]string{
	"sequence":              {journal.RuleSequence},
	"exists":                {journal.RuleStartsWithStarted},
	"fresh":                 {journal.RuleStartedOnce, journal.RuleTerminalIsLast},
	"live":                  {journal.RuleTerminalIsLast, journal.RuleSingleTerminal},
	"running":               {journal.RuleBlocked, journal.RuleCancellingAdmit, journal.RuleTerminalIsLast},
	"R1.running":            {journal.RuleReturnsWhileRunning, journal.RuleSingleTerminal},
	"R2.notCancelling":      {journal.RuleCancelRequestedOnce},
	"cancelling":            {journal.RuleCancelledRequires, journal.RuleSingleTerminal},
	"cancelRequested":       {journal.RuleCancelledRequires, journal.RuleSingleTerminal},
	"R4.nextId":             {journal.RuleNextChild},
	"scheduled":             {journal.RuleStartedRequiresScheduled},
	"R5.noOpenAttempt":      {journal.RuleAttemptInOrder},
	"R5.attempt":            {journal.RuleAttemptInOrder},
	"R6.notCompleted":       {journal.RuleNothingAfterCompleted},
	"R7.mayWork":            {journal.RuleNoAttemptInCancelling, journal.RuleTerminalIsLast},
	"started":               {journal.RuleCompletedRequiresStarted, journal.RuleRetryingRequiresStarted},
	"notCompleted":          {journal.RuleCompletesOpenAttempt, journal.RuleNothingAfterCompleted},
	"R8.openAttempt":        {journal.RuleCompletesOpenAttempt, journal.RuleCompletedRequiresStarted},
	"R8.attempt":            {journal.RuleCompletesOpenAttempt, journal.RuleCompletedRequiresStarted},
	"R9.openAttempt":        {journal.RuleRetriesOpenAttempt, journal.RuleRetryingRequiresStarted},
	"R9.attempt":            {journal.RuleRetriesOpenAttempt, journal.RuleRetryingRequiresStarted},
	"retryBound":            {journal.RuleRetryBounded},
	"timerScheduled":        {journal.RuleFiredRequiresScheduled},
	"R10.notFired":          {journal.RuleTimerFiresOnce},
	"deliveryId":            {journal.RuleDeliveryID, journal.RuleSignalFIFO, journal.RuleSignalConsumedOnce, journal.RuleReceivedRequiresDelivered},
	"delivered":             {journal.RuleReceivedRequiresDelivered},
	"payload":               {journal.RuleReceivedRequiresDelivered, journal.RuleSignalFIFO, journal.RuleSignalConsumedOnce},
	"R11.runningOrWaited":   {journal.RuleSignalWait, journal.RuleCancellingAdmit, journal.RuleTerminalIsLast},
	"R11.waitedName":        {journal.RuleSignalWait},
	"R11.waitedPromise":     {journal.RuleSignalWait},
	"R11.notResolved":       {journal.RuleSignalWait},
	"awaitSignalConsistent": {journal.RuleAwaitSignalConsistent},
	"R11.waitNextId":        {journal.RuleSignalWait},
	"R12.size":              {journal.RuleWaitable},
	"R12.waitable":          {journal.RuleWaitable},
	"R13.notSatisfied":      {journal.RuleNeedlessWait},
	"R13.notBuffered":       {journal.RuleNeedlessWait},
	"blocked":               {journal.RuleResumable, journal.RuleTerminalIsLast},
	"satisfied.Single":      {journal.RuleResumable},
	"satisfied.Any":         {journal.RuleResumable},
	"satisfied.All":         {journal.RuleResumable},
	"satisfied.AwaitSignal": {journal.RuleResumable},
	"R14.nextId":            {journal.RuleJoinSetNextChild},
	"created":               {journal.RuleSubmitRequiresCreated},
	"notAwaited":            {journal.RuleNoSubmitAfterAwait},
	"notOtherSet":           {journal.RuleSingleOwner},
	"R15.isInvoke":          {journal.RuleSubmitOnce},
	"R15.notSubmitted":      {journal.RuleSubmitOnce, journal.RuleSingleOwner},
	"member":                {journal.RuleAwaitedRequiresMember},
	"completed":             {journal.RuleAwaitedRequiresCompleted},
	"notConsumed":           {journal.RuleNoDoubleConsume},
	"R16.result":            {journal.RuleConsumedResult},
}

// A refusal names a rule that stands for one of the clauses by which the published case explains it.
func TestRefusalsNameThePublishedReason(t *testing.T) {
	lines := json.NewDecoder(bytes.NewReader(open(t, "cases.jsonl.gz")))
	named := map[string]int{}
	for lines.More() {
		var raw json.RawMessage
		var labels struct {
			ID    string
			Ruled struct{ Why []string }
		}
		if err := lines.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &labels); err != nil {
			t.Fatal(err)
		}
		if len(labels.Ruled.Why) == 0 {
			continue
		}
		c, err := parseObject(raw)
		if err != nil {
			t.Fatal(err)
		}
		state, err := load(c)
		if err != nil {
			t.Fatalf("%s: %v", labels.ID, err)
		}
		var v *journal.Violation
		if err := attempt(state, c.raw["append"]); !errors.As(err, &v) {
			t.Fatalf("%s: %v", labels.ID, err)
		}
		expected := slices.ContainsFunc(labels.Ruled.Why, func(clause string) bool {
			return slices.Contains(clauses[clause], v.Rule)
		})
		if !expected {
			t.Errorf("%s: %v; the case says %v", labels.ID, v, labels.Ruled.Why)
		}
		named[v.Rule]++
	}
	t.Logf("%d rules named", len(named))
}
