package journal

import (
	"strings"
	"testing"
)

func TestJoinSetAwaited(t *testing.T) {
	b := started(t, JoinSetCreated{Set: set(0)}, JoinSetCreated{Set: set(1)},
		scheduled(2), scheduled(3), scheduled(4), scheduled(5), submitted(0, 2), submitted(0, 3), submitted(0, 4), submitted(1, 5))
	for n := uint32(2); n <= 5; n++ {
		b.accept(attempted(n, 1))
	}
	b.accept(completed(3, 1, "r3"), completed(4, 1, "r4"), completed(5, 1, "r5"))
	b.refuse(RuleAwaitedRequiresMember, awaited(9, 3, "r3"))
	b.refuse(RuleAwaitedRequiresMember, awaited(2, 3, "r3"))
	b.refuse(RuleAwaitedRequiresMember, awaited(0, 5, "r5"))
	b.refuse(RuleAwaitedRequiresMember, awaited(1, 3, "r3"))
	b.refuse(RuleAwaitedRequiresMember, awaited(0, 9, ""))
	b.refuse(RuleAwaitedRequiresMember, JoinSetAwaited{Set: set(0)})
	b.refuse(RuleAwaitedRequiresCompleted, awaited(0, 2, ""))
	b.refuse(RuleConsumedResult, awaited(0, 4, "r3"))
	b.refuse(RuleConsumedResult, awaited(0, 4, ""))
	// The order among members is free: the marker is the order (K10).
	b.accept(awaited(0, 4, "r4"), awaited(0, 3, "r3"))
	b.refuse(RuleNoDoubleConsume, awaited(0, 4, "r4"))
	b.accept(awaiting(AwaitSingle, 2), completed(2, 1, ""))
	b.refuse(RuleBlocked, awaited(0, 2, ""))
	b.accept(ExecutionResumed{}, awaited(0, 2, ""))
	unlessRunning(t, awaited(0, 1, ""))
}

// A result is compared whole, however little of it is remembered (R16).
func TestJoinSetAwaitedResults(t *testing.T) {
	sum := fingerprintOf([]byte(strings.Repeat("x", 33)))
	for _, result := range []string{"", "\x00", strings.Repeat("x", 31), strings.Repeat("x", 32), strings.Repeat("x", 33), strings.Repeat("x", 1<<20)} {
		b := started(t, JoinSetCreated{Set: set(0)}, scheduled(1), submitted(0, 1), attempted(1, 1), completed(1, 1, result))
		for _, other := range []string{result + "x", result + "\x00", "y" + result, string(sum.bytes[:])} {
			b.refuse(RuleConsumedResult, awaited(0, 1, other))
		}
		b.accept(awaited(0, 1, result))
	}
	// Nor is a long result's hash mistaken for a short result.
	short := started(t, JoinSetCreated{Set: set(0)}, scheduled(1), submitted(0, 1), attempted(1, 1), completed(1, 1, string(sum.bytes[:])))
	short.refuse(RuleConsumedResult, awaited(0, 1, strings.Repeat("x", 33)))
}
