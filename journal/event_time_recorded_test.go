package journal

import "testing"

// Any time is accepted, also one before the last (K2).
func TestTimeRecorded(t *testing.T) {
	b := started(t).accept(TimeRecorded{Promise: kid(0), Time: 5}, TimeRecorded{Promise: kid(1), Time: -1})
	b.refuse(RuleNextChild, TimeRecorded{Promise: kid(0)})
	b.refuse(RuleNextChild, TimeRecorded{Promise: kid(3)})
	unlessRunning(t, TimeRecorded{Promise: kid(1)})
}
