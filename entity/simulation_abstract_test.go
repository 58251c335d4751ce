package entity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// How a world is compared with the reference: the invariants of its states, and their abstraction.

// check holds the invariants and the two states against each other.
func (w *world) check() {
	for _, k := range w.ids {
		if s := w.entities[k]; s != nil {
			for _, v := range s.Invariants() {
				w.t.Fatal(v)
			}
		}
	}
	for _, h := range w.holders {
		for _, v := range h.Invariants() {
			w.t.Fatal(v)
		}
		for _, k := range h.Set {
			if h.Phase != Inside {
				break
			}
			if s := w.entities[k]; s == nil || s.Lock != (Lock{Section: h.section()}) {
				w.t.Fatalf("%v is inside %v, and %s is %v", h.Self, h.Set, k, s)
			}
		}
	}
	if got, want := w.abstract(), w.ref.String(); got != want {
		w.t.Fatalf("the implementation maps to\n%s\n\nthe high-level model has\n%s", got, want)
	}
}

// abstract is the state of the high-level model to which the implementation maps: its own state after all
// messages under way have arrived and the operations ahead have run.
func (w *world) abstract() string {
	v := newView()
	relayed := map[ID][]hlRequest{} // signals of operations that are ahead, by sender
	targets := map[ID][]ID{}
	results := map[Party]map[string]string{}
	for d, of := range w.results {
		results[d] = maps.Clone(of)
	}
	queues := map[ID][]hlRequest{}
	for _, k := range w.ids {
		if s := w.entities[k]; s != nil {
			for _, e := range slices.Concat(s.Queue, s.Lane, s.Delayed) {
				if o, ok := e.Message.(operation); ok {
					queues[k] = append(queues[k], w.section0(o))
				}
			}
		}
	}
	for _, c := range w.channels {
		for _, m := range c.messages[c.delivered:] {
			switch m := m.(type) {
			case operation:
				k := ID(m.To().ID)
				queues[k] = append(queues[k], w.section0(m))
			case Reply:
				w.reply(results, m)
			}
		}
	}
	locks := map[ID]Section{}
	for _, h := range w.holders {
		phase := map[Phase]string{Outside: "outside", Acquiring: "asking", Inside: "inside", Ended: "ended"}[h.Phase]
		section := Section{}
		if h.Section != "" {
			section = h.section()
		}
		v.orch(h.Self, phase, section, h.Set)
		for _, k := range h.Set {
			if h.Phase == Inside {
				locks[k] = section
			}
		}
	}
	for _, k := range w.ids {
		exists, value := false, ""
		if s := w.entities[k]; s != nil {
			exists, value = s.Exists, string(s.Value)
		}
		for _, r := range queues[k] {
			switch {
			case r.due == 0 && r.origin.Kind == PartyExecution && w.ahead[aheadKey{k, r.id}] == r.origin:
				var output string
				var failed bool
				var sends []Send
				exists, value, output, failed, sends = app(k, exists, value, r.op, r.arg)
				if r.call {
					w.reply(results, Reply{Caller: r.origin, Request: r.id, Failed: failed, Output: []byte(output)})
				}
				for _, s := range sends {
					relayed[k] = append(relayed[k], hlRequest{origin: k.party(), op: s.Operation, arg: string(s.Input), due: s.DueAt})
					targets[k] = append(targets[k], s.To)
				}
			case strings.HasPrefix(r.id, "section "):
				var section string
				fmt.Sscanf(r.id, "section %s %s", &section, &r.id)
				v.busy(k, r)
				locks[k] = Section{r.origin, section} // kept for the call when the holder has ended
			default:
				v.waiting(k, r)
			}
		}
		v.entity(k, exists, value, locks[k])
	}
	for _, k := range w.ids {
		for i, r := range relayed[k] {
			v.waiting(targets[k][i], r)
		}
	}
	for d, of := range results {
		for id, output := range of {
			v.result(d, id, output)
		}
	}
	return v.String()
}

// section0 marks the calls of sections, which the high-level model keeps outside the queues.
func (w *world) section0(o operation) hlRequest {
	r := reference(o)
	if call, ok := o.(Call); ok && call.Section != "" {
		r.id = "section " + call.Section + " " + r.id
	}
	return r
}
