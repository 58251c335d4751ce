package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"

	"perdure/durable"
)

// bank moves money between two of a thousand accounts, in a critical section of both.
var bank = &Workload{Letter: "L", Name: "bank", Unit: "transfers", Title: "a transfer between two of 1,000 accounts, in a critical section of both",
	register: []durable.Registration{account, transferFunction}, run: runBank}

const accounts = 1000

// ledger is an account's value: what it holds, and how often money came or went.
type ledger struct {
	Balance  int64 `json:"balance"`
	Bookings int64 `json:"bookings"`
}

type transfer struct {
	From, To durable.EntityID
	Amount   int64
	Text     string
}

var account = durable.NewEntity("bench-account",
	durable.Op("book", func(_ *durable.EntityContext, l *ledger, amount int64) (int64, error) {
		l.Balance += amount
		l.Bookings++
		return l.Balance, nil
	}),
)

var transferFunction = durable.NewFunction("bench-transfer", func(ctx durable.Context, in transfer) (int64, error) {
	unlock, err := durable.Lock(ctx, in.From, in.To)
	if err != nil {
		return 0, err
	}
	if _, err := durable.CallEntity[int64](ctx, in.From, "book", -in.Amount); err != nil {
		return 0, err
	}
	if _, err := durable.CallEntity[int64](ctx, in.To, "book", in.Amount); err != nil {
		return 0, err
	}
	return in.Amount, unlock()
})

func runBank(ctx context.Context, e *env) (*Result, error) {
	id := func(n int) durable.EntityID { return account.ID(fmt.Sprintf("%s-%d", e.Prefix, n)) }
	var mu sync.Mutex
	touched := map[durable.EntityID]bool{}
	r, err := e.executions(ctx, func(ctx context.Context, n int64) error {
		from, to := rand.IntN(accounts), rand.IntN(accounts-1)
		if to >= from {
			to++
		}
		in := transfer{From: id(from), To: id(to), Amount: 1 + n%100, Text: e.text}
		mu.Lock()
		touched[in.From], touched[in.To] = true, true
		mu.Unlock()
		h, err := transferFunction.Start(ctx, e.client(n), e.id(n), in)
		if err != nil {
			return err
		}
		got, err := h.Result(ctx)
		if err != nil {
			return err
		}
		return unequal(h.ID(), got, in.Amount)
	})
	if err != nil {
		return nil, err
	}
	var total ledger
	for id := range touched { //lint:sorted a sum has no order
		got, err := e.clients[0].GetEntity(ctx, string(id))
		if err != nil {
			return nil, err
		}
		var l ledger
		if err := json.Unmarshal(got.GetValue(), &l); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		total.Balance, total.Bookings = total.Balance+l.Balance, total.Bookings+l.Bookings
	}
	if total != (ledger{0, 2 * r.Begun}) {
		return nil, fmt.Errorf("%d transfers began, and the accounts add up to %+v", r.Begun, total)
	}
	return r, nil
}
