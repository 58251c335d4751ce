package resonate

import (
	"net/http"
	"strings"
)

// Caller is the holder of a token, and the ids that it may name.
type Caller struct {
	// Admin may name every id, search, and send requests about no id.
	Admin bool
	// Prefix begins every id that a caller who is no admin may name; "" is all of them. nil: none.
	Prefix *string
}

// authorize checks a request's token, and that its holder may name the ids of the request.
func (s *Server) authorize(req *http.Request, e envelope) *Refusal {
	if s.opts.Authenticate == nil {
		return nil
	}
	token := e.auth
	if token == "" {
		token = bearer(req)
	}
	caller, err := s.opts.Authenticate(req, token)
	switch {
	case err != nil:
		return refuse(http.StatusUnauthorized, "%s", err.Error())
	case caller.Admin:
		return nil
	case caller.Prefix == nil:
		return refuse(http.StatusForbidden, "the token has no claim prefix")
	case *caller.Prefix == "":
		return nil
	}
	named, ok := namedIDs(e)
	if !ok {
		return refuse(http.StatusForbidden, "%s needs a token of the role admin or without a prefix", cut(e.kind))
	}
	for _, id := range named {
		if !strings.HasPrefix(id, *caller.Prefix) {
			return refuse(http.StatusForbidden, "the token is for ids that begin with %q, not for %q", cut(*caller.Prefix), cut(id))
		}
	}
	return nil
}

// namedIDs lists the ids that a token's prefix must begin. An id that is missing or no string is the empty one. ok is
// false for a request about no id: a search or an unknown kind.
func namedIDs(e envelope) (named []string, ok bool) {
	data := e.fields()
	text := func(o *object, name string) string {
		s, _ := textOf(o.fields.get(name)) // the operation refuses what is no string
		return s
	}
	switch e.kind {
	case "promise.get", "promise.create", "promise.settle", "task.get", "task.acquire", "task.release", "task.suspend", "task.fulfill",
		"task.halt", "task.continue", "schedule.get", "schedule.delete":
		return []string{text(data, "id")}, true
	case "promise.register_callback", "promise.register_listener":
		return []string{text(data, "awaited")}, true
	case "task.create":
		return []string{actionID(data)}, true
	case "task.fence":
		return []string{text(data, "id"), actionID(data)}, true
	case "schedule.create":
		return []string{text(data, "promiseId")}, true
	case "task.heartbeat":
		for _, raw := range data.list("tasks") {
			named = append(named, text(newObject("data.tasks", raw), "id"))
		}
		return named, true
	}
	return nil, false
}

// actionID is data.action.data.id.
func actionID(data *object) string {
	inner := newObject("data", newObject("action", data.fields.get("action")).fields.get("data"))
	s, _ := textOf(inner.fields.get("id")) // the operation refuses what is no string
	return s
}
