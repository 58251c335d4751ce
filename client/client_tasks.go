package client

import (
	"context"
	"iter"

	perdurev1 "perdure/api/perdure/v1"
)

// ClientTask reads a client task of the recovery protocol, with its promise. Error: *api.Error with PROMISE_NOT_FOUND.
func (c *Client) ClientTask(ctx context.Context, id string) (*perdurev1.ClientTaskResponse, error) {
	return c.clientTask(ctx, "get task", id, false, func(ctx context.Context, n *node) (*perdurev1.ClientTaskResponse, error) {
		return n.clientTasks.Get(ctx, &perdurev1.GetClientTaskRequest{Namespace: c.opts.Namespace, Id: id})
	})
}

// ClientPromiseOptions describes a promise of the recovery protocol to create.
type ClientPromiseOptions struct {
	// Param is opaque; at most 4 MiB.
	Param []byte
	// Tags; at most 64. resonate:target gives it a task.
	Tags map[string]string
	// TimeoutAtMS is the deadline, in unix milliseconds.
	TimeoutAtMS int64
}

// CreateClientTask creates a promise whose task pid holds for ttlMS milliseconds, or acquires the pending task of the
// existing promise. Errors: *api.Error with STALE_TASK if the task is not pending; others as with Start.
func (c *Client) CreateClientTask(ctx context.Context, id, pid string, ttlMS int64, o ClientPromiseOptions) (*perdurev1.ClientTaskResponse, error) {
	r := c.NewRequest()
	return c.clientTask(ctx, "create task", id, true, func(ctx context.Context, n *node) (*perdurev1.ClientTaskResponse, error) {
		return n.clientTasks.Create(ctx, &perdurev1.CreateClientTaskRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Pid: pid, TtlMs: ttlMS,
			Promise: &perdurev1.CreateClientPromiseRequest{Id: id, Param: &perdurev1.Value{Data: o.Param}, Tags: o.Tags, TimeoutAtMs: o.TimeoutAtMS}})
	})
}

// AcquireClientTask acquires a pending task at a version for ttlMS milliseconds; the answer has the next version. Errors:
// *api.Error with STALE_TASK, PROMISE_NOT_FOUND.
func (c *Client) AcquireClientTask(ctx context.Context, id string, version uint64, pid string, ttlMS int64) (*perdurev1.ClientTaskResponse, error) {
	r := c.NewRequest()
	return c.clientTask(ctx, "acquire task", id, true, func(ctx context.Context, n *node) (*perdurev1.ClientTaskResponse, error) {
		return n.clientTasks.Acquire(ctx, &perdurev1.AcquireClientTaskRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Version: version, Pid: pid, TtlMs: ttlMS})
	})
}

// ReleaseClientTask gives an acquired task back. Errors as with AcquireClientTask.
func (c *Client) ReleaseClientTask(ctx context.Context, id string, version uint64) (*perdurev1.ClientTaskResponse, error) {
	r := c.NewRequest()
	return c.clientTask(ctx, "release task", id, true, func(ctx context.Context, n *node) (*perdurev1.ClientTaskResponse, error) {
		return n.clientTasks.Release(ctx, &perdurev1.ReleaseClientTaskRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Version: version})
	})
}

// SuspendClientTask puts an acquired task to sleep until one of the awaited promises settles. If one has settled, the task
// stays acquired: compare the state. Errors as with AcquireClientTask, and RULE_BROKEN for an awaited promise that is
// missing or unfit.
func (c *Client) SuspendClientTask(ctx context.Context, id string, version uint64, awaited ...string) (*perdurev1.ClientTaskResponse, error) {
	r := c.NewRequest()
	return c.clientTask(ctx, "suspend task", id, true, func(ctx context.Context, n *node) (*perdurev1.ClientTaskResponse, error) {
		return n.clientTasks.Suspend(ctx, &perdurev1.SuspendClientTaskRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Version: version, Awaited: awaited})
	})
}

// FulfillClientTask settles the promise of an acquired task. Errors as with AcquireClientTask.
func (c *Client) FulfillClientTask(ctx context.Context, id string, version uint64, state perdurev1.PromiseState, value []byte) (*perdurev1.ClientTaskResponse, error) {
	r := c.NewRequest()
	return c.clientTask(ctx, "fulfill task", id, true, func(ctx context.Context, n *node) (*perdurev1.ClientTaskResponse, error) {
		return n.clientTasks.Fulfill(ctx, &perdurev1.FulfillClientTaskRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Version: version,
			State: state, Value: &perdurev1.Value{Data: value}})
	})
}

// HeartbeatClientTask extends the lease of a task that pid holds at a version, and reports whether it holds it.
func (c *Client) HeartbeatClientTask(ctx context.Context, id string, version uint64, pid string) (held bool, err error) {
	err = c.call(ctx, "heartbeat task", id, true, 0, func(ctx context.Context, n *node) error {
		resp, err := n.clientTasks.Heartbeat(ctx, &perdurev1.HeartbeatClientTasksRequest{Namespace: c.opts.Namespace, Pid: pid,
			Tasks: []*perdurev1.ClientTaskRef{{Id: id, Version: version}}})
		held = len(resp.GetHeld()) > 0
		return err
	})
	return held, err
}

// HaltClientTask takes a task out of service. Errors as with AcquireClientTask.
func (c *Client) HaltClientTask(ctx context.Context, id string) (*perdurev1.ClientTaskResponse, error) {
	r := c.NewRequest()
	return c.clientTask(ctx, "halt task", id, true, func(ctx context.Context, n *node) (*perdurev1.ClientTaskResponse, error) {
		return n.clientTasks.Halt(ctx, &perdurev1.HaltClientTaskRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id})
	})
}

// ContinueClientTask puts a halted task back into service. Errors as with AcquireClientTask.
func (c *Client) ContinueClientTask(ctx context.Context, id string) (*perdurev1.ClientTaskResponse, error) {
	r := c.NewRequest()
	return c.clientTask(ctx, "continue task", id, true, func(ctx context.Context, n *node) (*perdurev1.ClientTaskResponse, error) {
		return n.clientTasks.Continue(ctx, &perdurev1.ContinueClientTaskRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id})
	})
}

// SearchClientTasks lists client tasks by ascending id, at most limit of them, 0 for all; in one state, unless that is
// unspecified. It ends with the first error.
func (c *Client) SearchClientTasks(ctx context.Context, state perdurev1.TaskState, limit int) iter.Seq2[*perdurev1.ClientTask, error] {
	return pages(limit, func(size uint32, cursor string) ([]*perdurev1.ClientTask, string, error) {
		var resp *perdurev1.SearchClientTasksResponse
		err := c.call(ctx, "search tasks", "", false, 0, func(ctx context.Context, n *node) (err error) {
			resp, err = n.clientTasks.Search(ctx, &perdurev1.SearchClientTasksRequest{Namespace: c.opts.Namespace, State: state, Limit: size, Cursor: cursor})
			return err
		})
		return resp.GetTasks(), resp.GetCursor(), err
	})
}

// SearchPromises lists promises by ascending id, at most limit of them, 0 for all; with all of the tags, and in one state,
// unless that is unspecified. It ends with the first error.
func (c *Client) SearchPromises(ctx context.Context, state perdurev1.PromiseState, tags map[string]string, limit int) iter.Seq2[*perdurev1.Promise, error] {
	return pages(limit, func(size uint32, cursor string) ([]*perdurev1.Promise, string, error) {
		var resp *perdurev1.SearchPromisesResponse
		err := c.call(ctx, "search promises", "", false, 0, func(ctx context.Context, n *node) (err error) {
			resp, err = n.promises.Search(ctx, &perdurev1.SearchPromisesRequest{Namespace: c.opts.Namespace, State: state, Tags: tags, Limit: size, Cursor: cursor})
			return err
		})
		return resp.GetPromises(), resp.GetCursor(), err
	})
}

// pages reads a search page by page.
func pages[T any](limit int, read func(size uint32, cursor string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		const most = 1000
		for n, cursor := 0, ""; ; {
			size := most
			if limit > 0 {
				size = min(most, limit-n)
			}
			page, next, err := read(uint32(size), cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, x := range page {
				if !yield(x, nil) {
					return
				}
			}
			if n, cursor = n+len(page), next; cursor == "" || limit > 0 && n >= limit {
				return
			}
		}
	}
}

func (c *Client) clientTask(ctx context.Context, op, id string, write bool,
	ask func(context.Context, *node) (*perdurev1.ClientTaskResponse, error)) (*perdurev1.ClientTaskResponse, error) {
	var resp *perdurev1.ClientTaskResponse
	err := c.call(ctx, op, id, write, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = ask(ctx, n)
		return err
	})
	return resp, err
}
