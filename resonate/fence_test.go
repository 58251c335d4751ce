package resonate

import (
	"fmt"
	"testing"
)

// A fence may create a promise of another origin, as children with ids of their own are, but for the task's holder only.
func TestFenceOfAnotherOrigin(t *testing.T) {
	p := newDebugPort(t)
	p.at(t, 1, 200, "task.create", `{"pid":"p","ttl":60000,"action":{"kind":"promise.create","head":{},"data":{"id":"wf","timeoutAt":90000,"tags":{"resonate:target":"poll://any@g"}}}}`)
	fence := func(version int, kind, data string) string {
		return fmt.Sprintf(`{"id":"wf","version":%d,"action":{"kind":%q,"head":{},"data":%s}}`, version, kind, data)
	}
	create := `{"id":"other","timeoutAt":9000}`
	p.at(t, 1, 409, "task.fence", fence(2, "promise.create", create))
	p.at(t, 1, 404, "promise.get", `{"id":"other"}`)
	out := p.at(t, 1, 200, "task.fence", fence(1, "promise.create", create))
	if at(out, "action", "data", "promise", "id") != "other" || at(out, "action", "head", "corrId") != "c" {
		t.Errorf("fenced %v", out)
	}
	p.at(t, 1, 400, "task.fence", fence(1, "promise.settle", `{"id":"other","state":"resolved"}`))
	p.at(t, 1, 200, "task.release", `{"id":"wf","version":1}`)
	p.at(t, 1, 409, "task.fence", fence(1, "promise.create", `{"id":"third","timeoutAt":9000}`))
	p.at(t, 1, 404, "promise.get", `{"id":"third"}`)
}

// Without debug mode a request does not choose its time.
func TestTimeOfRequests(t *testing.T) {
	sandbox := newSandbox(t, false)
	p := debugPort{newPort(t, func(o *Options) { o.Store = sandbox.Store() }), sandbox}
	if out := p.at(t, 5000, 200, "promise.create", `{"id":"a","timeoutAt":9000}`); at(out, "promise", "createdAt") != 1.0 {
		t.Errorf("created %v", out)
	}
}
