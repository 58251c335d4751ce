package machine

import (
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	"perdure/journal"
)

// refinedStory is a story that the model watches.
func refinedStory(t *testing.T, partitions int) *executionRefinement {
	s := &executionRefinement{world: newWorld(t, partitions), model: newExecutionModel(), stats: map[string]int{}}
	s.unaudited, s.model.again = true, s.again
	for _, p := range s.parts {
		s.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(0)}}) // raises its level
	}
	s.applied = s.observe
	return s
}

func (s *executionRefinement) begins(objectID, function string) *view {
	s.model.act = modelAct{start: startCmd(nil, objectID, function, "in").GetStart()}
	s.do(startCmd(s.request(), objectID, function, "in"))
	return s.only("w1", function)
}

func (s *executionRefinement) says(v *view, text string) {
	s.t.Helper()
	s.read(v)
	cmd := s.commitCmd(v, text)
	if err := s.model.committing(s.model.holds(v.token), cmd.GetCommit()); err != nil {
		s.t.Fatalf("%v", err)
	}
	s.do(cmd)
}

func (s *executionRefinement) restarts(objectID string, event int, newChildren bool) {
	s.t.Helper()
	cmd := restartCmd(s.request(), objectID, fromEvent, uint64(event))
	cmd.GetRestart().NewChildren = newChildren
	s.model.act = modelAct{restart: objectID, newChildren: newChildren}
	s.do(cmd)
}

// before is the number of the first event of a kind.
func (s *executionRefinement) before(objectID string, kind journal.Kind) int {
	return strings.Count(strings.Split(" "+s.kinds(objectID), " "+kind.String())[0], " ")
}

// A restart from between a cancel and its answer records the answer that the cancel had, and the child's end, which
// came later and stands before it now.
func TestRestartBetweenCancelAndAnswer(t *testing.T) {
	s := refinedStory(t, 2)
	v := s.begins("a", "f")
	s.says(v, "child g in spread timeout=1000")
	s.says(v, "cancel 0")
	s.now += 2000
	s.tick()
	s.ship()
	if got := s.kinds("a"); got != "ExecutionStarted InvokeScheduled InvokeScheduled InvokeStarted InvokeCompleted InvokeStarted InvokeCompleted" {
		t.Fatal(got)
	}
	s.restarts("a", 4, false)
	got := strings.Join(showEntries(s.journal("a")), "\n")
	if !strings.Contains(got, `InvokeCompleted a:0 #1 !timeout`) || !strings.HasSuffix(got, `InvokeCompleted a:1 #1 "\x01"`) {
		t.Error(got)
	}
	s.rest()
}

// The attempts that a kept journal has of a child's former incarnation count on: the first attempt of the child that
// begins again is the next in the journal.
func TestAttemptsCountOnWhenChildBeginsAgain(t *testing.T) {
	s := refinedStory(t, 1)
	v := s.begins("a", "f")
	s.says(v, "child g in attempts=3 pause=1000")
	s.says(s.only("w2", "g"), "fail bad:no")
	s.restarts("a", s.before("a", journal.KindInvokeRetrying)+1, true)
	child := s.only("w2", "g")
	if got := s.invocation("a", "a:0"); !strings.HasSuffix(got, "InvokeStarted a:0 #2") {
		t.Fatal(got)
	}
	s.says(child, "fail bad:again")
	s.now += 5000
	s.tick()
	s.says(s.only("w2", "g"), "return r")
	if got := s.invocation("a", "a:0"); !strings.HasSuffix(got, `InvokeStarted a:0 #3
InvokeCompleted a:0 #3 "r"`) {
		t.Error(got)
	}
	s.rest()
}

// A journal says that an attempt has begun if its former incarnation's journal said so of whichever child: after a
// restart that began the child again, one that keeps less says of the child that waits that it has begun.
func TestRestartKeepsThatAnAttemptBegan(t *testing.T) {
	s := refinedStory(t, 1)
	v := s.begins("a", "f")
	s.says(v, "child g in")
	s.only("w2", "g")
	begun := s.before("a", journal.KindInvokeStarted)
	s.restarts("a", begun+1, true)
	s.restarts("a", begun, false)
	if got := s.kinds("a"); got != "ExecutionStarted InvokeScheduled InvokeStarted" {
		t.Error(got)
	}
	s.says(s.only("w2", "g"), "return r")
	if got := s.kinds("a"); got != "ExecutionStarted InvokeScheduled InvokeStarted InvokeCompleted" {
		t.Error(got)
	}
	s.rest()
}
