package resonate

import (
	"fmt"
	"strings"
	"testing"

	"perdure/id"
)

// In the compatibility mode each id has a stored one of its own, whose origin is what the client takes for it.
func TestDottedIDs(t *testing.T) {
	for client, stored := range map[string]string{"wf": "wf", "wf.0.1": "wf:.0.1", "wf:0.1": "wf:0.1", "wf:.0": "wf::.0", "wf::.0": "wf:::.0", ".": ":.", "": "", "wf:": "wf:", "wf::0": "wf::0"} {
		if got := (ids{dotted: true}).inward(client); got != stored {
			t.Errorf("%q is stored as %q, want %q", client, got, stored)
		}
		if got := (ids{}).inward(client); got != client {
			t.Errorf("without the mode %q is stored as %q", client, got)
		}
		if got := (ids{}).outward(stored); got != stored {
			t.Errorf("without the mode %q is shown as %q", stored, got)
		}
	}
	// All ids of so few characters.
	c, clients := ids{dotted: true}, map[string]string{}
	all := []string{""}
	for len(all[0]) < 6 {
		text := all[0]
		all = append(all[1:], text+"a", text+":", text+".")
		stored := c.inward(text)
		if got := c.outward(stored); got != text {
			t.Fatalf("%q is stored as %q and shown as %q", text, stored, got)
		}
		if other, taken := clients[stored]; taken {
			t.Fatalf("%q and %q are both stored as %q", text, other, stored)
		}
		clients[stored] = text
		if id.Origin(stored) != c.origin(text) {
			t.Fatalf("%q has the origin %q, stored as %q", text, c.origin(text), stored)
		}
	}
}

// An execution of an SDK that joins ids by dots: the compatibility mode serves it, without the mode it is refused.
func TestDottedExecution(t *testing.T) {
	sandbox := newSandbox(t, true)
	dotted := newPort(t, func(o *Options) { o.Store, o.Sandbox, o.DottedIDs = sandbox.Store(), sandbox, true })
	root := `{"pid":"p","ttl":60000,"action":{"kind":"promise.create","head":{},"data":{"id":"wf","timeoutAt":90000,"tags":{"resonate:target":"poll://any@g","resonate:branch":"wf"}}}}`
	step := `{"id":"wf","version":1,"action":{"kind":"promise.create","head":{},"data":{"id":"wf.0","timeoutAt":80000,"tags":{"resonate:scope":"global","resonate:branch":"wf","resonate:parent":"wf","resonate:origin":"wf","resonate:prefix":"a.b"}}}}`
	wait := `{"id":"wf","version":1,"actions":[{"kind":"promise.register_callback","head":{},"data":{"awaited":"wf.0","awaiter":"wf"}}]}`
	for _, c := range []struct{ kind, data, shows string }{
		{"task.create", root, "id:wf"},
		{"task.fence", step, "id:wf.0"},
		{"task.suspend", wait, ""},
		{"promise.register_listener", `{"awaited":"wf.0","address":"poll://uni@g/p"}`, "id:wf.0"},
		{"promise.get", `{"id":"wf.0"}`, "id:wf.0"},
		{"promise.search", `{"limit":1}`, "cursor:wf "},
		{"promise.search", `{"cursor":"wf"}`, "id:wf.0"},
		{"promise.settle", `{"id":"wf.0","state":"resolved"}`, "id:wf.0"},
		{"task.acquire", `{"id":"wf","version":1,"pid":"q","ttl":60000}`, "preload:[map[createdAt:1 id:wf.0"},
		{"task.heartbeat", `{"pid":"q","tasks":[{"id":"wf","version":2},{"id":"wf.9","version":2}]}`, ""},
		{"debug.snap", `{}`, "id:wf.0"},
		{"schedule.create", `{"id":"s:1","cron":"* * * * *","promiseId":"x","promiseTimeout":1,"promiseTags":{"resonate:target":"poll://any@g"}}`, "400"},
		{"schedule.create", `{"id":"s.1","cron":"* * * * *","promiseId":"x","promiseTimeout":1,"promiseTags":{"resonate:target":"poll://any@g"}}`, "400"},
	} {
		status, out := dotted.call(t, c.kind, c.data)
		if text := fmt.Sprint(status, out); c.shows == "400" && status != 400 || c.shows != "400" && (status != 200 || !strings.Contains(text, c.shows)) {
			t.Errorf("%s %s: %s, want %q", c.kind, c.data, text, c.shows)
		}
	}
	strict := newPort(t, nil)
	strict.call(t, "task.create", root)
	if status, out := strict.call(t, "task.fence", step); status != 400 {
		t.Errorf("without the mode: %d %v", status, out)
	}
}
