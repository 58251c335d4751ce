package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/durable"
)

// The files of the outside world, in the work folder. They are only ever appended to, one line in one
// write, so they outlive any crash of a process and show everything that was done twice.
const (
	effectsFile = "effects.log" // a line for each time a step acted on the world
	acksFile    = "acks.log"    // a line when the cluster had recorded a step's result
	picksFile   = "picks.log"   // a line when the warehouse had sent its signal
)

// World simulates the outside of the shop: its stock, the payment gateway, the warehouse's inbox, the carrier
// and the mail server. Real ones would refuse to do a thing twice under one promise id. This one obeys every
// request, as often as it comes, and keeps a record.
type World struct {
	stock   Stock
	worker  string
	latency time.Duration
	effects *os.File
	acks    *os.File
	books   sync.Mutex
	acked   map[string]bool  // promise ids in acks by this process
	acts    map[string]bool  // promise ids of the steps that acted in this process
	ran     map[string][]Ack // by execution: steps that have returned, which the cluster may not have recorded yet
	steps   atomic.Int64     // how often a step acted or was refused, in this process; what could not be reached is not in it
}

// OpenWorld opens the world's files in dir. worker is noted in each line; every call takes latency.
func OpenWorld(dir string, stock Stock, worker string, latency time.Duration) (*World, error) {
	effects, err := openLog(filepath.Join(dir, effectsFile))
	if err != nil {
		return nil, err
	}
	acks, err := openLog(filepath.Join(dir, acksFile))
	if err != nil {
		return nil, errors.Join(err, effects.Close())
	}
	return &World{stock: stock, worker: worker, latency: latency, effects: effects, acks: acks,
		acked: map[string]bool{}, acts: map[string]bool{}, ran: map[string][]Ack{}}, nil
}

// Close closes the files.
func (w *World) Close() error { return errors.Join(w.effects.Close(), w.acks.Close()) }

// openLog opens a file to append lines to. A process that was killed may have left half a line; it gets
// its end, so that the next line is a line.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	last := make([]byte, 1)
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		if _, err = f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			_, err = f.WriteString("\n")
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, nil
}

// Receipt is the world's answer to a step: the proof by which both sides know it.
type Receipt struct {
	Order   string `json:"order"`
	Step    string `json:"step"`
	Promise string `json:"promise"`
	Attempt uint32 `json:"attempt"`
}

// Outcomes of an effect.
const (
	outcomeDone      = "done"
	outcomeRefused   = "refused"   // for good; nothing was done
	outcomeTransient = "transient" // could not be reached; nothing was done
)

// Effect is one line of effects.log.
type Effect struct {
	Time     time.Time
	Order    string
	Step     string
	Promise  string
	Attempt  uint32
	Outcome  string
	Worker   string
	Currency string
	Cents    int64
	Detail   string // the rest of the line
}

const timeFormat = "2006-01-02T15:04:05.000000000Z"

// String is the line, without its end.
func (e Effect) String() string {
	return fmt.Sprintf("%s %s %s %s %d %s %s %s %d %s", e.Time.UTC().Format(timeFormat), e.Order, e.Step, e.Promise,
		e.Attempt, e.Outcome, e.Worker, e.Currency, e.Cents, strings.ReplaceAll(e.Detail, "\n", " "))
}

// ParseEffect reads a line.
func ParseEffect(line string) (Effect, error) {
	f := strings.SplitN(line, " ", 10)
	if len(f) != 10 {
		return Effect{}, fmt.Errorf("%d fields, not 10: %q", len(f), line)
	}
	at, err1 := time.Parse(timeFormat, f[0])
	attempt, err2 := strconv.ParseUint(f[4], 10, 32)
	cents, err3 := strconv.ParseInt(f[8], 10, 64)
	return Effect{Time: at, Order: f[1], Step: f[2], Promise: f[3], Attempt: uint32(attempt), Outcome: f[5], Worker: f[6],
		Currency: f[7], Cents: cents, Detail: f[9]}, errors.Join(err1, err2, err3)
}

// Ack is one line of acks.log: by Time, Run had returned for that step.
type Ack struct {
	Time                 time.Time
	Order, Step, Promise string
}

// String is the line, without its end.
func (a Ack) String() string {
	return fmt.Sprintf("%s %s %s %s", a.Time.UTC().Format(timeFormat), a.Order, a.Step, a.Promise)
}

// ParseAck reads a line.
func ParseAck(line string) (Ack, error) {
	f := strings.Split(line, " ")
	if len(f) != 4 {
		return Ack{}, fmt.Errorf("%d fields, not 4: %q", len(f), line)
	}
	at, err := time.Parse(timeFormat, f[0])
	return Ack{Time: at, Order: f[1], Step: f[2], Promise: f[3]}, err
}

// readLog reads the lines of a log, and counts the incomplete ones that a killed process left. A missing file
// is empty.
func readLog[T any](path string, parse func(string) (T, error)) (lines []T, torn int, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	for line := range bytes.Lines(data) {
		text := strings.TrimSuffix(string(line), "\n")
		if text == "" {
			continue
		}
		if v, err := parse(text); err == nil {
			lines = append(lines, v)
		} else {
			torn++
		}
	}
	return lines, torn, err
}

// Acked notes that a step has returned, and returns the step's result. The cluster has recorded the result before the
// execution's next step acts. From then on the step must never run again, and acks.log has a line. A step that did
// not act in this process was replayed, so it has been recorded. Each replay calls Acked again; a process notes a step once.
func (w *World) Acked(r Receipt, err error) (Receipt, error) {
	noted := r
	var refusal *durable.Error
	if errors.As(err, &refusal) && json.Unmarshal(refusal.Details, &noted) != nil {
		return r, err // it did not fail in the world
	}
	if noted.Promise == "" {
		return r, err
	}
	w.books.Lock()
	defer w.books.Unlock()
	x := execution(noted.Promise)
	w.ran[x] = append(w.ran[x], Ack{Order: noted.Order, Step: noted.Step, Promise: noted.Promise})
	if !w.acts[noted.Promise] {
		w.recorded(x)
	}
	return r, err
}

// acting notes that a step acts. What its execution did before has been recorded.
func (w *World) acting(promise string) {
	w.books.Lock()
	defer w.books.Unlock()
	w.acts[promise] = true
	w.recorded(execution(promise))
}

// recorded writes the acknowledgements of an execution's steps. The caller holds books.
func (w *World) recorded(execution string) {
	for _, a := range w.ran[execution] {
		if w.acked[a.Promise] {
			continue
		}
		w.acked[a.Promise] = true
		a.Time = time.Now()
		if _, err := io.WriteString(w.acks, a.String()+"\n"); err != nil {
			panic(err) // an example without its record proves nothing
		}
	}
	delete(w.ran, execution)
}

// execution is the id of the execution that a step's promise belongs to: all but the step's number in it.
func execution(promise string) string { return promise[:strings.LastIndexAny(promise, ":.")] }

// act has an effect on the world, or records that it cannot be done. It writes the line at once, and the
// answer takes its time. A crash between the two loses the answer.
func (w *World) act(ctx context.Context, o Order, step, outcome string, cents int64, detail string) (Receipt, error) {
	info := durable.StepInfo(ctx)
	w.acting(info.PromiseID)
	e := Effect{Time: time.Now(), Order: o.ID(), Step: step, Promise: info.PromiseID, Attempt: info.Attempt, Outcome: outcome,
		Worker: w.worker, Currency: o.Currency, Cents: cents, Detail: detail}
	if _, err := io.WriteString(w.effects, e.String()+"\n"); err != nil {
		return Receipt{}, err
	}
	if outcome != outcomeTransient {
		w.steps.Add(1)
	}
	select {
	case <-time.After(w.latency):
		return Receipt{Order: e.Order, Step: step, Promise: e.Promise, Attempt: e.Attempt}, nil
	case <-ctx.Done():
		return Receipt{}, ctx.Err()
	}
}

// refuse is act when the other side says no, for good.
func (w *World) refuse(ctx context.Context, o Order, step, reason, detail string) (Receipt, error) {
	return w.deny(ctx, o, step, outcomeRefused, &durable.Error{Type: reason, Message: detail, NonRetryable: true})
}

func (w *World) deny(ctx context.Context, o Order, step, outcome string, e *durable.Error) (Receipt, error) {
	r, err := w.act(ctx, o, step, outcome, 0, e.Message)
	if err != nil {
		return Receipt{}, err
	}
	if e.Details, err = json.Marshal(r); err != nil {
		return Receipt{}, err
	}
	return Receipt{}, e
}

// Reserve puts the goods of a line aside.
func (w *World) Reserve(ctx context.Context, o Order, l Line) (Receipt, error) {
	if !w.stock.Has(l) {
		return w.refuse(ctx, o, StepReserve, ReasonSoldOut, l.SKU+" is sold out")
	}
	return w.act(ctx, o, StepReserve, outcomeDone, 0, pieces(l))
}

// Release puts them back.
func (w *World) Release(ctx context.Context, o Order, l Line) (Receipt, error) {
	return w.act(ctx, o, StepRelease, outcomeDone, 0, pieces(l))
}

func pieces(l Line) string { return fmt.Sprintf("%d x %s", l.Quantity, l.SKU) }

// Charge takes money from the customer's card.
func (w *World) Charge(ctx context.Context, o Order, cents int64) (Receipt, error) {
	switch {
	case strings.HasPrefix(o.Payment, declinedPrefix):
		return w.refuse(ctx, o, StepCharge, ReasonDeclined, "the bank declines "+o.Payment)
	case strings.HasPrefix(o.Payment, flakyPrefix) && durable.StepInfo(ctx).Attempt <= flakyAttempts:
		return w.deny(ctx, o, StepCharge, outcomeTransient, &durable.Error{Type: "gateway", Message: "502 the bank cannot be reached"})
	}
	return w.act(ctx, o, StepCharge, outcomeDone, cents, o.Payment)
}

// Refund gives it back.
func (w *World) Refund(ctx context.Context, o Order, cents int64) (Receipt, error) {
	return w.act(ctx, o, StepRefund, outcomeDone, cents, o.Payment)
}

// RequestPick puts an order into the inbox of its warehouse. No answer comes of that: the warehouse reads
// its inbox when it likes (see Warehouse) and sends a signal when it is done.
func (w *World) RequestPick(ctx context.Context, o Order) (Receipt, error) {
	return w.act(ctx, o, StepPick, outcomeDone, 0, o.Warehouse)
}

// CallWarehouse asks the warehouse whether the order will be picked.
func (w *World) CallWarehouse(ctx context.Context, o Order) (Receipt, error) {
	if o.Warehouse == silentWarehouse {
		return w.refuse(ctx, o, StepCall, ReasonSilent, "no answer from "+o.Warehouse)
	}
	return w.act(ctx, o, StepCall, outcomeDone, 0, o.Warehouse+" is at it")
}

// Book announces a parcel to the carrier.
func (w *World) Book(ctx context.Context, o Order, tracking string) (Receipt, error) {
	a := o.Address
	if strings.HasPrefix(a.Street, boxPrefix) {
		return w.refuse(ctx, o, StepBook, ReasonAddress, fmt.Sprintf("no delivery to %s, %s %s, %s", a.Street, a.Postcode, a.City, a.Country))
	}
	return w.act(ctx, o, StepBook, outcomeDone, 0, tracking)
}

// HandOver gives the parcel to the carrier.
func (w *World) HandOver(ctx context.Context, o Order, tracking, picker string) (Receipt, error) {
	return w.act(ctx, o, StepHandOver, outcomeDone, 0, tracking+" packed by "+picker)
}

// Confirm notifies the customer that the parcel is on its way.
func (w *World) Confirm(ctx context.Context, o Order, tracking string) (Receipt, error) {
	return w.act(ctx, o, StepConfirm, outcomeDone, 0, o.Customer.Email+" "+tracking)
}

// Apologize notifies the customer that nothing will come.
func (w *World) Apologize(ctx context.Context, o Order, reason string) (Receipt, error) {
	return w.act(ctx, o, StepApologize, outcomeDone, 0, o.Customer.Email+" "+reason)
}
