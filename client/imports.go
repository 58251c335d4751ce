package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	perdurev1 "perdure/api/perdure/v1"
)

const (
	// importStall is how long a node may take for one message of an import: a partition's election is within it.
	importStall = 3 * time.Minute
	// importQueue is how many messages wait for one stream.
	importQueue = 16
)

var (
	// errImportEnded ends the messages of an attempt that has failed.
	errImportEnded = errors.New("client: the attempt to import has ended")
	// errImportStalled ends a stream that takes no message.
	errImportStalled = errors.New("the node stored no message")
)

// Import brings the messages of a restore (perdurev1.Restores) into the cluster, over so many streams at once, each for
// some of the partitions. The ends of the partitions follow when all rows are stored. messages is called with what sends
// one of them; Import calls it again, from the beginning, after a refusal that passes or a lost connection. It gives up
// when Options.Timeout passes without a message that is new. Repeating it with the same messages completes it. The
// answer counts what the last attempt stored. Errors: those of messages; ErrUnavailable; *api.Error with RULE_BROKEN
// (the cluster is not empty), BAD_REQUEST or FEATURE_LEVEL.
func (c *Client) Import(ctx context.Context, streams int, messages func(send func(*perdurev1.ImportRequest) error) error) (*perdurev1.ImportResponse, error) {
	var (
		farthest int
		failing  time.Time
		pause    = backoffMin
		gone     = &callError{op: "import"}
	)
	for {
		n := c.node()
		sent, resp, err := c.importOnce(ctx, n, streams, messages)
		if err == nil {
			return resp, nil
		}
		gone.attempts++
		var remote *importError
		if !errors.As(err, &remote) {
			return nil, err
		}
		verdict, cause := classify(remote.err, true)
		if verdict == final || verdict == broken {
			return nil, cause
		}
		if sent > farthest || failing.IsZero() {
			farthest, failing, pause = max(sent, farthest), c.clock.Now(), backoffMin
		}
		gone.cause = cause
		if ctx.Err() != nil || c.closed.Load() || c.clock.Now().Sub(failing) >= c.opts.Timeout {
			gone.kind, gone.ended = ErrUnavailable, ctx.Err()
			return nil, gone
		}
		c.leave(n)
		c.log.DebugContext(ctx, "import failed, will retry", "node", n.addr, "attempt", gone.attempts, "sent", sent, "err", cause)
		select {
		case <-c.clock.After(c.jitter(max(pause, retryAfter(cause)))):
		case <-ctx.Done():
		}
		pause = min(2*pause, backoffMax)
	}
}

// importError is an error of the node or of the way to it.
type importError struct{ err error }

func (e *importError) Error() string { return e.err.Error() }
func (e *importError) Unwrap() error { return e.err }

// importOnce makes one attempt at one node, and returns how many messages were handed to streams.
func (c *Client) importOnce(ctx context.Context, n *node, streams int, messages func(send func(*perdurev1.ImportRequest) error) error) (sent int, _ *perdurev1.ImportResponse, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		first *perdurev1.ImportRequest
		lanes *importLanes
		ends  []*perdurev1.ImportRequest
		out   = &perdurev1.ImportResponse{}
	)
	err = messages(func(m *perdurev1.ImportRequest) error {
		switch {
		case first == nil:
			first, lanes = m, openLanes(ctx, n, m, streams)
		case m.Done != nil:
			ends = append(ends, m)
		default:
			if err := lanes.send(m); err != nil {
				return err
			}
			sent++
		}
		return nil
	})
	if lanes == nil {
		return 0, out, err
	}
	if err != nil {
		cancel()
	}
	if laneErr := lanes.close(out); err == nil || errors.Is(err, errImportEnded) {
		err = laneErr
	}
	if err != nil {
		return sent, out, err
	}
	last := openLanes(ctx, n, first, 1)
	for _, m := range ends {
		if last.send(m) != nil {
			break // close says why
		}
		sent++
	}
	return sent, out, last.close(out)
}

// importLanes are the streams of an attempt.
type importLanes struct {
	ctx     context.Context
	group   *errgroup.Group
	queues  []chan *perdurev1.ImportRequest
	answers []*perdurev1.ImportResponse
}

func openLanes(ctx context.Context, n *node, first *perdurev1.ImportRequest, streams int) *importLanes {
	group, ctx := errgroup.WithContext(ctx)
	streams = max(1, min(streams, int(first.Partitions)))
	l := &importLanes{ctx: ctx, group: group, answers: make([]*perdurev1.ImportResponse, streams)}
	for i := range streams {
		queue := make(chan *perdurev1.ImportRequest, importQueue)
		queue <- first
		l.queues = append(l.queues, queue)
		group.Go(func() (err error) {
			if l.answers[i], err = runLane(ctx, n, queue); err != nil {
				return &importError{err}
			}
			return nil
		})
	}
	return l
}

// send waits until the stream of the partition takes the message, or one has failed.
func (l *importLanes) send(m *perdurev1.ImportRequest) error {
	select {
	case l.queues[int(m.Partition)%len(l.queues)] <- m:
		return nil
	case <-l.ctx.Done():
		return errImportEnded
	}
}

// close waits until the nodes have stored everything.
func (l *importLanes) close(sum *perdurev1.ImportResponse) error {
	for _, queue := range l.queues {
		close(queue)
	}
	if err := l.group.Wait(); err != nil {
		return err
	}
	for _, answer := range l.answers {
		sum.Rows += answer.GetRows()
		sum.Bytes += answer.GetBytes()
	}
	return nil
}

// runLane sends a queue of messages over one stream. It ends when a message takes longer than importStall.
func runLane(ctx context.Context, n *node, queue <-chan *perdurev1.ImportRequest) (*perdurev1.ImportResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(importStall, func() { cancel(errImportStalled) })
	defer timer.Stop()
	stalled := func(err error) error {
		if err != nil && errors.Is(context.Cause(ctx), errImportStalled) {
			return fmt.Errorf("%w within %s: %w", errImportStalled, importStall, err)
		}
		return err
	}
	stream, err := perdurev1.NewRestoresClient(n.conn).Import(ctx)
	if err != nil {
		return nil, stalled(err)
	}
	for {
		timer.Stop() // the caller may take as long as it wants to make a message
		select {
		case m, open := <-queue:
			timer.Reset(importStall)
			if open {
				err := stream.Send(m)
				if err == nil {
					continue
				}
				if !errors.Is(err, io.EOF) {
					return nil, stalled(err)
				}
			}
			resp, err := stream.CloseAndRecv()
			return resp, stalled(err)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
