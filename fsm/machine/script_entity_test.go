package machine

import (
	"fmt"
	"strings"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
)

// The lines of scripts about entities; accounts are as with commitEntityCmd:
//
//	> tell ENTITY OPERATION INPUT [delay=MS] [request=R]   > ask ENTITY OPERATION INPUT [request=R]
//	> answer ENTITY R            the result of a call
//	> entity ID
//	> work WORKER [lease=MS] [partition=N]                 takes the task of an entity
//	> run WORKER ENTITY N        commits the first N operations of the batch   > rerun WORKER ENTITY repeats it
//	> give WORKER ENTITY [PROBLEM]                         gives the task back
func (p *player) playEntity(a words) (out []string, known bool) {
	p.t.Helper()
	request := p.request()
	if r, ok := a.options["request"]; ok {
		request = []byte(r)
	}
	var cmd *commandv1.Command
	key := viewKey{a.at(1), a.at(2)}
	switch a.at(0) {
	case "tell":
		cmd = signalEntityCmd(request, a.at(1), a.at(2), a.from(3), a.option("delay", 0))
	case "ask":
		cmd = callEntityCmd(request, a.at(1), a.at(2), a.from(3))
	case "answer":
		if got := p.answer(a.at(1), []byte(a.at(2))); got != "" {
			return []string{got}, true
		}
		return []string{"none yet"}, true
	case "entity":
		return []string{showEntity(p.entity(a.at(1)))}, true
	case "work":
		h := p.takeEntity(p.parts[int(a.option("partition", 0))], a.at(1), a.option("lease", 10_000))
		if h == nil {
			return []string{"nothing to run"}, true
		}
		if p.held == nil {
			p.held, p.ran = map[viewKey]*holding{}, map[viewKey]*commandv1.Command{}
		}
		p.held[viewKey{a.at(1), h.batch.Id}] = h
		return showBatch(h.batch), true
	case "run":
		cmd = p.commitEntityCmd(p.held[key], a.num(3))
		p.ran[key] = cmd
	case "rerun":
		cmd = p.ran[key]
	case "give":
		cmd = releaseCmd(p.held[key].token, a.from(3), 0)
	default:
		return nil, false
	}
	res := p.apply(p.at(cmd.Id), &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
	out = showReply(res.Replies[0])
	if c := res.Replies[0].GetCommitEntity(); c != nil {
		p.held[key].batch = c.Next
		if c.Next == nil {
			out = append(out, "done")
		} else {
			out = append(out, showBatch(c.Next)...)
		}
	}
	return append(out, showEffects(res.Effects)...), true
}

func showBatch(b *perdurev1.EntityBatch) []string {
	out := fmt.Sprintf("%s version %d", b.Id, b.Version)
	if b.Exists {
		out += fmt.Sprintf(" value %q", b.Value)
	}
	if b.Lane {
		out += ", scheduled"
	}
	lines := []string{out}
	for _, o := range b.Operations {
		how := "signals"
		if o.Call {
			how = "calls"
		}
		lines = append(lines, fmt.Sprintf("  %s %s %s %q", o.Sender, how, o.Name, o.Input))
	}
	return lines
}

func showEntity(e *perdurev1.Entity) string {
	if e.Incarnation == 0 {
		return e.Id + " is new"
	}
	out := fmt.Sprintf("%s@%d version %d", e.Id, e.Incarnation, e.Version)
	if e.Exists {
		out += fmt.Sprintf(" value %q", e.Value)
	}
	if e.Queued+e.Scheduled > 0 {
		out += fmt.Sprintf(", %d wait, %d are scheduled", e.Queued, e.Scheduled)
	}
	if e.Lock != nil {
		out += ", locked by " + e.Lock.Holder
	}
	if e.Failures > 0 {
		out += fmt.Sprintf(", %d failures", e.Failures)
	}
	return out
}

// showEntityMessage shows a message from or to an entity.
func showEntityMessage(w *commandv1.EntityMessage) string {
	m, err := entity.DecodeMessage(w.GetMessage())
	if err != nil {
		return err.Error()
	}
	switch m := m.(type) {
	case entity.Call:
		return strings.TrimSpace(fmt.Sprintf("calls %s %q %s", m.Operation, m.Input, m.Section))
	case entity.Signal:
		return fmt.Sprintf("signals %s %q", m.Operation, m.Input)
	case entity.LockRequest:
		return fmt.Sprintf("locks %v, number %d", m.Set, m.Position)
	case entity.LockGranted:
		return fmt.Sprintf("all locks of %v", m.Set)
	case entity.Withdraw:
		return fmt.Sprintf("withdraws the lock request of %v, number %d", m.Set, m.Position)
	}
	return m.Kind().String()
}
