package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// story is the record of one order in a test: effects and acknowledgements, a second apart.
type story struct {
	effects []Effect
	acks    []Ack
	at      time.Time
}

func (s *story) effect(step, promise string, attempt uint32, outcome string, cents int64) {
	s.at = s.at.Add(time.Second)
	s.effects = append(s.effects, Effect{Time: s.at, Order: "order-7", Step: step, Promise: promise, Attempt: attempt,
		Outcome: outcome, Worker: "shop-1", Currency: "EUR", Cents: cents, Detail: "whatever it was"})
}

func (s *story) ack(step, promise string) {
	s.at = s.at.Add(time.Second)
	s.acks = append(s.acks, Ack{Time: s.at, Order: "order-7", Step: step, Promise: promise})
}

func (s *story) step(step, promise string, cents int64) {
	s.effect(step, promise, 1, outcomeDone, cents)
	s.ack(step, promise)
}

// toCharge is the story of the sample order up to where it is charged.
func toCharge() *story {
	s := &story{at: time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)}
	s.step(StepReserve, "order-7:0", 0)
	s.step(StepReserve, "order-7:1", 0)
	return s
}

// fromCharge is the rest.
func (s *story) fromCharge() *story {
	s.step(StepPick, "order-7:3", 0)
	s.step(StepBook, "order-7:5.1", 0)
	s.step(StepHandOver, "order-7:5.3", 0)
	s.step(StepConfirm, "order-7:6", 0)
	return s
}

func (s *story) check(change func(*Result)) Report {
	r := Result{Order: "order-7", Status: StatusShipped, Currency: "EUR", Charged: 2350, Tracking: "PX1"}
	if change != nil {
		change(&r)
	}
	book := Book{Stock: sampleStock, Orders: []Order{sample()}}
	report := Check(book, map[string]Result{"order-7": r}, s.effects, s.acks)
	report.CompareTotals(Expected(book))
	return report
}

// differs wants differences that contain each of says, and no others.
func differs(t *testing.T, r Report, says ...string) {
	t.Helper()
	if len(r.Differences) != len(says) {
		t.Errorf("%d differences, expected %d:\n%s", len(r.Differences), len(says), strings.Join(r.Differences, "\n"))
	}
	for _, text := range says {
		if !slices.ContainsFunc(r.Differences, func(d string) bool { return strings.Contains(d, text) }) {
			t.Errorf("no difference says %q:\n%s", text, strings.Join(r.Differences, "\n"))
		}
	}
}

func TestCheckGood(t *testing.T) {
	s := toCharge()
	s.step(StepCharge, "order-7:2", 2350)
	r := s.fromCharge().check(nil)
	differs(t, r)
	if r.Shipped != 1 || r.Steps != 7 || r.Emails != 1 || r.Charged["EUR"] != 2350 || len(r.Repeats) != 0 || len(r.Reruns) != 0 {
		t.Errorf("%+v", r)
	}
}

// A charge that was lost with its worker before it was acknowledged, and made again, is a repeat: the
// world has seen two, and they count as one.
func TestCheckFindsPlantedRepeat(t *testing.T) {
	for _, attempt := range []uint32{1, 2} { // without and with its intent recorded
		s := toCharge()
		s.effect(StepCharge, "order-7:2", 1, outcomeDone, 2350)
		s.effect(StepCharge, "order-7:2", attempt, outcomeDone, 2350)
		s.ack(StepCharge, "order-7:2")
		r := s.fromCharge().check(nil)
		differs(t, r)
		if len(r.Repeats) != 1 || r.Repeats[0] != s.effects[3] || len(r.Reruns) != 0 || r.Charged["EUR"] != 2350 || r.Steps != 7 {
			t.Errorf("attempt %d: %+v", attempt, r)
		}
	}
}

// The same charge once more after it was acknowledged is what must never be.
func TestCheckFindsPlantedRerun(t *testing.T) {
	s := toCharge()
	s.step(StepCharge, "order-7:2", 2350)
	s.effect(StepCharge, "order-7:2", 1, outcomeDone, 2350)
	again := s.effects[len(s.effects)-1]
	s.ack(StepCharge, "order-7:2") // a second acknowledgement hides nothing
	r := s.fromCharge().check(nil)
	differs(t, r, "step charge (order-7:2) was acknowledged at 2025-03-01T12:00:06.000000000Z and ran again at 2025-03-01T12:00:07.000000000Z")
	if len(r.Repeats) != 1 || len(r.Reruns) != 1 || r.Reruns[0] != again {
		t.Errorf("%+v", r)
	}
}

// A charge made twice under two promises is no repeat of one step; it is money taken twice.
func TestCheckFindsSecondCharge(t *testing.T) {
	s := toCharge()
	s.step(StepCharge, "order-7:2", 2350)
	s.step(StepCharge, "order-7:9", 2350)
	differs(t, s.fromCharge().check(nil), "the gateway has charged 4700", "2 times charge, expected 1", "total of cents charged: map[EUR:4700]")
}

func TestCheckRetriesAreNoRepeats(t *testing.T) {
	s := toCharge()
	s.effect(StepCharge, "order-7:2", 1, outcomeTransient, 0)
	s.effect(StepCharge, "order-7:2", 2, outcomeTransient, 0)
	s.effect(StepCharge, "order-7:2", 3, outcomeDone, 2350)
	s.ack(StepCharge, "order-7:2")
	r := s.fromCharge().check(nil)
	differs(t, r)
	if len(r.Repeats) != 0 || r.Retries != 2 || r.Steps != 7 {
		t.Errorf("%+v", r)
	}
	// But the same attempt twice is one, even if it came to nothing.
	s.effects = slices.Insert(s.effects, 3, s.effects[3])
	if r := s.check(nil); len(r.Repeats) != 1 {
		t.Errorf("%+v", r.Repeats)
	}
}

func TestCheckFindsWhatIsMissing(t *testing.T) {
	s := toCharge()
	s.step(StepCharge, "order-7:2", 2350)
	s.fromCharge()
	s.effects = s.effects[:len(s.effects)-1] // no e-mail
	s.acks = slices.Delete(s.acks, 2, 3)     // and the charge was never acknowledged
	differs(t, s.check(nil), "0 times confirm, expected 1", "total of e-mails: 0, expected 1", "step charge (order-7:2) ran and was never acknowledged")

	r := Check(Book{Stock: sampleStock, Orders: []Order{sample()}}, nil, nil, nil)
	differs(t, r, "order-7: has no result")
}

func TestCheckFindsWrongResult(t *testing.T) {
	s := toCharge()
	s.step(StepCharge, "order-7:2", 2350)
	s.fromCharge()
	differs(t, s.check(func(r *Result) { r.Charged = 1 }), "charged 1 and refunded 0 EUR, expected 2350 and 0 EUR")
	differs(t, s.check(func(r *Result) { r.Status, r.Reason = StatusFailed, ReasonAddress }),
		"failed (no such street), expected shipped", "total of shipped: 0", "total of failed: map[no such street:1]")
	s.step(StepRefund, "order-7:8", 2350)
	differs(t, s.check(nil), "1 times refund, expected 0", "refunded 2350, expected 2350 and 0", "total of cents refunded: map[EUR:2350]")
}

// Lines of orders that this run does not have are left alone, and a half line is counted.
func TestCheckFiles(t *testing.T) {
	s := toCharge()
	s.step(StepCharge, "order-7:2", 2350)
	s.fromCharge()
	var effects, acks strings.Builder
	for _, e := range s.effects {
		effects.WriteString(e.String() + "\n")
	}
	other := s.effects[0]
	other.Order, other.Promise = "order-8", "order-8:0"
	effects.WriteString(other.String() + "\n" + other.String() + "\n2025-03-01T12:00:01.0000")
	for _, a := range s.acks {
		acks.WriteString(a.String() + "\n")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{effectsFile: effects.String(), acksFile: acks.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Opening the world again ends the half line, so that the next one is whole.
	w, err := OpenWorld(dir, sampleStock, "shop-2", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	results := map[string]Result{"order-7": {Order: "order-7", Status: StatusShipped, Currency: "EUR", Charged: 2350}}
	r, err := CheckFiles(dir, Book{Stock: sampleStock, Orders: []Order{sample()}}, results)
	if err != nil {
		t.Fatal(err)
	}
	differs(t, r)
	if r.Torn != 1 || len(r.Repeats) != 0 || r.Steps != 7 {
		t.Errorf("%+v", r)
	}
	data, err := os.ReadFile(filepath.Join(dir, effectsFile))
	if err != nil || !strings.HasSuffix(string(data), "12:00:01.0000\n") {
		t.Errorf("the half line has no end (%v)", err)
	}
}

func TestLinesAreReadAsTheyAreWritten(t *testing.T) {
	e := Effect{Time: time.Date(2025, 3, 1, 12, 0, 0, 7, time.UTC), Order: "order-7", Step: StepBook, Promise: "order-7:5.1",
		Attempt: 2, Outcome: outcomeRefused, Worker: "shop-1", Currency: "EUR", Cents: -3, Detail: "no delivery to  PO Box 1"}
	if got, err := ParseEffect(e.String()); err != nil || got != e {
		t.Errorf("%v: %+v", err, got)
	}
	a := Ack{Time: e.Time, Order: "order-7", Step: StepBook, Promise: "order-7:5.1"}
	if got, err := ParseAck(a.String()); err != nil || got != a {
		t.Errorf("%v: %+v", err, got)
	}
	line := e.String()
	for i := range strings.LastIndex(line, "-3") {
		if _, err := ParseEffect(line[:i]); err == nil {
			t.Errorf("half a line is read as a whole one: %q", line[:i])
		}
	}
}

func TestSummaryTable(t *testing.T) {
	s := toCharge()
	s.step(StepCharge, "order-7:2", 2350)
	r := s.fromCharge().check(nil)
	var out strings.Builder
	if err := Summarize(r, 0, time.Second).Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `  orders             1
  shipped            1
  failed             0
    sold out         0
    card declined    0
    never picked     0
    no such street   0
  charged            EUR 2350   cents
  refunded           EUR 0      cents
  revenue            EUR 2350   cents
  e-mails            1
  steps run          7          each counted once, over all processes of the run
  retries            0          the other side could not be reached, and the step was tried again
  repeats            0          ran again: a crash came before the result was recorded
  reruns             0          ran again although the result had been recorded
check: ok
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	r.differ("order-7: is not what it was")
	out.Reset()
	if err := Summarize(r, 0, time.Second).Print(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "\ncheck: 1 differences from what the orders say\n  order-7: is not what it was\n") {
		t.Error(out.String())
	}
}

func TestProgressLine(t *testing.T) {
	p := &Progress{total: 9, steps: func() int64 { return 40 }, began: time.Now()}
	p.started.Add(5)
	p.Ended(true, false)
	p.Ended(true, true)
	p.Ended(false, false)
	line := regexp.MustCompile(`^ {0,2}[0-9]+ s   3 of 9 orders finished: 2 shipped, 1 failed; 2 in progress; 40 steps$`)
	if got := p.String(); !line.MatchString(got) {
		t.Errorf("got  %q\nwant %s", got, line)
	}
	var out strings.Builder
	p.Show(&out)()
	shown := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") // one line, unless the machine was paused meanwhile
	if got := shown[len(shown)-1]; !line.MatchString(got) || !strings.HasSuffix(out.String(), "\n") {
		t.Errorf("shown: %q", out.String())
	}
}
