package resonate

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// tokens are a caller for each token.
func tokens(callers map[string]Caller) func(*http.Request, string) (Caller, error) {
	return func(_ *http.Request, token string) (Caller, error) {
		c, ok := callers[token]
		if !ok {
			return c, errors.New("the token is not known here")
		}
		return c, nil
	}
}

// A token with a prefix names only ids that begin with it, wherever the request has them.
func TestTokensNameIDs(t *testing.T) {
	a := "a"
	p := newPort(t, func(o *Options) { o.Authenticate = tokens(map[string]Caller{"a": {Prefix: &a}}) })
	target := `"promiseTimeout":1,"promiseTags":{"resonate:target":"poll://any@g"}`
	for _, c := range []struct {
		kind, data string
		want       int
	}{
		{"promise.get", `{"id":"ba"}`, 403},
		{"promise.get", `{"id":"a"}`, 404},
		{"promise.get", `{"id":"a1","id":"b1"}`, 403},
		{"promise.get", `{"id":"b1","id":"a1"}`, 404},
		{"promise.get", `{"id":7}`, 403},
		{"promise.settle", `{"id":"b","state":"resolved"}`, 403},
		{"task.get", `{"id":"b"}`, 403},
		{"task.acquire", `{"id":"b","version":0,"pid":"p","ttl":1}`, 403},
		{"task.suspend", `{"id":"b","version":0,"actions":[]}`, 403},
		{"task.halt", `{"id":"b"}`, 403},
		{"schedule.get", `{"id":"b"}`, 403},
		{"schedule.delete", `{"id":"b"}`, 403},
		{"schedule.create", `{"id":"a","cron":"* * * * *","promiseId":"b",` + target + `}`, 403},
		{"schedule.create", `{"id":"b","cron":"* * * * *","promiseId":"a{{.id}}",` + target + `}`, 200},
		{"schedule.search", `{}`, 403},
		{"task.search", `{}`, 403},
		{"task.heartbeat", `{"pid":"p","tasks":[{"id":"b1","version":1},{"id":"a1","version":1}]}`, 403},
		{"task.heartbeat", `{"pid":"p","tasks":[{"id":"a1","version":1},{"id":"a2","version":1}]}`, 200},
	} {
		body := fmt.Sprintf(`{"kind":%q,"head":{"corrId":"c","version":%q,"auth":"a"},"data":%s}`, c.kind, Version, c.data)
		if status, _, _, out := p.post(t, body); status != c.want {
			t.Errorf("%s %s: %d %v, want %d", c.kind, c.data, status, out, c.want)
		}
	}
	// The envelope's token counts, where there are two.
	for header, want := range map[string]int{"Bearer wrong": 404, "bearer a": 404, "": 404} {
		req, err := http.NewRequest("POST", p.URL, strings.NewReader(fmt.Sprintf(`{"kind":"promise.get","head":{"corrId":"c","version":%q,"auth":"a"},"data":{"id":"a"}}`, Version)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("header %q: %d, want %d", header, resp.StatusCode, want)
		}
	}
}

// A stream of messages needs a token.
func TestStreamNeedsToken(t *testing.T) {
	a := "a"
	p := newPort(t, func(o *Options) {
		o.Authenticate = tokens(map[string]Caller{"a": {Prefix: &a}})
		o.Messages = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	})
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "Basic a": 401, "Bearer a": 200} {
		req, err := http.NewRequest("GET", p.URL+"/poll/g/p", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("header %q: %d, want %d", header, resp.StatusCode, want)
		}
	}
}
