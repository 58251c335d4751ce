package client

import (
	"context"
	"errors"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// TestRun: one request starts and waits. When the cluster answers without a result, the client asks for that
// of the same incarnation until it is there.
func TestRun(t *testing.T) {
	completed, failed := perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
	value := &perdurev1.ResultResponse{Done: true, Status: completed, Outcome: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte("v")}}}
	failure := &perdurev1.ResultResponse{Done: true, Status: failed, Outcome: &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{
		Failure: &perdurev1.Failure{Type: "t", Message: "m"}}}}
	for what, c := range map[string]struct {
		at    *perdurev1.ResultResponse   // with the answer to the start
		later []*perdurev1.ResultResponse // to questions for the result
		want  string
		fails bool
	}{
		"at once":         {at: value, want: "v"},
		"later":           {later: []*perdurev1.ResultResponse{{}, {}, value}, want: "v"},
		"a failure":       {at: failure, fails: true},
		"a later failure": {at: &perdurev1.ResultResponse{}, later: []*perdurev1.ResultResponse{failure}, fails: true},
	} {
		t.Run(what, func(t *testing.T) {
			cl := newCluster(t, "a")
			starts, asked := 0, 0
			cl.answer = func(_ context.Context, _ int, req any) (any, error) {
				switch r := req.(type) {
				case *perdurev1.StartRequest:
					starts++
					if r.WaitMs <= 0 || r.WaitMs > pollWait.Milliseconds() {
						t.Errorf("it waits for %d ms", r.WaitMs)
					}
					return &perdurev1.StartResponse{Id: "x", Incarnation: 3, Created: true, Result: c.at}, nil
				case *perdurev1.ResultRequest:
					if asked++; r.Incarnation != 3 {
						t.Errorf("it asks for the result of incarnation %d", r.Incarnation)
					}
					return c.later[asked-1], nil
				}
				return nil, errors.New("nothing else is asked")
			}
			got, err := cl.client(Options{}).Run(t.Context(), StartOptions{ID: "x", Function: "f"})
			var ended *ExecutionError
			if string(got) != c.want || errors.As(err, &ended) != c.fails || !c.fails && err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if starts != 1 || asked != len(c.later) {
				t.Errorf("%d starts, %d questions", starts, asked)
			}
		})
	}
}
