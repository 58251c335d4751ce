package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// BankOptions say what the bank is to do. The zero value is 1,000 accounts and 20,000 transfers under BankFaults.
type BankOptions struct {
	// Accounts are entities; Transfers move money between two of them, in a critical section of both, at
	// least so many. More are made while the last fault lasts. Functions is how many run at a time; Audited
	// is how many accounts an audit locks, Auditors how many audits run at a time.
	Accounts, Transfers, Functions, Audited, Auditors int
	// Workers, Lease, Timeout, Faults, Warm, Hold and Cool are as with Executions. Faults follow each other until all
	// transfers are made; Rounds is how many there are at least.
	Workers          int
	Lease, Timeout   time.Duration
	Faults           []Fault
	Rounds           int
	Warm, Hold, Cool time.Duration
	Prefix           string
	Seed             uint64
	Out              io.Writer
}

func (o *BankOptions) fill() {
	o.Accounts, o.Transfers, o.Functions = fallback(o.Accounts, 1000), fallback(o.Transfers, 20_000), fallback(o.Functions, 64)
	o.Audited, o.Auditors = min(fallback(o.Audited, 50), o.Accounts), fallback(o.Auditors, 1)
	o.Workers, o.Lease, o.Timeout = fallback(o.Workers, 3), fallback(o.Lease, 5*time.Second), fallback(o.Timeout, 2*time.Minute)
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults(BankFaults)
	}
	o.Rounds = fallback(o.Rounds, len(o.Faults))
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, 2*time.Second), fallback(o.Hold, 8*time.Second), fallback(o.Cool, 2*time.Second)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("bank-%x", o.Seed))
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// BankFaults break leaders, workers and links.
const BankFaults = "kill-leader,kill-worker,cut-leader,stop-worker,one-way,isolate-leader,pause-worker"

// BankReport is the outcome of a bank.
type BankReport struct {
	Transfers, Refused, Audits int
	Took                       time.Duration
	// Rate is transfers per second, over the whole run with its faults. Latency is of transfers, Sections of audits.
	Rate              float64
	Latency, Sections Spread
	Faults            []string
	Violations        []string
}

// String is the report for people.
func (r *BankReport) String() string {
	return fmt.Sprintf("%d transfers in %s, %.0f/s; %d refused for lack of money; %s\n%d audits; %s\nfaults: %s\n",
		r.Transfers, r.Took.Round(time.Millisecond), r.Rate, r.Refused, r.Latency, r.Audits, r.Sections, strings.Join(r.Faults, ", "))
}

// openingBalance is what every account holds at first.
const openingBalance = 100

// ledger is an account's value: its balance, and every transfer that has touched it.
type ledger struct {
	Open    bool    `json:"open,omitempty"`
	Balance int     `json:"b"`
	Lines   []entry `json:"l,omitempty"`
}

// entry is a transfer as one account has it. Amount is negative where the money comes from.
type entry struct {
	ID     string `json:"i"`
	Other  string `json:"o"`
	Amount int    `json:"a"`
}

func (l *ledger) open() {
	if !l.Open {
		l.Open, l.Balance = true, openingBalance
	}
}

const accountName, transferName, auditName = "jepsen-account", "jepsen-transfer", "jepsen-audit"

// bankAccount is the entity of accounts. It refuses to be overdrawn.
var bankAccount = durable.NewEntity(accountName,
	durable.Op("book", func(_ *durable.EntityContext, l *ledger, e entry) (int, error) {
		l.open()
		if l.Balance+e.Amount < 0 {
			return 0, &durable.Error{Type: "overdrawn", Message: fmt.Sprint(l.Balance)}
		}
		l.Balance += e.Amount
		l.Lines = append(l.Lines, e)
		return l.Balance, nil
	}),
	durable.Op("read", func(_ *durable.EntityContext, l *ledger, _ struct{}) (ledger, error) {
		l.open()
		return *l, nil
	}),
)

// transferInput is the input of a transfer.
type transferInput struct {
	ID       string `json:"id"`
	From, To durable.EntityID
	Amount   int
}

// bankTransfer moves money; its result says whether there was enough.
var bankTransfer = durable.NewFunction(transferName, func(ctx durable.Context, in transferInput) (bool, error) {
	unlock, err := durable.Lock(ctx, in.From, in.To)
	if err != nil {
		return false, err
	}
	var poor *durable.Error
	_, err = durable.CallEntity[int](ctx, in.From, "book", entry{in.ID, string(in.To), -in.Amount})
	if errors.As(err, &poor) && poor.Type == "overdrawn" {
		return false, unlock()
	} else if err != nil {
		return false, err
	}
	if _, err := durable.CallEntity[int](ctx, in.To, "book", entry{in.ID, string(in.From), in.Amount}); err != nil {
		return false, err
	}
	return true, unlock()
})

// bankAudit reads accounts in one critical section and returns what is wrong with them.
var bankAudit = durable.NewFunction(auditName, func(ctx durable.Context, of []durable.EntityID) ([]string, error) {
	unlock, err := durable.Lock(ctx, of...)
	if err != nil {
		return nil, err
	}
	var asked []*durable.Future[ledger]
	for _, one := range of {
		f, err := durable.GoCallEntity[ledger](ctx, one, "read", nil)
		if err != nil {
			return nil, err
		}
		asked = append(asked, f)
	}
	seen := map[string]ledger{}
	for i, f := range asked {
		l, err := f.Get(ctx)
		if err != nil {
			return nil, err
		}
		seen[string(of[i])] = l
	}
	return checkLedgers(seen), unlock()
})

// checkLedgers returns what is wrong with ledgers that were read at one moment: a balance that is not the sum of its
// entries, a transfer that is booked twice, or in one of two accounts only, both of which are here, or an overdraft.
func checkLedgers(seen map[string]ledger) []string {
	wrong := []string{}
	type half struct{ id, account string }
	halves := map[half]int{}
	for account, l := range seen {
		balance := openingBalance
		for _, e := range l.Lines {
			if balance += e.Amount; balance < 0 {
				wrong = append(wrong, fmt.Sprintf("%s: overdrawn to %d by %s", account, balance, e.ID))
			}
			if _, twice := halves[half{e.ID, account}]; twice {
				wrong = append(wrong, fmt.Sprintf("%s: %s is booked twice", account, e.ID))
			}
			halves[half{e.ID, account}] = e.Amount
		}
		if balance != l.Balance {
			wrong = append(wrong, fmt.Sprintf("%s: its entries make %d, its balance is %d", account, balance, l.Balance))
		}
	}
	for account, l := range seen {
		for _, e := range l.Lines {
			if _, here := seen[e.Other]; !here {
				continue
			}
			if other, ok := halves[half{e.ID, e.Other}]; !ok || other != -e.Amount {
				wrong = append(wrong, fmt.Sprintf("%s: %s moves %d, and %d at %s", account, e.ID, e.Amount, other, e.Other))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// bankRun is a bank in progress.
type bankRun struct {
	o        BankOptions
	accounts []durable.EntityID
	began    time.Time
	made     atomic.Int64
	over     atomic.Bool

	mu        sync.Mutex
	transfers []bankedTransfer
	audits    []time.Duration
	wrong     []string
}

// bankedTransfer is a transfer and its client's answer.
type bankedTransfer struct {
	in    transferInput
	moved bool
	took  time.Duration
	err   error
}

// Bank moves money between accounts in critical sections while the cluster is broken and repaired. Audits lock a sample
// of the accounts and check it; at the end all accounts are checked against the transfers' results. An error means that
// the run could not be made.
func Bank(ctx context.Context, c *Cluster, o BankOptions) (*BankReport, error) {
	o.fill()
	r := &bankRun{o: o}
	for i := range o.Accounts {
		r.accounts = append(r.accounts, bankAccount.ID(fmt.Sprintf("%s-%d", o.Prefix, i)))
	}
	if missing := o.Workers - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, o.Lease); err != nil {
			return nil, err
		}
	}
	if err := c.waitLevel(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var clients sync.WaitGroup
	spawn := func(run func(cl *client.Client, rng *rand.Rand), seed uint64) error {
		cl, err := c.Client(o.Timeout)
		if err != nil {
			return err
		}
		clients.Go(func() {
			defer cl.Close()
			rng := rand.New(rand.NewPCG(o.Seed, seed))
			for running.Err() == nil && (!r.over.Load() || r.made.Load() < int64(o.Transfers)) {
				run(cl, rng)
			}
		})
		return nil
	}
	var err error
	for i := range o.Functions {
		err = errors.Join(err, spawn(func(cl *client.Client, rng *rand.Rand) { r.transfer(ctx, cl, rng) }, uint64(100+i)))
	}
	for i := range o.Auditors {
		err = errors.Join(err, spawn(func(cl *client.Client, rng *rand.Rand) { r.audit(ctx, cl, rng) }, uint64(10+i)))
	}
	report := &BankReport{}
	rng := rand.New(rand.NewPCG(o.Seed, 3))
	for i := 0; (i < o.Rounds || r.made.Load() < int64(o.Transfers)) && err == nil; i++ {
		least := int(r.made.Load()) + o.Functions
		f := o.Faults[i%len(o.Faults)]
		var w *Wound
		w, err = underFault(ctx, c, f, o.Warm, f.holds(o.Hold, o.Lease, rng), o.Cool, rng,
			func() error { return fewer(int(r.made.Load()), least, "transfers") })
		if err == nil {
			fmt.Fprintf(o.Out, "fault %d: %s of %s, %d transfers so far\n", i+1, w.Fault.Name, w.Names(), r.made.Load())
			report.Faults = append(report.Faults, w.Fault.Name)
		}
	}
	r.over.Store(true)
	if err != nil {
		cancel()
	}
	clients.Wait()
	report.Took = time.Since(r.began)
	if err != nil {
		return nil, err
	}
	if err := r.settle(ctx, c, report); err != nil {
		return nil, err
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// transfer makes one transfer and records the client's answer.
func (r *bankRun) transfer(ctx context.Context, cl *client.Client, rng *rand.Rand) {
	n := r.made.Add(1)
	from, to := rng.IntN(len(r.accounts)), rng.IntN(len(r.accounts)-1)
	if to >= from {
		to++
	}
	t := bankedTransfer{in: transferInput{ID: fmt.Sprintf("%s-t%d", r.o.Prefix, n), From: r.accounts[from], To: r.accounts[to], Amount: 1 + rng.IntN(40)}}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
	defer cancel()
	h, err := bankTransfer.Start(ctx, cl, t.in.ID, t.in)
	if err == nil {
		t.moved, err = h.Result(ctx)
	}
	t.took, t.err = time.Since(began), err
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transfers = append(r.transfers, t)
}

// audit checks one sample.
func (r *bankRun) audit(ctx context.Context, cl *client.Client, rng *rand.Rand) {
	sample := make([]durable.EntityID, r.o.Audited)
	for i, at := range rng.Perm(len(r.accounts))[:r.o.Audited] {
		sample[i] = r.accounts[at]
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
	defer cancel()
	id := fmt.Sprintf("%s-audit-%x", r.o.Prefix, rng.Uint64())
	h, err := bankAudit.Start(ctx, cl, id, sample)
	var wrong []string
	if err == nil {
		wrong, err = h.Result(ctx)
	}
	if err != nil {
		wrong = append(wrong, fmt.Sprintf("audit %s did not end: %v", id, err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.audits = append(r.audits, time.Since(began))
	r.wrong = append(r.wrong, wrong...)
}

var errBusyAccount = errors.New("the account is locked or has queued operations")

// settle checks all accounts, when nothing runs any more, against the results of the transfers.
func (r *bankRun) settle(ctx context.Context, c *Cluster, report *BankReport) error {
	cl, err := c.Client(30 * time.Second)
	if err != nil {
		return err
	}
	defer cl.Close()
	report.Violations = append(report.Violations, r.wrong...)
	found := map[string][]string{} // the accounts that have booked a transfer
	seen, busy, err := readLedgers(ctx, cl, r.accounts)
	if err != nil {
		return err
	}
	report.Violations = append(report.Violations, busy...)
	report.Violations = append(report.Violations, checkLedgers(seen)...)
	total := 0
	for account, l := range seen {
		total += l.Balance
		for _, e := range l.Lines {
			found[e.ID] = append(found[e.ID], account)
		}
	}
	if total != len(r.accounts)*openingBalance {
		report.Violations = append(report.Violations, fmt.Sprintf("%d in all accounts, they began with %d", total, len(r.accounts)*openingBalance))
	}
	var took []time.Duration
	for _, t := range r.transfers {
		halves := len(found[t.in.ID])
		switch {
		case t.err != nil:
			report.Violations = append(report.Violations, fmt.Sprintf("transfer %s did not end: %v", t.in.ID, t.err))
		case t.moved && halves != 2 || !t.moved && halves != 0:
			report.Violations = append(report.Violations, fmt.Sprintf("transfer %s: moved is %t, and %d accounts have it", t.in.ID, t.moved, halves))
		case !t.moved:
			report.Refused++
		}
		delete(found, t.in.ID)
		took = append(took, t.took)
	}
	for id := range found {
		report.Violations = append(report.Violations, fmt.Sprintf("transfer %s is booked, and was not asked for", id))
	}
	report.Transfers, report.Audits = len(r.transfers), len(r.audits)
	report.Rate = float64(report.Transfers) / report.Took.Seconds()
	report.Latency, report.Sections = SpreadOf(took), SpreadOf(r.audits)
	if report.Audits == 0 {
		report.Violations = append(report.Violations, "no audit ended: nothing was checked while money moved")
	}
	return nil
}

// readLedgers reads accounts when nothing runs any more; an account that stays locked or busy is in busy.
func readLedgers(ctx context.Context, cl *client.Client, accounts []durable.EntityID) (seen map[string]ledger, busy []string, err error) {
	seen = map[string]ledger{}
	var mu sync.Mutex
	var jobs []func(context.Context) error
	quiet, cancel := context.WithTimeout(ctx, healTimeout) // for the last unlocks to arrive
	defer cancel()
	for _, account := range accounts {
		jobs = append(jobs, func(ctx context.Context) error {
			var e *perdurev1.Entity
			if err := waitFor(quiet, string(account), func(context.Context) (err error) {
				if e, err = cl.GetEntity(ctx, string(account)); err == nil && (e.GetLock() != nil || e.GetQueued() != 0) {
					err = errBusyAccount
				}
				return err
			}); err != nil && !errors.Is(err, errBusyAccount) {
				return err
			}
			l := ledger{}
			if e.GetExists() {
				if err := json.Unmarshal(e.GetValue(), &l); err != nil {
					return fmt.Errorf("%s: %w", account, err)
				}
			}
			l.open()
			mu.Lock()
			defer mu.Unlock()
			seen[string(account)] = l
			if e.GetLock() != nil || e.GetQueued() != 0 {
				busy = append(busy, fmt.Sprintf("%s is locked or busy at the end: %v", account, e))
			}
			return nil
		})
	}
	return seen, busy, inParallel(ctx, 16, jobs)
}
