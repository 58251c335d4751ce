package journal

import "testing"

func TestRandomGenerated(t *testing.T) {
	b := started(t).accept(RandomGenerated{Promise: kid(0), Value: []byte{1}}, RandomGenerated{Promise: kid(1)})
	b.refuse(RuleNextChild, RandomGenerated{Promise: kid(1)})
	b.refuse(RuleNextChild, RandomGenerated{Promise: kid(3)})
	b.refuse(RuleNextChild, RandomGenerated{})
	unlessRunning(t, RandomGenerated{Promise: kid(1)})
}
