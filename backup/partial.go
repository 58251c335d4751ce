package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// abandonedAfter is how long a partial must be unchanged before another create continues it whose process may run. A
	// create renews its own each renewEvery.
	abandonedAfter = 5 * time.Minute
	renewEvery     = 30 * time.Second
	// collectPrefix is that of the marks of collections. A collection takes collectWithin at most; its mark counts for
	// collectCounts, and differences of clocks must be below the difference.
	collectPrefix = partialPrefix + "collect-"
	collectWithin = 10 * time.Minute
	collectCounts = 15 * time.Minute
)

// partial is a create that has not ended: its plan and what it has copied.
type partial struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	// Owner is the create that writes the partial.
	Owner string `json:"owner"`
	// Process is the one that runs the create.
	Process process   `json:"process"`
	Updated time.Time `json:"updated"`
	// Ended says that the create has ended without a backup, so that another one may continue it at once.
	Ended bool `json:"ended"`
	Cut   Cut  `json:"cut"`
	// CutAt is when the cut was asked for.
	CutAt  time.Time `json:"cut_at"`
	Copied []copied  `json:"copied"`
}

// copied is a file that is in the store.
type copied struct {
	Cut       uint64 `json:"cut"`
	Partition uint32 `json:"partition"`
	Node      string `json:"node"`
	File      File   `json:"file"`
}

// abandoned reports whether another create may continue the partial.
func (p *partial) abandoned(now time.Time) bool {
	return p.Ended || p.Process.gone() || now.Sub(p.Updated) > abandonedAfter
}

// Partial is a create that has not ended.
type Partial struct {
	Name    string
	Updated time.Time
	// Ended: it is not running any more. Without it, it may be.
	Ended bool
	Files int
	Bytes int64
}

// Running reports whether a create may be writing the partial at a time: it has not ended, and has renewed the partial
// within five minutes.
func (p Partial) Running(now time.Time) bool { return !p.Ended && now.Sub(p.Updated) <= abandonedAfter }

// running refuses a partial that a create may be writing.
func (p *partial) running(now time.Time) error {
	if p.abandoned(now) {
		return nil
	}
	return &BusyError{fmt.Sprintf("backup %s is being made: its create was seen %v ago", p.Name, now.Sub(p.Updated).Round(time.Second))}
}

// Partials returns the creates that have not ended, the oldest first.
func Partials(ctx context.Context, store Store) ([]Partial, error) {
	list, err := readPartials(ctx, store)
	var out []Partial
	for _, p := range list {
		q := Partial{Name: p.Name, Updated: p.Updated, Ended: p.Ended || p.Process.gone(), Files: len(p.Copied)}
		for _, c := range p.Copied {
			q.Bytes += c.File.Size
		}
		out = append(out, q)
	}
	return out, err
}

// object is the partial's name in the store: two creates of one second have two.
func (p *partial) object() string { return partialPrefix + p.Name + "-" + p.Owner + jsonSuffix }

// readPartials returns all partials.
func readPartials(ctx context.Context, store Store) (out []*partial, err error) {
	objects, err := store.List(ctx, partialPrefix)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		name, owner, isPartial := partialName(o.Name)
		if !isPartial {
			continue
		}
		p, err := readPartial(ctx, store, name, owner)
		if missing := (*NotFoundError)(nil); errors.As(err, &missing) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// partialName reads the name of a partial's object.
func partialName(object string) (name, owner string, ok bool) {
	base, isJSON := strings.CutSuffix(strings.TrimPrefix(object, partialPrefix), jsonSuffix)
	name, owner, _ = strings.Cut(base, "-")
	return name, owner, isJSON && checkName(name) == nil
}

// readPartial returns one partial. One that is damaged becomes one of that name whose create has ended: nothing of it
// can be continued.
func readPartial(ctx context.Context, store Store, name, owner string) (*partial, error) {
	damaged := &partial{Format: partialFormat, Name: name, Owner: owner, Ended: true}
	b, err := readAll(ctx, store, damaged.object())
	if err != nil {
		return nil, err
	}
	p := &partial{}
	if json.Unmarshal(b, p) != nil || p.Format != partialFormat || p.Name != name || p.Owner != owner {
		p = damaged
	}
	return p, nil
}

func putPartial(ctx context.Context, store Store, p *partial) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return putBytes(ctx, store, p.object(), b)
}

func putBytes(ctx context.Context, store Store, name string, b []byte) error {
	if err := store.Put(ctx, name, bytes.NewReader(b), int64(len(b))); err != nil {
		return &StoreError{name, err}
	}
	return nil
}

// BusyError says that a create and a collection exclude each other, or two collections.
type BusyError struct{ What string }

func (e *BusyError) Error() string { return e.What }

// collecting returns the mark of another collection that has not ended; "" if there is none.
func collecting(ctx context.Context, store Store, own string, now time.Time) (string, error) {
	objects, err := store.List(ctx, partialPrefix)
	if err != nil {
		return "", err
	}
	for _, o := range objects {
		text, isMark := strings.CutPrefix(o.Name, collectPrefix)
		if !isMark || o.Name == own {
			continue
		}
		text, _, _ = strings.Cut(text, "-")
		began, err := time.Parse(nameLayout, text)
		if err == nil && now.Sub(began) < collectCounts {
			return o.Name, nil
		}
	}
	return "", nil
}

// collectingError is the refusal because of a mark.
func collectingError(mark string) error {
	return &BusyError{fmt.Sprintf("unused files are being deleted: %s; it counts for %v if that was interrupted", mark, collectCounts)}
}
