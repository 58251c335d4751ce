package embed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
)

// counter is an entity with a number; "spoil" changes it and fails.
var counter = durable.NewEntity("counter",
	durable.Op("add", func(_ *durable.EntityContext, n *int, by int) (int, error) {
		*n += by
		return *n, nil
	}),
	durable.Op("spoil", func(_ *durable.EntityContext, n *int, _ struct{}) (int, error) {
		*n = 1 << 30
		return 0, errors.New("spoiled")
	}),
	durable.Op("forward", func(ctx *durable.EntityContext, n *int, to durable.EntityID) (int, error) {
		if err := ctx.Signal(to, "add", *n); err != nil {
			return 0, err
		}
		return 0, ctx.Signal(ctx.ID, "add", 1)
	}),
)

// fork is an entity whose operation "double" signals two others of seven to do the same: without a bound, what waits at
// them grows for ever.
var fork = durable.NewEntity("fork",
	durable.Op("double", func(ctx *durable.EntityContext, n *int, k int) (int, error) {
		*n++
		for i := range 2 {
			if err := ctx.Signal(durable.EntityID(fmt.Sprint("fork@", (2*k+i)%7)), "double", 2*k+i); err != nil {
				return 0, err
			}
		}
		return *n, nil
	}),
)

// TestEntitiesThatFork: entities of several partitions that double each other's signals fill their backlogs up to the bound
// and not beyond. Then operations fail, others run, and another entity is served.
func TestEntitiesThatFork(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it fills backlogs of 10,000 operations")
	}
	w := newWorld(t)
	w.work(durable.WorkerOptions{}, fork, counter)
	ctx := soon(t)
	if err := w.SignalEntity(ctx, "fork@0", "double", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	versions := func() (most, sum uint64) {
		for k := range 7 {
			e, err := w.GetEntity(ctx, fmt.Sprint("fork@", k))
			if err != nil {
				t.Fatal(err)
			}
			// A batch has 64 operations of two signals. Those of a few batches may be under way.
			if waiting := e.Queued + e.Scheduled; waiting > 10_000+32*128 {
				t.Fatalf("%d operations wait at %s", waiting, e.Id)
			}
			most, sum = max(most, e.Queued), sum+e.Version
		}
		return most, sum
	}
	full := uint64(0)
	until(t, "a backlog to be full", func() error {
		most, sum := versions()
		if most < 10_000 {
			return fmt.Errorf("%d operations wait at most", most)
		}
		full = sum
		return nil
	})
	until(t, "the full entities to run 20 further batches", func() error {
		if _, sum := versions(); sum < full+20 {
			return fmt.Errorf("%d batches have run, %d when the first was full", sum, full)
		}
		return nil
	})
	if err := w.SignalEntity(ctx, string(counter.ID("free")), "add", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	w.entityIs(counter.ID("free"), "1")
}

// entityIs waits until an entity has a value and nothing waits there.
func (w *world) entityIs(id durable.EntityID, want string) {
	w.t.Helper()
	until(w.t, "entity "+string(id), func() error {
		e, err := w.GetEntity(soon(w.t), string(id))
		if err == nil && (string(e.GetValue()) != want || e.GetQueued() != 0 || e.GetScheduled() != 0) {
			err = fmt.Errorf("it is %v, must have the value %q", e, want)
		}
		return err
	})
}

// TestEntities: a client signals and calls an entity, an operation that fails changes nothing, an entity
// signals another one and itself, a scheduled signal comes, a deleted entity leaves nothing, and the state
// passes the audit.
func TestEntities(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.work(durable.WorkerOptions{}, counter)
	ctx := soon(t)
	visits, other := counter.ID("visits"), counter.ID("other")

	for range 3 {
		if err := w.SignalEntity(ctx, string(visits), "add", []byte("2"), 0); err != nil {
			t.Fatal(err)
		}
	}
	w.entityIs(visits, "6")
	if got, err := w.CallEntity(ctx, string(visits), "add", []byte("4")); err != nil || string(got) != "10" {
		t.Fatalf("add answers %q, %v", got, err)
	}
	var failed *client.ExecutionError
	if _, err := w.CallEntity(ctx, string(visits), "spoil", nil); !errors.As(err, &failed) || failed.Failure.GetMessage() != "spoiled" {
		t.Fatalf("spoil answers %v", err)
	}
	if _, err := w.CallEntity(ctx, string(visits), "nonsense", nil); !errors.As(err, &failed) || failed.Failure.GetType() != durable.TypeUnknownOperation {
		t.Fatalf("an unknown operation answers %v", err)
	}
	w.entityIs(visits, "10")
	if err := w.SignalEntity(ctx, string(visits), "forward", []byte(`"counter@other"`), 0); err != nil {
		t.Fatal(err)
	}
	w.entityIs(other, "10")
	w.entityIs(visits, "11")
	if err := w.SignalEntity(ctx, string(other), "add", []byte("1"), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	w.entityIs(other, "11")
	var ids []string
	for e, err := range w.ListEntities(ctx, "counter", 0) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.GetId())
	}
	if !slices.Equal(ids, []string{"counter@other", "counter@visits"}) {
		t.Fatalf("the entities are %q", ids)
	}
	if _, err := w.CallEntity(ctx, string(other), durable.OpDelete, nil); err != nil {
		t.Fatal(err)
	}
	if e, err := w.GetEntity(ctx, string(other)); err != nil || e.GetIncarnation() != 0 {
		t.Fatalf("after its deletion: %v, %v", e, err)
	}
	wantReason(t, "an entity that no worker serves", w.SignalEntity(ctx, "unserved@1", "add", nil, 0), "FUNCTION_UNKNOWN")
	wantReason(t, "no id of an entity", w.SignalEntity(ctx, "counter", "add", nil, 0), "BAD_ID")
	x.noProblems()
}

// account is a bank account. A withdrawal of more than there is fails.
var account = durable.NewEntity("account",
	durable.Op("deposit", func(_ *durable.EntityContext, balance *int, amount int) (int, error) {
		if *balance+amount < 0 {
			return 0, fmt.Errorf("the balance is %d", *balance)
		}
		*balance += amount
		return *balance, nil
	}),
	durable.Op("balance", func(_ *durable.EntityContext, balance *int, _ struct{}) (int, error) { return *balance, nil }),
)

// Transfer is one transfer of the bank.
type Transfer struct {
	From, To durable.EntityID
	Amount   int
}

// transfer moves money in a critical section of both accounts.
var transfer = durable.NewFunction("transfer", func(ctx durable.Context, in Transfer) (bool, error) {
	unlock, err := durable.Lock(ctx, in.From, in.To)
	if err != nil {
		return false, err
	}
	if _, err := durable.CallEntity[int](ctx, in.From, "deposit", -in.Amount); err != nil {
		return false, unlock()
	}
	if _, err := durable.CallEntity[int](ctx, in.To, "deposit", in.Amount); err != nil {
		return false, err
	}
	return true, unlock()
})

// auditTotal adds the balances of accounts in a critical section over all of them.
var auditTotal = durable.NewFunction("audit", func(ctx durable.Context, of []durable.EntityID) (int, error) {
	unlock, err := durable.Lock(ctx, of...)
	if err != nil {
		return 0, err
	}
	var asked []*durable.Future[int]
	for _, one := range of {
		f, err := durable.GoCallEntity[int](ctx, one, "balance", nil)
		if err != nil {
			return 0, err
		}
		asked = append(asked, f)
	}
	total := 0
	for _, f := range asked {
		n, err := f.Get(ctx)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, unlock()
})

// TestDescribeNamesEntity: describe says why an operation of an entity does not run, and which locks an execution holds.
func TestDescribeNamesEntity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	calls := durable.NewFunction("calls", func(ctx durable.Context, of durable.EntityID) (int, error) {
		return durable.CallEntity[int](ctx, of, "add", 1)
	})
	holds := durable.NewFunction("holds", func(ctx durable.Context, of []durable.EntityID) (bool, error) {
		if _, err := durable.Lock(ctx, of...); err != nil {
			return false, err
		}
		return durable.WaitSignal[bool](ctx, "leave")
	})
	w.work(durable.WorkerOptions{}, calls, holds, counter)
	one, two := counter.ID("one"), counter.ID("two")
	holder := begin(w, holds, "holder", []durable.EntityID{two, one})
	w.waitsFor("holder", "leave")
	if got := fmt.Sprint(w.describe("holder").GetHeldLocks()); got != fmt.Sprint([]durable.EntityID{one, two}) {
		t.Errorf("the holder holds %s", got)
	}
	begin(w, calls, "unserved", "nobody@1")
	behind := begin(w, calls, "behind", one)
	for id, want := range map[string]string{"unserved": "entity nobody@1, no worker", "behind": "entity counter@one, locked by holder"} {
		until(t, want, func() error {
			if x := w.describe(id); x.GetWakeSource() != want || len(x.GetHeldLocks()) > 0 {
				return fmt.Errorf("it waits for %q and holds %v", x.GetWakeSource(), x.GetHeldLocks())
			}
			return nil
		})
	}
	w.signal("holder", "leave", "true")
	result(t, holder)
	result(t, behind)
	if got := w.describe("holder").GetHeldLocks(); len(got) > 0 {
		t.Errorf("it has ended and holds %v", got)
	}
}

// TestBank: transfers between accounts in all partitions of three nodes, in critical sections, with audits
// between them. Money is neither made nor lost, no account is overdrawn, and nothing waits in the end. A
// section that a terminated execution held is over.
func TestBank(t *testing.T) {
	t.Parallel()
	cfgs := memberConfigs(t)
	startAll(t, cfgs...)
	w := connect(t, cfgs[0].GRPCAddr)
	holds := durable.NewFunction("holds", func(ctx durable.Context, of []durable.EntityID) (bool, error) {
		if _, err := durable.Lock(ctx, of...); err != nil {
			return false, err
		}
		_, err := durable.WaitSignal[bool](ctx, "never")
		return false, err
	})
	x := w.workAt(cfgs[1].GRPCAddr, durable.WorkerOptions{}, account, transfer, auditTotal, holds)
	const accounts, transfers, each = 8, 60, 100
	var all []durable.EntityID
	for i := range accounts {
		all = append(all, account.ID(fmt.Sprint(i)))
		if _, err := w.CallEntity(soon(t), string(all[i]), "deposit", []byte(fmt.Sprint(each))); err != nil {
			t.Fatal(err)
		}
	}
	holder := begin(w, holds, "holder", all[:3])
	w.waitsFor("holder", "never")
	if e, err := w.GetEntity(soon(t), string(all[1])); err != nil || e.GetLock().GetHolder() != "holder" {
		t.Fatalf("the locked account is %v, %v", e, err)
	}
	blocked := begin(w, transfer, "blocked", Transfer{From: all[4], To: all[1], Amount: 1})
	until(t, "the holder to be named", func() error {
		if got := w.describe("blocked").GetWakeSource(); got != "lock of account@1, held by holder" {
			return fmt.Errorf("it waits for %q", got)
		}
		return nil
	})
	moved := []*durable.Handle[bool]{blocked}
	for i := range transfers {
		moved = append(moved, begin(w, transfer, fmt.Sprint("transfer-", i), Transfer{From: all[i%accounts], To: all[(i*3+1)%accounts], Amount: 30 + i%50}))
	}
	audits := []*durable.Handle[int]{begin(w, auditTotal, "audit-1", all), begin(w, auditTotal, "audit-2", all)}
	if _, err := w.Terminate(soon(t), holder.ID(), "enough"); err != nil {
		t.Fatal(err)
	}
	for _, h := range moved {
		result(t, h)
	}
	audits = append(audits, begin(w, auditTotal, "audit-3", all))
	for _, h := range audits {
		if total := result(t, h); total != accounts*each {
			t.Errorf("%s found %d, the accounts began with %d", h.ID(), total, accounts*each)
		}
	}
	for _, one := range all {
		until(t, "the end of all sections", func() error {
			e, err := w.GetEntity(context.Background(), string(one))
			if err == nil && (e.GetLock() != nil || e.GetQueued() != 0) {
				err = fmt.Errorf("%v", e)
			}
			return err
		})
	}
	x.noProblems()
}
