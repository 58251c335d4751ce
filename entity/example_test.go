package entity_test

import (
	"fmt"
	"strconv"

	"perdure/entity"
)

// account is what a worker does with a batch: a balance that can be read and changed.
func account(b entity.Batch) entity.Commit {
	balance, _ := strconv.Atoi(string(b.Value))
	c := entity.Commit{Incarnation: b.Incarnation, Version: b.Version, Exists: true}
	for _, o := range b.Operations {
		change, _ := strconv.Atoi(string(o.Input))
		balance += change
		c.Results = append(c.Results, entity.Result{Request: o.Request, Output: []byte(strconv.Itoa(balance))})
	}
	c.Value = []byte(strconv.Itoa(balance))
	return c
}

// A transfer that no observer sees half done: the section of two accounts, with every message on its way.
func Example() {
	accounts := map[entity.ID]*entity.State{}
	for _, id := range []entity.ID{"alice", "bob"} {
		accounts[id], _ = entity.New(id, 1)
	}
	transfer, _ := entity.NewHolder("transfer-1", 1)

	// post carries messages until none is left, as a cluster would, and runs what may run.
	var post func(messages ...entity.Message)
	post = func(messages ...entity.Message) {
		for _, m := range messages {
			switch m := m.(type) {
			case entity.Reply:
				_, _ = transfer.Replied(m)
				fmt.Printf("%s answers %s\n", m.Entity, m.Output)
			case entity.LockGranted:
				answer, entered, _ := transfer.Granted(m)
				fmt.Println("entered:", entered, m.Set)
				post(answer...)
			default:
				state := accounts[entity.ID(m.To().ID)]
				out, _ := state.Deliver(0, m)
				post(out...)
				if b, ok := state.Batch(10, 1<<20); ok {
					out, _ := state.Commit(0, account(b))
					post(out...)
				}
			}
		}
	}

	deposit := entity.Signal{Origin: entity.Party{Kind: entity.PartyClient, ID: "bank"}, Entity: "bob", Request: "1", Operation: "change", Input: []byte("70")}
	post(deposit)

	lock, _ := transfer.Enter("transfer-1:0", []entity.ID{"bob", "alice"})
	post(lock)
	_, err := transfer.Signal("bob", "transfer-1:1", "change", []byte("5"), 0)
	fmt.Println(err)
	take, _ := transfer.Call("bob", "transfer-1:2", "change", []byte("-30"))
	give, _ := transfer.Call("alice", "transfer-1:3", "change", []byte("30"))
	post(take, give)
	unlocks, _ := transfer.Exit()
	post(unlocks...)
	fmt.Println(accounts["alice"].Lock, "/", accounts["bob"].Lock)

	// Output:
	// entered: true [alice bob]
	// entity: signal_unlocked_only: signal "bob" by execution "transfer-1"/1 in section "transfer-1:0" as request "transfer-1:1": forbidden: the entity is in the lock set
	// bob answers 40
	// alice answers 30
	// not locked / not locked
}
