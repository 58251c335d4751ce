package resonate

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"perdure/fsm/state/keys"
)

// documented are the statuses that a request may get without a partition's failure and without tokens. 403 is that of
// debug requests.
var documented = []int{200, 300, 400, 403, 404, 409, 413, 422, 429}

// stage brings a sandbox into a state in which every operation has something to do: wf is held at version 1, sl sleeps until
// sl:0, hl is halted, pe is pending, done is settled, and s is a schedule.
func stage(t testing.TB, s *Server, sandbox *Sandbox) {
	t.Helper()
	if err := sandbox.Reset(); err != nil {
		t.Fatal(err)
	}
	action := func(kind, data string) string { return fmt.Sprintf(`{"kind":%q,"head":{},"data":%s}`, kind, data) }
	task := func(id string) string {
		return `{"pid":"p","ttl":50,"action":` + action("promise.create", fmt.Sprintf(`{"id":%q,"timeoutAt":5000,"tags":{"resonate:target":"poll://any@g"}}`, id)) + `}`
	}
	for _, r := range []struct{ kind, data string }{
		{"task.create", task("wf")},
		{"promise.create", `{"id":"wf:0","timeoutAt":4000,"tags":{"resonate:scope":"global"}}`},
		{"promise.register_listener", `{"awaited":"wf:0","address":"poll://uni@g/p"}`},
		{"task.create", task("sl")},
		{"promise.create", `{"id":"sl:0","timeoutAt":4000,"tags":{"resonate:timer":"true"}}`},
		{"task.suspend", `{"id":"sl","version":1,"actions":[` + action("promise.register_callback", `{"awaited":"sl:0","awaiter":"sl"}`) + `]}`},
		{"task.create", task("hl")},
		{"task.halt", `{"id":"hl"}`},
		{"promise.create", `{"id":"pe","timeoutAt":5000,"tags":{"resonate:target":"http://h/x"}}`},
		{"promise.create", `{"id":"done","timeoutAt":5000}`},
		{"promise.settle", `{"id":"done","state":"rejected","value":{"data":"x","headers":{"a":"b"}}}`},
		{"schedule.create", `{"id":"s","cron":"* * * * *","promiseId":"{{.id}}","promiseTimeout":5,"promiseTags":{"resonate:target":"poll://any@g"}}`},
	} {
		if out := s.handle(httptest.NewRequest("POST", "/", nil), []byte(envelopeOf(r.kind, r.data))); out.Head.Status != 200 {
			t.Fatal(r, out)
		}
	}
}

// stored is all that a sandbox stores but its clock and the answers of retried requests.
func stored(t testing.TB, s *Sandbox) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	if err := s.term.state.Scan(nil, nil, func(key, value []byte) bool {
		if f := keys.Family(key[0]); f != keys.Meta && f != keys.Reply && f != keys.ReplyAge {
			fmt.Fprintf(&b, "%x=%x\n", key, value)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// answers sends a body and checks the form of the answer.
func answers(t testing.TB, s *Server, body []byte) (status int) {
	t.Helper()
	text, err := s.handle(httptest.NewRequest("POST", "/", nil), body).encode()
	if err != nil {
		t.Fatal(err)
	}
	var answered struct {
		Kind *string
		Head struct {
			CorrID  *string `json:"corrId"`
			Status  int
			Version string
		}
		Data json.RawMessage
	}
	if err := json.Unmarshal(text, &answered); err != nil || answered.Kind == nil || answered.Head.CorrID == nil || answered.Head.Version != Version {
		t.Fatalf("answer %s: %v", text, err)
	}
	status = answered.Head.Status
	if !slices.Contains(documented, status) {
		t.Fatalf("status %d for %q: %s", status, body, answered.Data)
	}
	want := byte('"')
	switch good := status == 200 || status == 300; {
	case good && *answered.Kind == "debug.tick":
		want = '['
	case good:
		want = '{'
	}
	if answered.Data[0] != want {
		t.Fatalf("status %d for %q with data %s", status, body, answered.Data)
	}
	return status
}

// requests has one request of each kind that succeeds on the stage, and their neighbours.
func requests() (out []string) {
	action := func(kind, data string) string {
		return fmt.Sprintf(`{"kind":%q,"head":{"corrId":"inner"},"data":%s}`, kind, data)
	}
	create := `{"id":%q,"timeoutAt":4000.5,"param":{"data":"e30=","headers":{"a":"b"}},"tags":{"resonate:target":"poll://any@g/p","resonate:delay":"7","resonate:timer":"true","resonate:origin":%q,"resonate:branch":%q,"resonate:parent":%q,"resonate:prefix":"x","resonate:external":"true"}}`
	plain := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"timeoutAt":4000,"tags":{"resonate:target":"poll://any@g"}}`, id)
	}
	settle := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"state":"resolved","value":{"data":"e30=","headers":{"a":"b"}}}`, id)
	}
	for _, r := range []struct{ kind, data string }{
		{"promise.get", `{"id":"wf"}`},
		{"promise.create", fmt.Sprintf(create, "wf:1", "wf", "wf", "wf")},
		{"promise.settle", settle("wf:0")},
		{"promise.settle", settle("sl:0")},
		{"promise.settle", settle("done")},
		{"promise.register_callback", `{"awaited":"wf:0","awaiter":"wf"}`},
		{"promise.register_listener", `{"awaited":"sl","address":"poll://uni@g/c"}`},
		{"promise.search", `{"state":"pending","tags":{"resonate:timer":"true"},"limit":3,"cursor":"a"}`},
		{"task.get", `{"id":"wf"}`},
		{"task.create", `{"pid":"p","ttl":5,"action":` + action("promise.create", plain("new")) + `}`},
		{"task.create", `{"pid":"p","ttl":5,"action":` + action("promise.create", plain("pe")) + `}`},
		{"task.acquire", `{"id":"pe","version":0,"pid":"p","ttl":5}`},
		{"task.release", `{"id":"wf","version":1}`},
		{"task.suspend", `{"id":"wf","version":1,"actions":[` + action("promise.register_callback", `{"awaited":"wf:0","awaiter":"wf"}`) + `]}`},
		{"task.fulfill", `{"id":"wf","version":1,"action":` + action("promise.settle", settle("wf")) + `}`},
		{"task.fence", `{"id":"wf","version":1,"action":` + action("promise.create", plain("wf:2")) + `}`},
		{"task.fence", `{"id":"wf","version":1,"action":` + action("promise.create", plain("other")) + `}`},
		{"task.fence", `{"id":"wf","version":1,"action":` + action("promise.settle", settle("wf:0")) + `}`},
		{"task.heartbeat", `{"pid":"p","tasks":[{"id":"wf","version":1},{"id":"pe","version":0}]}`},
		{"task.halt", `{"id":"wf"}`},
		{"task.continue", `{"id":"hl"}`},
		{"task.search", `{"state":"acquired","limit":2,"cursor":"a"}`},
		{"schedule.create", `{"id":"n","cron":"*/5 * * * MON","promiseId":"{{.id}}-{{.timestamp}}","promiseTimeout":5,"promiseParam":{"data":"e30="},"promiseTags":{"resonate:target":"poll://any@g"}}`},
		{"schedule.get", `{"id":"s"}`},
		{"schedule.delete", `{"id":"s"}`},
		{"schedule.search", `{"tags":{"resonate:target":"poll://any@g"},"limit":3,"cursor":"a"}`},
		{"debug.start", `{}`},
		{"debug.tick", `{"time":4500}`},
		{"debug.snap", `{}`},
		{"debug.reset", `{}`},
		{"debug.stop", `{}`},
	} {
		out = append(out, fmt.Sprintf(`{"kind":%q,"head":{"corrId":"c1","version":%q,"auth":"t","resonate:origin":"wf","resonate:debug_time":7},"data":%s}`, r.kind, Version, r.data))
	}
	return out
}

// spoil calls with, for each value within a request, the request with something else in its place.
func spoil(request string, with func(spoilt string)) {
	var whole any
	if err := json.Unmarshal([]byte(request), &whole); err != nil {
		panic(err)
	}
	instead := []string{"null", "true", "-1", "0", "0.5", "1e400", "9007199254740993", "123456789012345678901234567890", `""`, `"a\u0000b"`, `"\ud800"`, `"a:b:c"`, `":"`,
		"[]", "[null]", "{}", `{"":""}`, `"` + "\xff" + `"`, `"` + strings.Repeat("x", 2000) + `"`, strings.Repeat("[", 100) + strings.Repeat("]", 100), strings.Repeat("[", 20_000), ""}
	const mark = `"here"`
	var walk func(value any, set func(any))
	walk = func(value any, set func(any)) {
		set(json.RawMessage(mark))
		text, err := json.Marshal(whole)
		if err != nil {
			panic(err)
		}
		for _, other := range instead {
			with(strings.Replace(string(text), mark, other, 1))
		}
		set(value)
		switch v := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				member := v[name]
				walk(member, func(x any) { v[name] = x })
				delete(v, name)
				if text, err = json.Marshal(whole); err == nil {
					with(string(text))
				}
				v[name+"x"] = member // a name that there is not
				if text, err = json.Marshal(whole); err == nil {
					with(string(text))
				}
				delete(v, name+"x")
				v[name] = member
				field := fmt.Sprintf("%q:", name)
				with(strings.Replace(request, field, field+`"twice",`+field, 1))
				with(strings.Replace(request, field, field+`null,`+field, 1))
			}
		case []any:
			for i, member := range v {
				walk(member, func(x any) { v[i] = x })
			}
		}
	}
	walk(whole, func(x any) { whole = x })
	for i := 0; i < len(request); i += 23 {
		with(request[:i])
		with(request[:i] + "\xfe" + request[i:])
	}
}

// Whatever is wrong with a request: the answer is an envelope of the documented form, and a refused request changes nothing.
func TestSpoiltRequests(t *testing.T) {
	sandbox := newSandbox(t, false)
	s := New(Options{Store: sandbox.Store()})
	stage(t, s, sandbox)
	before := stored(t, sandbox)
	refused := 0
	for _, request := range requests() {
		if status := answers(t, s, []byte(request)); status != 200 && status != 300 && !strings.Contains(request, "debug.") && !strings.Contains(request, "resonate:delay") {
			t.Errorf("%d for %s", status, request)
		}
		stage(t, s, sandbox)
		spoil(request, func(spoilt string) {
			status := answers(t, s, []byte(spoilt))
			if after := stored(t, sandbox); after != before {
				if status != 200 && status != 300 {
					t.Fatalf("refused %q changed the state\n%s\n%s", spoilt, before, after)
				}
				stage(t, s, sandbox)
			}
			if status == 400 {
				refused++
			}
		})
	}
	t.Logf("%d requests refused as malformed", refused)
}

// Whatever a request is: the answer is an envelope of the documented form, and a refused request changes nothing.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{`))
	f.Add([]byte(`{"kind":"promise.get","head":null,"data":null}`))
	f.Add([]byte(strings.Repeat(`{"kind":`, 10_001)))
	for _, request := range requests() {
		f.Add([]byte(request))
		f.Add([]byte(strings.ReplaceAll(request, "4000", "1e309")))
		f.Add([]byte(strings.ReplaceAll(request, `"id":`, `"id":"a","id":`)))
		f.Add([]byte(strings.ReplaceAll(request, `"wf"`, "\"w\xfff\"")))
		f.Add([]byte(strings.ReplaceAll(request, `"wf"`, `"\ud800"`)))
		f.Add([]byte(strings.ReplaceAll(request, `"wf"`, strings.Repeat("[", 200)+strings.Repeat("]", 200))))
	}
	sandbox := newSandbox(f, false)
	s := New(Options{Store: sandbox.Store()})
	stage(f, s, sandbox)
	before := stored(f, sandbox)
	inputs := 0
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxRequest {
			t.Skip("no port takes it")
		}
		status := answers(t, s, body)
		after := stored(t, sandbox)
		if after != before && status != 200 && status != 300 {
			t.Errorf("refused %q changed the state\n%s\n%s", body, before, after)
		}
		// The stage's clock stands still, so the sandbox keeps the answer of every input.
		if inputs++; after != before || inputs%200 == 0 {
			stage(t, s, sandbox)
		}
	})
}

// Whatever requests a server in debug mode gets, at whatever times: each answer has the documented form, and the state keeps
// the protocol's invariants, which the sandbox checks.
func FuzzDebug(f *testing.F) {
	all := requests()
	for i := range all {
		f.Add([]byte(strings.Join(all[i:min(i+5, len(all))], "\n")))
		f.Add([]byte(all[i] + "\n" + strings.ReplaceAll(all[i], `debug_time":7`, `debug_time":9007199254740991`) + "\n" +
			fmt.Sprintf(`{"kind":"debug.tick","head":{"corrId":"","version":%q},"data":{"time":9007199254740991}}`, Version)))
	}
	sandbox := newSandbox(f, false)
	s := New(Options{Store: sandbox.Store(), Sandbox: sandbox})
	f.Fuzz(func(t *testing.T, bodies []byte) {
		sandbox.Stop(true)
		stage(t, s, sandbox)
		for i, body := range strings.Split(string(bodies), "\n") {
			if i == 8 {
				break
			}
			answers(t, s, []byte(body))
		}
	})
}
