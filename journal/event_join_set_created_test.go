package journal

import "testing"

func TestJoinSetCreated(t *testing.T) {
	b := started(t, scheduled(0)).accept(JoinSetCreated{Set: set(1)}, JoinSetCreated{Set: set(2)})
	b.refuse(RuleJoinSetNextChild, JoinSetCreated{Set: set(2)})
	b.refuse(RuleJoinSetNextChild, JoinSetCreated{Set: set(4)})
	b.refuse(RuleJoinSetNextChild, JoinSetCreated{Set: "order-7:3"})
	b.refuse(RuleJoinSetNextChild, JoinSetCreated{})
	unlessRunning(t, JoinSetCreated{Set: set(1)})
}
