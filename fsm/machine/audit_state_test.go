package machine

import (
	"testing"
)

// auditState is Audit of a partition's state, whose report must agree with the census.
func (w *world) auditState(p *part, c *census) {
	w.t.Helper()
	report, err := Audit(p.state, w.now, p.cfg)
	if err != nil {
		c.problem("audit: %v", err)
		return
	}
	for _, v := range report.Violations {
		c.problem("audit: %v", v)
	}
	events := uint64(0)
	for _, entries := range c.journals {
		events += uint64(len(entries))
	}
	if report.Executions != uint64(len(c.headers)) || report.Promises != uint64(len(c.promises)) || report.Tasks != uint64(len(c.tasks)) ||
		report.Events != events || report.Callbacks != uint64(len(c.callbacks)) {
		c.problem("the audit counts %+v", report)
	}
}

func TestAuditClean(t *testing.T) {
	w, _, _ := fullState(t)
	for _, p := range w.parts {
		r, err := Audit(p.state, w.now, p.cfg)
		if err != nil || len(r.Violations) > 0 {
			t.Errorf("%v, %v", r.Violations, err)
		}
		t.Logf("%+v", r)
	}
}
