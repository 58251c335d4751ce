package journal

import "testing"

func TestExecutionFailed(t *testing.T) {
	started(t, scheduled(0)).accept(ExecutionFailed{Error: []byte("e")})
	refusedIn(t, ExecutionFailed{}, returningRules)
}
