package addresses

import (
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// State answers queries about the applied state of a partition. What it shows is sent again or found over later if it is
// not the newest.
type State func(q *commandv1.Query) (*commandv1.QueryReply, error)

// ask answers a query; a refusal is an error.
func (s State) ask(q *commandv1.Query) (*commandv1.QueryReply, error) {
	reply, err := s(q)
	if err != nil {
		return nil, err
	}
	if refused := wire.QueryError(reply); refused != nil {
		return nil, refused
	}
	return reply, nil
}

// Promise reads a promise, as Leadership asks for it.
func (s State) Promise(namespace, id string) (*perdurev1.Promise, error) {
	reply, err := s.ask(&commandv1.Query{Namespace: namespace, Id: id, Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}})
	if err != nil {
		return nil, err
	}
	return reply.GetPromise().GetPromise(), nil
}

// Messages reads what waits for an address, as Leadership asks for it.
func (s State) Messages(of Selection) (page Page, err error) {
	reply, err := s.ask(&commandv1.Query{Namespace: of.Namespace, Kind: &commandv1.Query_Messages{Messages: &commandv1.MessagesQuery{
		Address: of.Address.Address, Below: true, Limit: uint32(of.Most), ExecuteCursor: of.Executes, UnblockCursor: of.Unblocks}}})
	if err != nil {
		return page, err
	}
	m := reply.GetMessages()
	for _, e := range m.GetExecutes() {
		page.Executes = append(page.Executes, Execute{Namespace: of.Namespace, ID: e.Id, Address: e.Address, Version: e.Version})
	}
	for _, u := range m.GetUnblocks() {
		page.Unblocks = append(page.Unblocks, Unblock{Namespace: of.Namespace, ID: u.GetPromise().GetId(), Address: u.Address})
	}
	page.NextExecutes, page.NextUnblocks = m.GetExecuteCursor(), m.GetUnblockCursor()
	return page, nil
}

// HTTPAddresses reads for which HTTP addresses unblocks wait, as Leadership asks for it.
func HTTPAddresses(r state.Reader, most int) (out []Address, err error) {
	err = query.UnblockAddresses(r, "http", most, func(namespace, address string) {
		out = append(out, Address{Namespace: namespace, Address: address})
	})
	return out, err
}

// Forget is the command by which a partition forgets delivered unblocks.
func Forget(unblocks []Unblock) *commandv1.Command {
	delivered := &commandv1.UnblocksDelivered{}
	for _, u := range unblocks {
		delivered.Unblocks = append(delivered.Unblocks, &commandv1.UnblockRef{Namespace: u.Namespace, Id: u.ID, Address: u.Address})
	}
	return &commandv1.Command{Kind: &commandv1.Command_UnblocksDelivered{UnblocksDelivered: delivered}}
}

// OfEntry returns what an entry wants sent, for Dispatcher.Applied.
func OfEntry(fx *machine.Effects) (executes []Execute, unblocks []Unblock) {
	if len(fx.Executed) == 0 && len(fx.Unblocked) == 0 {
		return nil, nil
	}
	executes, unblocks = make([]Execute, len(fx.Executed)), make([]Unblock, len(fx.Unblocked))
	for i, e := range fx.Executed {
		executes[i] = Execute{Namespace: e.Namespace, ID: e.ID, Address: e.Address, Version: e.Version}
	}
	for i, u := range fx.Unblocked {
		unblocks[i] = Unblock{Namespace: u.Namespace, ID: u.ID, Address: u.Address}
	}
	return executes, unblocks
}
