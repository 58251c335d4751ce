package resonate

import "context"

// The limits of a page.
const (
	defaultPromises  = 100
	defaultSchedules = 10
	maxPage          = 1000
)

// search reads the data of a search. states lists those that it may name, nil if it names none.
func search(data *object, states []string, usual int) (Search, *Refusal) {
	req := Search{Limit: usual, After: data.optionalText("cursor")}
	if states != nil && data.has("state") {
		req.State = data.text("state")
		known := false
		for _, state := range states {
			known = known || state == req.State
		}
		if !known {
			data.fail("state", "a state")
		}
	}
	if data.has("limit") {
		req.Limit = int(data.number("limit", 1, false))
	}
	if data.err == nil && req.Limit > maxPage {
		data.err = bad("data.limit must be an integer of 1 to %d", maxPage)
	}
	return req, data.err
}

var (
	promiseStates = []string{"pending", "resolved", "rejected", "rejected_canceled", "rejected_timedout"}
	taskStates    = []string{"pending", "acquired", "suspended", "halted", "fulfilled"}
)

func searchPromises(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	tags := data.texts("tags")
	req, r := search(data, promiseStates, defaultPromises)
	if r != nil {
		return 0, nil, r
	}
	req.Tags = tags
	found, cursor, err := s.store.SearchPromises(ctx, req)
	if err != nil {
		return 0, nil, err
	}
	return statusOK, struct {
		Promises []Promise `json:"promises"`
		Cursor   string    `json:"cursor,omitempty"`
	}{preload(found), cursor}, nil
}

func searchTasks(s *Server, ctx context.Context, e envelope) (int, any, error) {
	req, r := search(e.fields(), taskStates, defaultPromises)
	if r != nil {
		return 0, nil, r
	}
	found, cursor, err := s.store.SearchTasks(ctx, req)
	if err != nil {
		return 0, nil, err
	}
	return statusOK, struct {
		Tasks  []Task `json:"tasks"`
		Cursor string `json:"cursor,omitempty"`
	}{append([]Task{}, found...), cursor}, nil
}
