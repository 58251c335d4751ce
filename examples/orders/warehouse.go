package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// Warehouse is the other party: it reads its inbox (the request-pick lines of effects.log), takes its time,
// and sends the signal "picked" to the order. If an order that it has not read of calls, it picks that as
// well. It is no durable function: after a crash it starts from its notes (picks.log)
// and may send a signal twice. An order waits for one only.
type Warehouse struct {
	client *client.Client
	dir    string
	delay  time.Duration
	log    *slog.Logger
}

// pickers work concurrently. Their names go into the parcels.
var pickers = []string{"Ada", "Emil", "Ines", "Jakob", "Mira", "Oskar", "Pia", "Timo"}

// inboxPoll is how often the warehouse reads its inbox.
const inboxPoll = 20 * time.Millisecond

// pick is an order on the pickers' list.
type pick struct {
	order string
	due   time.Time
}

// Run picks until ctx ends. It returns an error when its files cannot be used.
func (w *Warehouse) Run(ctx context.Context) error {
	notes, err := openLog(filepath.Join(w.dir, picksFile))
	if err != nil {
		return err
	}
	defer notes.Close()
	done, _, err := readLog(notes.Name(), ParseAck)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, p := range done {
		known[p.Order] = true
	}

	list := make(chan pick, 1024)
	var wait sync.WaitGroup
	for _, name := range pickers {
		wait.Go(func() { w.work(ctx, name, list, notes) })
	}
	defer wait.Wait()
	defer close(list)
	return w.readInbox(ctx, known, list)
}

// readInbox puts every order that is asked for on the list, once.
func (w *Warehouse) readInbox(ctx context.Context, known map[string]bool, list chan<- pick) error {
	inbox, err := os.Open(filepath.Join(w.dir, effectsFile))
	if err != nil {
		return err
	}
	defer inbox.Close()
	var rest []byte // the beginning of a line whose end has not been written yet
	for {
		more, err := io.ReadAll(inbox)
		if err != nil {
			return err
		}
		rest = append(rest, more...)
		for {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				break
			}
			e, err := ParseEffect(string(rest[:end]))
			rest = rest[end+1:]
			// A call about an order that is not known here: the inbox that it was put into has been lost.
			asked := e.Step == StepPick && e.Detail != silentWarehouse || e.Step == StepCall
			if err != nil || !asked || e.Outcome != outcomeDone || known[e.Order] {
				continue
			}
			known[e.Order] = true
			select {
			case list <- pick{e.Order, time.Now().Add(w.delay)}:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-time.After(inboxPoll):
		case <-ctx.Done():
			return nil
		}
	}
}

// work is one picker's day.
func (w *Warehouse) work(ctx context.Context, name string, list <-chan pick, notes io.Writer) {
	for p := range list {
		select {
		case <-time.After(time.Until(p.due)):
		case <-ctx.Done():
			return
		}
		if !w.signal(ctx, p.order, name) {
			continue
		}
		line := Ack{Time: time.Now(), Order: p.order, Step: SignalPicked, Promise: strings.ToLower(name)}.String() + "\n"
		if _, err := io.WriteString(notes, line); err != nil {
			w.log.Warn("cannot record finished order", "event", "ack_failed", "order", p.order, "error", err)
		}
	}
}

// signal sends the signal to the order, and retries until it is acknowledged. It reports whether the order
// has got it. An order that has ended needs no signal any more.
func (w *Warehouse) signal(ctx context.Context, order, name string) bool {
	payload, err := json.Marshal(Picked{By: name})
	if err != nil {
		panic(err) // a struct of one string
	}
	for ctx.Err() == nil {
		err := w.client.Signal(ctx, order, SignalPicked, payload)
		var refused *api.Error
		switch {
		case err == nil, errors.As(err, &refused) && refused.Reason == perdurev1.Reason_REASON_ALREADY_FINISHED:
			return true
		case ctx.Err() == nil:
			w.log.Warn("cannot send signal", "event", "signal_failed", "order", order, "signal", SignalPicked, "error", err)
		}
		if !client.Unavailable(err) && !errors.Is(err, client.ErrOutcomeUnknown) {
			return false
		}
	}
	return false
}
