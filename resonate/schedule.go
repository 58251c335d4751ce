package resonate

import (
	"context"
	"strconv"
	"strings"
)

// NewSchedule describes a schedule to create.
type NewSchedule struct {
	ID, Cron, PromiseID string
	// PromiseTimeout is the time from a run to the deadline of its promise, in milliseconds.
	PromiseTimeout int64
	PromiseParam   Value
	PromiseTags    map[string]string
}

// The templates that a schedule's promise id may have.
const (
	templateID        = "{{.id}}"
	templateTimestamp = "{{.timestamp}}"
)

// firedID is the id of the promise of a schedule's run.
func firedID(template, schedule string, at int64) string {
	return strings.NewReplacer(templateID, schedule, templateTimestamp, strconv.FormatInt(at, 10)).Replace(template)
}

// fired is the promise of a schedule's run at a time.
func (s Schedule) fired(at int64) NewPromise {
	id := firedID(s.PromiseID, s.ID, at)
	return NewPromise{
		ID: id, Param: s.PromiseParam, TimeoutAt: min(at+s.PromiseTimeout, maxMS), CreatedAt: at,
		Tags: stamped(s.PromiseTags, map[string]string{tagSchedule: s.ID, tagOrigin: id, tagBranch: id, tagParent: id, tagPrefix: id}),
	}
}

// scheduleData is the data of an answer with one schedule.
type scheduleData struct {
	Schedule Schedule `json:"schedule"`
}

func createSchedule(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	req := NewSchedule{
		ID: data.id("id"), Cron: data.text("cron"), PromiseID: data.id("promiseId"), PromiseTimeout: data.number("promiseTimeout", 0, true),
		PromiseParam: data.value("promiseParam"), PromiseTags: data.texts("promiseTags"),
	}
	if data.err != nil {
		return 0, nil, data.err
	}
	joint := ":"
	if s.ids.dotted {
		joint = "."
	}
	target, ok := req.PromiseTags[tagTarget]
	switch {
	case strings.Contains(req.ID, joint):
		return 0, nil, bad("id %q of a schedule must not contain %q", cut(req.ID), joint)
	case !ok:
		return 0, nil, bad("data.promiseTags needs the tag %s", tagTarget)
	case !validAddress(target):
		return 0, nil, bad("Invalid %s address", tagTarget)
	}
	table, err := parseCron(req.Cron)
	if err != nil {
		return 0, nil, bad("data.cron %q: %v", cut(req.Cron), err)
	}
	return oneSchedule(s.store.CreateSchedule(ctx, req, table.next))
}

func oneSchedule(schedule Schedule, err error) (int, any, error) {
	if err != nil {
		return 0, nil, err
	}
	return statusOK, scheduleData{schedule}, nil
}

func getSchedule(s *Server, ctx context.Context, e envelope) (int, any, error) {
	id, err := idOnly(e)
	if err != nil {
		return 0, nil, err
	}
	return oneSchedule(s.store.Schedule(ctx, id))
}

func deleteSchedule(s *Server, ctx context.Context, e envelope) (int, any, error) {
	id, err := idOnly(e)
	if err != nil {
		return 0, nil, err
	}
	return noData(s.store.DeleteSchedule(ctx, id))
}

func searchSchedules(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	tags := data.texts("tags")
	req, r := search(data, nil, defaultSchedules)
	if r != nil {
		return 0, nil, r
	}
	req.Tags = tags
	found, cursor, err := s.store.SearchSchedules(ctx, req)
	if err != nil {
		return 0, nil, err
	}
	return statusOK, struct {
		Schedules []Schedule `json:"schedules"`
		Cursor    string     `json:"cursor,omitempty"`
	}{append([]Schedule{}, found...), cursor}, nil
}
