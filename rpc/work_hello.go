package rpc

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/partition/group"
)

// readHello reads and checks the first message. It blocks at most helloTimeout.
func (w *session) readHello() (*perdurev1.WorkRequest, *perdurev1.Hello, error) {
	type message struct {
		in  *perdurev1.WorkRequest
		err error
	}
	got := make(chan message, 1)
	go func() {
		in, err := w.stream.Recv()
		got <- message{in, err}
	}()
	timeout := time.NewTimer(helloTimeout)
	defer timeout.Stop()
	var m message
	select {
	case m = <-got:
	case <-timeout.C:
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "no Hello within %s", helloTimeout)
	}
	if m.err != nil {
		return nil, nil, m.err
	}
	h := m.in.GetHello()
	if h == nil {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the first message of a worker stream is not Hello")
	}
	ns, err := namespace(h.Namespace)
	if err := firstError(err, name("worker id", h.WorkerId)); err != nil {
		return nil, nil, err
	}
	if n := len(h.Functions) + len(h.Entities); n == 0 || n > maxFunctions {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "worker with %d functions, not 1 to %d", n, maxFunctions)
	}
	for _, fn := range h.Functions {
		if err := function(fn); err != nil {
			return nil, nil, err
		}
	}
	if h.Cleanups {
		for _, fn := range h.Functions[:len(h.Functions):len(h.Functions)] {
			h.Functions = append(h.Functions, state.FunctionCleanup+fn)
		}
	}
	for _, entity := range h.Entities {
		if err := entityName(entity); err != nil {
			return nil, nil, err
		}
		h.Functions = append(h.Functions, id.EntityQueue(entity)) // their tasks wait like those of functions
	}
	if err := digests(h); err != nil {
		return nil, nil, err
	}
	if len(h.Held) > maxCapacity {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d held tasks exceed %d", len(h.Held), maxCapacity)
	}
	if h.Capacity > maxCapacity {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "capacity of %d tasks exceeds %d", h.Capacity, maxCapacity)
	}
	if h.LeaseMs == 0 {
		h.LeaseMs = w.s.cfg.Lease.Milliseconds()
	}
	if h.LeaseMs < minLeaseMS || h.LeaseMs > maxLeaseMS {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "lease of %d ms is not %d to %d ms", h.LeaseMs, minLeaseMS, maxLeaseMS)
	}
	w.ns = ns
	for _, t := range h.Held {
		if err := w.own(t); err != nil {
			return nil, nil, err
		}
	}
	return m.in, h, nil
}

// digests checks the component digests of a worker.
func digests(h *perdurev1.Hello) error {
	switch n := len(h.CompatibleDigests); {
	case n > 0 && h.ComponentDigest == "":
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "worker with %d compatible digests and no digest of its own", n)
	case n > maxCompatible:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d compatible digests exceed %d", n, maxCompatible)
	}
	for _, digest := range append([]string{h.ComponentDigest}, h.CompatibleDigests...) {
		if err := text("component digest", digest, maxDigestBytes); err != nil {
			return err
		}
	}
	return nil
}

// codeOf names a worker's code: its digest, or the process itself if it states none.
func codeOf(h *perdurev1.Hello) string {
	if h.ComponentDigest != "" {
		return h.ComponentDigest
	}
	return "worker " + h.WorkerId
}

// everywhere calls do for each partition concurrently and waits at most within. Calls that have not ended by
// then, because a partition has no leader, continue until the stream ends: meanwhile the worker serves the
// other partitions. A final refusal is returned at once.
func (w *session) everywhere(what string, within time.Duration, partitions []uint32, do func(ctx context.Context, partition uint32) error) error {
	refusals := make(chan error, len(partitions))
	for _, p := range partitions {
		go func() {
			err := w.s.retry(w.ctx, func() error {
				ctx, cancel := context.WithTimeout(w.ctx, writeTimeout)
				defer cancel()
				return do(ctx, p)
			})
			if api.Is(err, perdurev1.Reason_REASON_CORRUPT) {
				// One damaged state must not stop the others.
				w.s.log.Warn("worker attached without a halted partition", "event", "worker_partition_halted", "partition", p, "error", err)
				err = nil
			}
			refusals <- err
		}()
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for range partitions {
		select {
		case err := <-refusals:
			if err != nil {
				return err
			}
		case <-timeout.C:
			w.s.log.Warn("worker attached before all partitions answered", "event", "worker_partitions_late", "what", what)
			return nil
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	return nil
}

// register makes the worker's functions known to every partition.
func (w *session) register(h *perdurev1.Hello) error {
	var all []uint32
	for p := range w.s.router.Partitions() {
		all = append(all, p)
	}
	functions := slices.DeleteFunc(slices.Clone(h.Functions), func(fn string) bool {
		_, cleanup := state.CleanedUp(fn)
		return cleanup // no client starts one by name
	})
	return w.everywhere("functions", helloPartitionsTimeout, all, func(ctx context.Context, p uint32) error {
		// A replica that lags may not know them yet; registering again is harmless.
		level := group.Stale
		if h.ComponentDigest != "" {
			level = group.Linearizable // it must not miss an execution that has just got stuck
		}
		reply, _, err := w.s.router.Read(ctx, p, level, &commandv1.Query{Namespace: w.ns, Kind: &commandv1.Query_Functions{
			Functions: &commandv1.FunctionsQuery{Functions: functions, Digest: h.ComponentDigest, Code: codeOf(h)}}})
		if err != nil {
			return err
		}
		unknown := reply.GetFunctions().Unknown
		for more := len(unknown) > 0; more; {
			reply, err := w.s.router.Deliver(ctx, p, &commandv1.Command{Namespace: w.ns, Kind: &commandv1.Command_RegisterFunctions{
				RegisterFunctions: &commandv1.RegisterFunctions{Functions: unknown, Digest: h.ComponentDigest, Code: codeOf(h)}}})
			if err != nil {
				return err
			}
			more = reply.GetRegisterFunctions().GetMore()
		}
		return nil
	})
}

// extendHeld starts to extend the leases of Hello.held in all partitions concurrently, as a heartbeat does.
// The returned function blocks for at most a quarter of the lease and returns the tasks that are no longer
// the worker's. Partitions that have not answered by then answer the worker's heartbeats.
func (w *session) extendHeld(h *perdurev1.Hello) (lost func() []*perdurev1.TaskToken) {
	claimed := w.s.router.ByPartition(h.Held)
	var mu sync.Mutex
	var gone []*perdurev1.TaskToken
	done := make(chan error, 1)
	go func() {
		done <- w.everywhere("held tasks", w.lease/heldFraction, slices.Sorted(maps.Keys(claimed)), func(ctx context.Context, p uint32) error {
			for left := claimed[p]; len(left) > 0; {
				n := beatLength(left)
				reply, err := w.s.router.Deliver(ctx, p, &commandv1.Command{Kind: &commandv1.Command_Heartbeat{
					Heartbeat: &commandv1.Heartbeat{Worker: h.WorkerId, Tasks: left[:n]}}})
				if err != nil {
					return err
				}
				left = left[n:]
				mu.Lock()
				gone = append(gone, reply.GetHeartbeat().GetLost()...)
				mu.Unlock()
			}
			return nil
		})
	}()
	return func() []*perdurev1.TaskToken {
		if err := <-done; err != nil && w.ctx.Err() == nil {
			w.s.log.Warn("cannot compare held tasks", "event", "worker_not_compared", "worker", h.WorkerId, "error", err)
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(gone)
	}
}

// beatLength is how many of these tasks one heartbeat may name: at least one.
func beatLength(tasks []*perdurev1.TaskToken) int {
	size := 0
	for i, t := range tasks {
		size += len(t.Namespace) + len(t.Id)
		if i > 0 && (i == maxBeatTasks || size > maxBeatBytes) {
			return i
		}
	}
	return len(tasks)
}

// isRetryable reports whether err carries a reason that api.Retryable accepts.
func isRetryable(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && api.Retryable(e.Reason)
}

// retry repeats try while its error says that it was not applied or may be applied twice, until ctx ends.
func (s *Server) retry(ctx context.Context, try func() error) error {
	pause := 5 * time.Millisecond
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case !isRetryable(err), api.Is(err, perdurev1.Reason_REASON_SHUTTING_DOWN) && s.isStopping():
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}
