package addresses

import (
	"context"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
)

// Env is what a dispatcher needs of its node. None of its functions may call the dispatcher before it returns.
type Env struct {
	Clock clock.Clock
	// Lifetime ends when the node stops.
	Lifetime context.Context
	// ServerID is this node's. Members returns the server ids of the other members; nil: the node is alone.
	ServerID string
	Members  func() []string
	// Peer is the client of another server.
	Peer func(server string) (commandv1.PeersClient, error)
	// MaxStreams bounds the streams of clients at this node; at most the constant MaxStreams.
	MaxStreams int
}

// MaxStreams bounds the streams of one node that this node knows.
const MaxStreams = 100_000

// Push takes a message for an HTTP address, or returns false. It must not block. If it took the message, it calls over
// once, from another goroutine: whether the target has accepted the message.
type Push func(m *commandv1.AddressMessage, over func(accepted bool)) bool

// Leadership is one term of a partition at this node. Leaderships are compared by ==. Its methods block, until ctx ends
// at the latest, and may fail because the term is over.
type Leadership interface {
	Partition() uint32
	// Promise reads a promise.
	Promise(ctx context.Context, namespace, id string) (*perdurev1.Promise, error)
	// Messages lists what waits for addresses: executes of tasks that may be acquired, and unblocks that the partition
	// has not forgotten.
	Messages(ctx context.Context, of Selection) (Page, error)
	// HTTPAddresses lists the HTTP addresses for which unblocks wait, of all namespaces, at most so many.
	HTTPAddresses(ctx context.Context, most int) ([]Address, error)
	// Delivered has the partition forget unblocks. Repeating it is harmless.
	Delivered(ctx context.Context, unblocks []Unblock) error
}

// Address is an address for messages about promises of a namespace.
type Address struct{ Namespace, Address string }

// Selection names a page of the messages for an address, and for all that begin with it and a slash.
type Selection struct {
	Address
	// Executes and Unblocks are where the former page has ended; empty for the first page.
	Executes, Unblocks []byte
	// Most bounds the messages of each kind.
	Most int
}

// Page is a part of what waits for addresses. The cursors are empty at the end.
type Page struct {
	Executes                   []Execute
	Unblocks                   []Unblock
	NextExecutes, NextUnblocks []byte
}

// Execute tells a worker at an address of a pending task, which it should acquire at Version.
type Execute struct {
	Namespace, ID, Address string
	Version                uint64
}

// Unblock tells a listener's address of a settled promise.
type Unblock struct{ Namespace, ID, Address string }
