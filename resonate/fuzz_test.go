package resonate

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"
)

// documented are the statuses that a request may get without a partition's failure.
var documented = []int{200, 300, 400, 403, 404, 409, 422}

// Whatever a request is: the answer is an envelope of the documented form, and a refused request changes nothing.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{`))
	f.Add([]byte(`{"kind":"promise.get","head":null,"data":null}`))
	action := `{"kind":"promise.create","head":{},"data":{"id":"wf:0","timeoutAt":1e3,"tags":{"resonate:scope":"global"}}}`
	for _, kind := range append(slices.Sorted(maps.Keys(operations)), "debug.reset", "x") {
		f.Add([]byte(envelopeOf(kind, `{"id":"wf","version":1,"pid":"p","ttl":5,"state":"resolved","awaited":"wf:0","awaiter":"wf","address":"poll://uni@g/p","timeoutAt":5000,"action":`+
			action+`,"actions":[{"kind":"promise.register_callback","head":{},"data":{"awaited":"wf:0","awaiter":"wf"}}],"tasks":[{"id":"wf","version":1}],"value":{"data":"\u0000"}}`)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		store := newMemory()
		s := New(Options{Store: store})
		for _, data := range []string{
			`{"pid":"p","ttl":50,"action":{"kind":"promise.create","head":{},"data":{"id":"wf","timeoutAt":5000,"tags":{"resonate:target":"poll://any@g"}}}}`,
		} {
			if out := s.handle(httptest.NewRequest("POST", "/", nil), []byte(envelopeOf("task.create", data))); out.Head.Status != 200 {
				t.Fatal(out)
			}
		}
		before := fmt.Sprint(store.s.Clone())
		out := s.handle(httptest.NewRequest("POST", "/", nil), body)
		text, err := out.encode()
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
		if !slices.Contains(documented, answered.Head.Status) {
			t.Errorf("status %d for %q", answered.Head.Status, body)
		}
		good := answered.Head.Status == 200 || answered.Head.Status == 300
		if first := answered.Data[0]; (first == '{') != good || (first == '"') == good {
			t.Errorf("status %d with data %s", answered.Head.Status, answered.Data)
		}
		if after := fmt.Sprint(store.s.Clone()); !good && after != before {
			t.Errorf("refused %q changed the state\n%s\n%s", body, before, after)
		}
	})
}
