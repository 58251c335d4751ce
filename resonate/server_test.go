package resonate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// port is a Server on a memory, called over HTTP.
type port struct {
	*httptest.Server
	store *memory
}

func newPort(t *testing.T, change func(*Options)) port {
	t.Helper()
	store := newMemory()
	opts := Options{Store: store}
	if change != nil {
		change(&opts)
	}
	mux := http.NewServeMux()
	New(opts).Register(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return port{server, store}
}

// post sends a body and returns the answer's parts. It checks what every answer has.
func (p port) post(t testing.TB, body string) (status int, kind, corrID string, data any) {
	t.Helper()
	resp, err := http.Post(p.URL, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Kind string
		Head struct {
			CorrID  string `json:"corrId"`
			Status  int
			Version string
		}
		Data any
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("answer %s: %v", text, err)
	}
	if resp.StatusCode != out.Head.Status || out.Head.Version != Version || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HTTP %d, %s, answer %s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
	}
	if bytes.Contains(text, []byte("null")) && !strings.Contains(body, "null") {
		t.Errorf("answer %s has a null", text)
	}
	_, object := out.Data.(map[string]any)
	if _, list := out.Data.([]any); list && out.Kind == "debug.tick" {
		object = true
	}
	if _, sentence := out.Data.(string); object != (out.Head.Status == 200 || out.Head.Status == 300) || sentence == object {
		t.Errorf("status %d with data %v", out.Head.Status, out.Data)
	}
	return out.Head.Status, out.Kind, out.Head.CorrID, out.Data
}

func envelopeOf(kind, data string) string {
	return fmt.Sprintf(`{"kind":%q,"head":{"corrId":"c1","version":%q},"data":%s}`, kind, Version, data)
}

// call sends a well-formed envelope.
func (p port) call(t testing.TB, kind, data string) (int, any) {
	t.Helper()
	status, answered, corrID, out := p.post(t, envelopeOf(kind, data))
	if answered != kind || corrID != "c1" {
		t.Errorf("%s was answered as %s, %s", kind, answered, corrID)
	}
	return status, out
}

// at follows a path of names in data.
func at(data any, path ...string) any {
	for _, name := range path {
		m, _ := data.(map[string]any)
		data = m[name]
	}
	return data
}

func TestEnvelopeErrors(t *testing.T) {
	p := newPort(t, nil)
	for _, c := range []struct{ body, kind, corrID string }{
		{``, "unknown", "0"},
		{`{`, "unknown", "0"},
		{`[]`, "unknown", "0"},
		{`"x"`, "unknown", "0"},
		{"{\"kind\":\"promise.get\",\"head\":{\"corrId\":\"\xff\"}}", "unknown", "0"},
		{`{"kind":"promise.get","head":{"corrId":"\ud800","version":"2026-04-01"},"data":{"id":"a"}}`, "unknown", "0"},
		{`{"kind":1,"head":{"corrId":"c"},"data":{}}`, "unknown", "c"},
		{`{"kind":"","head":{"corrId":"c","version":"2026-04-01"},"data":{}}`, "unknown", "c"},
		{`{"kind":"promise.get"}`, "promise.get", "0"},
		{`{"kind":"promise.get","head":{"version":"2026-04-01"},"data":{"id":"a"}}`, "promise.get", "0"},
		{`{"kind":"promise.get","head":{"corrId":7,"version":"2026-04-01"},"data":{"id":"a"}}`, "promise.get", "0"},
		{`{"kind":"promise.get","head":{"corrId":"c","version":"2025-01-15"},"data":{"id":"a"}}`, "promise.get", "c"},
		{`{"kind":"promise.get","head":{"corrId":"c"},"data":{"id":"a"}}`, "promise.get", "c"},
		{`{"kind":"promise.get","head":{"corrId":"c","version":"2026-04-01","auth":1},"data":{"id":"a"}}`, "promise.get", "c"},
		{`{"kind":"promise.get","head":{"corrId":"c","version":"2026-04-01"},"data":[]}`, "promise.get", "c"},
		{`{"kind":"promise.get","head":{"corrId":"c","version":"2026-04-01"}}`, "promise.get", "c"},
		{`{"kind":"promise.got","head":{"corrId":"c","version":"2026-04-01"},"data":{}}`, "promise.got", "c"},
		{`{"Kind":"promise.get","head":{"corrId":"c","version":"2026-04-01"},"data":{"id":"a"}}`, "unknown", "c"},
	} {
		status, kind, corrID, _ := p.post(t, c.body)
		if status != 400 || kind != c.kind || corrID != c.corrID {
			t.Errorf("%s: %d, %s, %s, want 400, %s, %s", c.body, status, kind, corrID, c.kind, c.corrID)
		}
	}
}

// Requests that can never succeed are refused before the Store sees them.
func TestBadRequests(t *testing.T) {
	p := newPort(t, nil)
	promise := func(fields string) string { return `{"id":"a","timeoutAt":9000` + fields + `}` }
	action := func(kind, data string) string { return fmt.Sprintf(`{"kind":%q,"head":{},"data":%s}`, kind, data) }
	target := `{"id":"a","timeoutAt":9000,"tags":{"resonate:target":"poll://any@g"}}`
	for _, c := range []struct{ kind, data string }{
		{"promise.get", `{}`},
		{"promise.get", `{"id":""}`},
		{"promise.get", `{"id":null}`},
		{"promise.get", `{"id":7}`},
		{"promise.get", `{"ID":"a"}`},
		{"promise.get", `{"id":"a\u0000b"}`},
		{"promise.create", `{"id":"a"}`},
		{"promise.create", `{"id":"a","timeoutAt":-1}`},
		{"promise.create", `{"id":"a","timeoutAt":-0.5}`},
		{"promise.create", `{"id":"a","timeoutAt":"9000"}`},
		{"promise.create", `{"id":"a","timeoutAt":1e300}`},
		{"promise.create", `{"id":"a","timeoutAt":9007199254740992}`},
		{"promise.create", promise(`,"tags":{"a":1}`)},
		{"promise.create", promise(`,"tags":[]`)},
		{"promise.create", promise(`,"param":"x"`)},
		{"promise.create", promise(`,"param":{"data":7}`)},
		{"promise.create", promise(`,"param":{"headers":{"a":1}}`)},
		{"promise.create", promise(`,"tags":{"resonate:target":""}`)},
		{"promise.create", promise(`,"tags":{"resonate:target":"g"}`)},
		{"promise.create", promise(`,"tags":{"resonate:delay":"5"}`)},
		{"promise.create", promise(`,"tags":{"resonate:target":"poll://any@g","resonate:delay":"9000"}`)},
		{"promise.create", promise(`,"tags":{"resonate:target":"poll://any@g","resonate:delay":"-1"}`)},
		{"promise.create", promise(`,"tags":{"resonate:target":"poll://any@g","resonate:delay":"soon"}`)},
		{"promise.create", promise(`,"tags":{"resonate:origin":"a:b"}`)},
		{"promise.create", promise(`,"tags":{"resonate:origin":"b"}`)},
		{"promise.create", promise(`,"tags":{"resonate:branch":"b"}`)},
		{"promise.create", promise(`,"tags":{"resonate:parent":"a:0"}`)},
		{"promise.create", promise(`,"tags":{"resonate:prefix":"a.b"}`)},
		{"promise.settle", `{"id":"missing","state":"rejected_timedout"}`},
		{"promise.settle", `{"id":"missing","state":"pending"}`},
		{"promise.settle", `{"id":"missing"}`},
		{"promise.register_callback", `{"awaited":"a","awaiter":"a"}`},
		{"promise.register_callback", `{"awaited":"a:0","awaiter":"b"}`},
		{"promise.register_callback", `{"awaited":"a"}`},
		{"promise.register_listener", `{"awaited":"a","address":"nowhere"}`},
		{"promise.register_listener", `{"awaited":"a","address":""}`},
		{"promise.search", `{"state":"settled"}`},
		{"promise.search", `{"limit":0}`},
		{"promise.search", `{"limit":1001}`},
		{"promise.search", `{"cursor":1}`},
		{"task.create", `{"pid":"p","ttl":1,"action":` + action("promise.create", promise("")) + `}`},
		{"task.create", `{"pid":"","ttl":1,"action":` + action("promise.create", target) + `}`},
		{"task.create", `{"pid":"p","ttl":0,"action":` + action("promise.create", target) + `}`},
		{"task.create", `{"pid":"p","ttl":1,"action":` + action("promise.settle", target) + `}`},
		{"task.create", `{"pid":"p","ttl":1}`},
		{"task.create", `{"pid":"p","ttl":1,"action":` + action("promise.create", `{"id":"a","timeoutAt":9000,"tags":{"resonate:target":"poll://any@g","resonate:delay":"5"}}`) + `}`},
		{"task.acquire", `{"id":"a","version":-1,"pid":"p","ttl":1}`},
		{"task.acquire", `{"id":"a","version":0.5,"pid":"p","ttl":1}`},
		{"task.acquire", `{"id":"a","version":0,"pid":"","ttl":1}`},
		{"task.acquire", `{"id":"a","version":0,"pid":"p","ttl":0}`},
		{"task.acquire", `{"id":"a","version":0,"pid":"p"}`},
		{"task.release", `{"id":"a"}`},
		{"task.suspend", `{"id":"a","version":1,"actions":[]}`},
		{"task.suspend", `{"id":"a","version":1}`},
		{"task.suspend", `{"id":"a","version":1,"actions":[` + action("promise.get", `{"awaiter":"a","awaited":"a:0"}`) + `]}`},
		{"task.suspend", `{"id":"a","version":1,"actions":[` + action("promise.register_callback", `{"awaiter":"b","awaited":"a:0"}`) + `]}`},
		{"task.suspend", `{"id":"a","version":1,"actions":[` + action("promise.register_callback", `{"awaiter":"a:1","awaited":"a:0"}`) + `]}`},
		{"task.suspend", `{"id":"a","version":1,"actions":[` + action("promise.register_callback", `{"awaiter":"a","awaited":"a"}`) + `]}`},
		{"task.suspend", `{"id":"a","version":1,"actions":[` + action("promise.register_callback", `{"awaiter":"a","awaited":"b"}`) + `]}`},
		{"task.fulfill", `{"id":"a","version":1,"action":` + action("promise.settle", `{"id":"b","state":"resolved"}`) + `}`},
		{"task.fulfill", `{"id":"a","version":1,"action":` + action("promise.settle", `{"id":"a","state":"pending"}`) + `}`},
		{"task.fulfill", `{"id":"a","version":1,"action":` + action("promise.create", promise("")) + `}`},
		{"task.fence", `{"id":"a","version":1,"action":` + action("promise.create", promise("")) + `}`},
		{"task.fence", `{"id":"a","version":1,"action":` + action("promise.settle", `{"id":"a","state":"resolved"}`) + `}`},
		{"task.fence", `{"id":"a","version":1,"action":` + action("promise.get", `{"id":"b"}`) + `}`},
		{"task.fence", `{"id":"a","version":1,"action":` + action("promise.create", `{"id":"a:0"}`) + `}`},
		{"task.fence", `{"id":"a","version":1,"action":7}`},
		{"task.heartbeat", `{"pid":"p"}`},
		{"task.heartbeat", `{"pid":"p","tasks":[7]}`},
		{"task.heartbeat", `{"pid":"p","tasks":[{"id":"a"}]}`},
		{"task.search", `{"state":"resolved"}`},
		{"schedule.create", `{"id":"s","cron":"* * * * *","promiseId":"{{.id}}","promiseTimeout":1,"promiseTags":{}}`},
		{"schedule.create", `{"id":"s:1","cron":"* * * * *","promiseId":"{{.id}}","promiseTimeout":1,"promiseTags":{"resonate:target":"poll://any@g"}}`},
		{"schedule.create", `{"id":"s","cron":"every day","promiseId":"{{.id}}","promiseTimeout":1,"promiseTags":{"resonate:target":"poll://any@g"}}`},
		{"schedule.create", `{"id":"s","cron":"","promiseId":"{{.id}}","promiseTimeout":1,"promiseTags":{"resonate:target":"poll://any@g"}}`},
		{"schedule.create", `{"id":"s","cron":"* * * * *","promiseId":"","promiseTimeout":1,"promiseTags":{"resonate:target":"poll://any@g"}}`},
		{"schedule.create", `{"id":"s","cron":"* * * * *","promiseId":"{{.id}}","promiseTimeout":-1,"promiseTags":{"resonate:target":"poll://any@g"}}`},
		{"schedule.create", `{"id":"s","cron":"* * * * *","promiseId":"{{.id}}","promiseTimeout":1,"promiseTags":{"resonate:target":"g"}}`},
		{"schedule.get", `{}`},
		{"schedule.search", `{"limit":1001}`},
	} {
		if status, data := p.call(t, c.kind, c.data); status != 400 {
			t.Errorf("%s %s: %d %v, want 400", c.kind, c.data, status, data)
		}
	}
	if p.store.writes != 0 {
		t.Errorf("%d refused requests reached the store", p.store.writes)
	}
}

// The life of an execution as the SDK has it: every answer has the protocol's shape.
func TestExecution(t *testing.T) {
	p := newPort(t, nil)
	expect := func(want int, kind, data string) any {
		t.Helper()
		status, out := p.call(t, kind, data)
		if status != want {
			t.Fatalf("%s %s: %d %v, want %d", kind, data, status, out, want)
		}
		return out
	}
	same := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	action := func(kind, data string) string {
		return fmt.Sprintf(`{"kind":%q,"head":{"corrId":"inner","version":"x"},"data":%s}`, kind, data)
	}
	root := `{"id":"wf","timeoutAt":9000.7,"param":{"headers":{},"data":"e30="},"tags":{"resonate:target":"poll://any@g/p1","resonate:origin":"wf","resonate:branch":"wf","resonate:parent":"wf","resonate:scope":"global"}}`

	expect(404, "promise.get", `{"id":"wf"}`)
	expect(404, "task.acquire", `{"id":"wf","version":0,"pid":"p1","ttl":60}`)
	out := expect(200, "task.create", `{"pid":"p1","ttl":60000,"action":`+action("promise.create", root)+`}`)
	same("version", at(out, "task", "version"), 1)
	same("ttl", at(out, "task", "ttl"), 60000)
	same("timeoutAt", at(out, "promise", "timeoutAt"), 9000)
	same("param", at(out, "promise", "param", "data"), "e30=")
	same("preload", at(out, "preload"), []any{})
	expect(409, "task.create", `{"pid":"p2","ttl":60000,"action":`+action("promise.create", root)+`}`)

	// A step: the outer answer is 200, the inner one has its own corrId.
	step := `{"id":"wf:0","timeoutAt":8000,"param":{},"tags":{"resonate:scope":"local","resonate:branch":"wf","resonate:parent":"wf","resonate:origin":"wf"}}`
	out = expect(200, "task.fence", `{"id":"wf","version":1,"action":`+action("promise.create", step)+`}`)
	same("inner status", at(out, "action", "head", "status"), 200)
	same("inner corrId", at(out, "action", "head", "corrId"), "inner")
	same("inner state", at(out, "action", "data", "promise", "state"), "pending")
	expect(409, "task.fence", `{"id":"wf","version":2,"action":`+action("promise.create", step)+`}`)
	out = expect(200, "task.fence", `{"id":"wf","version":1,"action":`+action("promise.settle", `{"id":"wf:9","state":"resolved"}`)+`}`)
	same("inner status", at(out, "action", "head", "status"), 404)
	expect(200, "task.fence", `{"id":"wf","version":1,"action":`+action("promise.settle", `{"id":"wf:0","state":"resolved","value":{"data":""}}`)+`}`)
	out = expect(200, "promise.get", `{"id":"wf:0"}`)
	same("value", at(out, "promise", "value"), map[string]any{"data": ""})

	// A wait for what is settled continues; one for what is local only is unfit.
	await := func(ids ...string) string {
		var actions []string
		for _, id := range ids {
			actions = append(actions, action("promise.register_callback", fmt.Sprintf(`{"awaiter":"wf","awaited":%q}`, id)))
		}
		return `{"id":"wf","version":1,"actions":[` + strings.Join(actions, ",") + `]}`
	}
	expect(200, "promise.create", `{"id":"wf:1","timeoutAt":8000,"tags":{"resonate:scope":"global"}}`)
	expect(422, "task.suspend", await("wf:missing"))
	expect(200, "promise.create", `{"id":"wf:2","timeoutAt":8000,"tags":{"resonate:timer":"true"}}`)
	expect(200, "promise.settle", `{"id":"wf:2","state":"resolved"}`)
	out = expect(300, "task.suspend", await("wf:1", "wf:2"))
	same("preload", at(out, "preload"), []any{})
	expect(200, "task.suspend", await("wf:1", "wf:1"))
	out = expect(200, "task.get", `{"id":"wf"}`)
	same("state", at(out, "task", "state"), "suspended")
	same("pid", at(out, "task", "pid"), nil)

	// The wait ends, another worker takes over, the first one is refused.
	expect(200, "promise.settle", `{"id":"wf:1","state":"rejected","value":{"headers":{"a":"b"}}}`)
	expect(409, "task.acquire", `{"id":"wf","version":0,"pid":"p2","ttl":60000}`)
	expect(200, "task.acquire", `{"id":"wf","version":1,"pid":"p2","ttl":60000}`)
	expect(409, "task.release", `{"id":"wf","version":1}`)
	expect(200, "task.heartbeat", `{"pid":"p2","tasks":[]}`)
	expect(200, "task.heartbeat", `{"pid":"p2","tasks":[{"id":"wf","version":2},{"id":"other","version":1}]}`)
	expect(200, "task.halt", `{"id":"wf"}`)
	expect(200, "task.continue", `{"id":"wf"}`)
	expect(200, "task.acquire", `{"id":"wf","version":2,"pid":"p2","ttl":60000}`)
	out = expect(200, "task.fulfill", `{"id":"wf","version":3,"action":`+action("promise.settle", `{"id":"wf","state":"resolved","value":{"data":"MQ=="}}`)+`}`)
	same("state", at(out, "promise", "state"), "resolved")
	expect(409, "task.fulfill", `{"id":"wf","version":3,"action":`+action("promise.settle", `{"id":"wf","state":"resolved"}`)+`}`)
	out = expect(200, "promise.register_listener", `{"awaited":"wf","address":"poll://uni@g/p1"}`)
	same("state", at(out, "promise", "state"), "resolved")

	out = expect(200, "promise.search", `{"limit":2,"state":"resolved"}`)
	same("cursor", at(out, "cursor"), "wf:0")
	out = expect(200, "promise.search", `{"limit":2,"state":"resolved","cursor":"wf:0"}`)
	same("promises", len(at(out, "promises").([]any)), 1)
	same("cursor", at(out, "cursor"), nil)
	expect(200, "task.search", `{"state":"fulfilled"}`)

	schedule := `{"id":"s","cron":"* * * * *","promiseId":"{{.id}}-{{.timestamp}}","promiseTimeout":5,"promiseTags":{"resonate:target":"poll://any@g"}}`
	expect(404, "schedule.get", `{"id":"s"}`)
	out = expect(200, "schedule.create", schedule)
	same("nextRunAt", at(out, "schedule", "nextRunAt"), 60000)
	same("lastRunAt", at(out, "schedule", "lastRunAt"), nil)
	expect(200, "schedule.create", schedule)
	out = expect(200, "schedule.search", `{}`)
	same("schedules", len(at(out, "schedules").([]any)), 1)
	expect(200, "schedule.delete", `{"id":"s"}`)
	expect(404, "schedule.delete", `{"id":"s"}`)
}

func TestPorts(t *testing.T) {
	p := newPort(t, nil)
	get := func(method, path string) (int, http.Header) {
		t.Helper()
		req, err := http.NewRequest(method, p.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/health", 200}, {"GET", "/ready", 200}, {"GET", "/", http.StatusTeapot}, {"GET", "/healthz", http.StatusTeapot},
		{"POST", "/promises", 410}, {"GET", "/tasks/x/y", 410}, {"DELETE", "/schedules/x", 410}, {"OPTIONS", "/", http.StatusTeapot},
	} {
		status, header := get(c.method, c.path)
		if status != c.want || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, status, c.want)
		}
	}
}

// A large request is answered, not cut off.
func TestLargeRequest(t *testing.T) {
	p := newPort(t, nil)
	large := envelopeOf("promise.create", `{"id":"a","timeoutAt":9000,"param":{"data":"`+strings.Repeat("x", 5<<20)+`"}}`)
	if status, _, _, data := p.post(t, large); status != 200 {
		t.Errorf("%d bytes: %d %v", len(large), status, data)
	}
	if status, _, _, _ := p.post(t, strings.Repeat(" ", maxRequest+1)); status != 413 {
		t.Errorf("%d bytes: %d, want 413", maxRequest+1, status)
	}
	unsized := io.MultiReader(strings.NewReader(strings.Repeat(" ", maxRequest)), strings.NewReader("{}"))
	resp, err := http.Post(p.URL, "application/json", unsized)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("a request of an unknown size: %d, want 413", resp.StatusCode)
	}
}

func TestDebugRequests(t *testing.T) {
	p := newPort(t, nil)
	if status, _ := p.call(t, "debug.reset", `{}`); status != 403 {
		t.Errorf("debug.reset: %d, want 403", status)
	}
}

func TestOrigins(t *testing.T) {
	p := newPort(t, func(o *Options) { o.Origins = []string{"https://a.example"} })
	for origin, want := range map[string]string{"https://a.example": "https://a.example", "https://b.example": ""} {
		req, err := http.NewRequest("OPTIONS", p.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != 204 || got != want {
			t.Errorf("origin %s: %d, %q, want %q", origin, resp.StatusCode, got, want)
		}
	}
}

// Section 11 of the protocol: who may name which ids.
func TestAuthorization(t *testing.T) {
	text := func(s string) *string { return &s }
	callers := map[string]Caller{"admin": {Admin: true}, "none": {}, "all": {Prefix: text("")}, "a": {Prefix: text("a")}}
	p := newPort(t, func(o *Options) {
		o.Authenticate = func(_ *http.Request, token string) (Caller, error) {
			c, ok := callers[token]
			if !ok {
				return c, fmt.Errorf("the token is not known here")
			}
			return c, nil
		}
	})
	action := `{"kind":"promise.create","head":{},"data":{"id":%q,"timeoutAt":9000,"tags":{"resonate:target":"poll://any@g"}}}`
	for _, c := range []struct {
		token, kind, data string
		want              int
	}{
		{"", "promise.get", `{"id":"a1"}`, 401},
		{"wrong", "promise.get", `{"id":"a1"}`, 401},
		{"none", "promise.get", `{"id":"a1"}`, 403},
		{"admin", "promise.get", `{"id":"b1"}`, 404},
		{"all", "promise.get", `{"id":"b1"}`, 404},
		{"a", "promise.get", `{"id":"a1"}`, 404},
		{"a", "promise.get", `{"id":"b1"}`, 403},
		{"a", "promise.get", `{}`, 403},
		{"a", "promise.register_listener", `{"awaited":"b1","address":"poll://uni@g/p"}`, 403},
		{"a", "promise.register_callback", `{"awaited":"b1","awaiter":"a1"}`, 403},
		{"a", "task.create", `{"pid":"p","ttl":1,"action":` + fmt.Sprintf(action, "b1") + `}`, 403},
		{"a", "task.create", `{"pid":"p","ttl":1,"action":` + fmt.Sprintf(action, "a1") + `}`, 200},
		{"a", "task.fence", `{"id":"a1","version":1,"action":` + fmt.Sprintf(action, "b1") + `}`, 403},
		{"a", "task.heartbeat", `{"pid":"p","tasks":[{"id":"a1","version":1},{"id":"b1","version":1}]}`, 403},
		{"a", "task.heartbeat", `{"pid":"p","tasks":[{"id":"a1","version":1}]}`, 200},
		{"a", "promise.search", `{}`, 403},
		{"admin", "promise.search", `{}`, 200},
		{"a", "promise.got", `{}`, 403},
	} {
		body := fmt.Sprintf(`{"kind":%q,"head":{"corrId":"c","version":%q,"auth":%q},"data":%s}`, c.kind, Version, c.token, c.data)
		if status, _, _, data := p.post(t, body); status != c.want {
			t.Errorf("%q, %s %s: %d %v, want %d", c.token, c.kind, c.data, status, data, c.want)
		}
	}
	// Without one in the envelope, the header's token counts.
	req, err := http.NewRequest("POST", p.URL+"/", strings.NewReader(envelopeOf("promise.get", `{"id":"a1"}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer admin")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("token in the header: %d, want 200", resp.StatusCode)
	}
}
