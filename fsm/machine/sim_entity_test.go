package machine

import (
	"fmt"
	"slices"
	"strconv"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
)

// Entities of the simulation: accounts that clients and other accounts signal and call. Their workers are
// lost, late and doubled as those of executions.

func (s *simulation) registerAccounts() {
	for _, p := range s.parts {
		s.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{registerCmd("@acc")}})
	}
}

// holdAccount notes that a worker has got an account's task.
func (s *simulation) holdAccount(a Assignment) {
	s.t.Helper()
	reply := s.query(&commandv1.Query{Id: a.Token.Id, Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: a.Token.Incarnation, Version: a.Token.Version}}})
	if e := wire.QueryError(reply); e != nil {
		s.t.Fatalf("task %v: %v", a.Token, e)
	}
	s.accounts = append(s.accounts, &holding{a.Worker, a.Token, reply.GetTask().Entity})
}

// actAccount lets a client send an operation to an account, or a worker commit one's operations.
func (s *simulation) actAccount() {
	account := func() string { return fmt.Sprint("acc@", s.draw(4)) }
	if len(s.accounts) > 0 && s.draw(2) == 0 {
		i := s.draw(len(s.accounts))
		h := s.accounts[i]
		if s.draw(8) > 0 { // else a second worker goes on, or the same one later
			s.accounts = slices.Delete(s.accounts, i, i+1)
		}
		if s.draw(8) > 0 { // else it dies
			s.commitAccount(h, 1+s.draw(3))
		}
		return
	}
	operation, input := "add", strconv.Itoa(s.draw(20)-8)
	switch s.draw(6) {
	case 0:
		operation, input = "tell", account()
	case 1:
		operation = "delete"
	case 2:
		operation = "get"
	}
	cmd := callEntityCmd(s.request(), account(), operation, input)
	if s.draw(2) == 0 {
		cmd = signalEntityCmd(s.request(), account(), operation, input, int64(s.draw(2)*s.draw(4000)))
	}
	for range 1 + s.draw(2) {
		s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
			if e := wire.ReplyError(r); e != nil {
				s.t.Fatalf("%v: %v", cmd, e)
			}
			s.stats.clients++
		})
	}
}

// commitAccount commits the first operations of a batch. A worker whose lease has ended has no effect.
func (s *simulation) commitAccount(h *holding, most int) {
	if h.batch == nil {
		return
	}
	cmd := s.commitEntityCmd(h, most)
	n := min(most, len(h.batch.Operations))
	s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
		switch e := wire.ReplyError(r); {
		case e == nil:
			s.stats.operations += n
			if next := r.GetCommitEntity().Next; next != nil {
				s.accounts = append(s.accounts, &holding{h.worker, h.token, next})
			}
		case e.Reason == perdurev1.Reason_REASON_STALE_TASK || e.Reason == perdurev1.Reason_REASON_RULE_BROKEN:
			s.stats.refusedStale++ // a second worker has gone on
		default:
			s.t.Fatalf("%v: %v", cmd, e)
		}
	})
}
