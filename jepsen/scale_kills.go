package jepsen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"perdure/client"
	"perdure/id"
)

// leaderOf is the node that leads the partition of an execution.
func (c *Cluster) leaderOf(ctx context.Context, cl *client.Client, executionID string) (*Node, error) {
	e, err := cl.Describe(ctx, executionID)
	if err != nil {
		return nil, err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range status.GetPartitions() {
		for _, n := range c.nodes {
			if p.GetPartition() == e.GetPartition() && n.Name == p.GetLeader() {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("partition %d has no leader", e.GetPartition())
}

// workerOf is the worker that has an execution's task; nil if none has.
func (c *Cluster) workerOf(ctx context.Context, cl *client.Client, executionID string) (*Worker, error) {
	e, err := cl.Describe(ctx, executionID)
	if err != nil {
		return nil, err
	}
	for _, w := range c.workers {
		if strings.HasPrefix(e.GetWakeSource(), "worker "+w.Name+"-") {
			return w, nil
		}
	}
	return nil, nil
}

// kills kills the worker that has an execution, and the leader of its partition, in turn and spread over the journal.
func (r *scaleRun) kills(ctx context.Context, executionID string, events int) error {
	for i := range r.o.Kills {
		at := events * (i + 1) / (r.o.Kills + 1)
		if err := waitFor(ctx, fmt.Sprintf("event %d of %s", at, executionID), func(ctx context.Context) error {
			e, err := r.cl.Describe(ctx, executionID)
			if err == nil && int(e.GetJournalEvents()) < at {
				err = fmt.Errorf("it has %d", e.GetJournalEvents())
			}
			return err
		}); err != nil {
			return err
		}
		if i%2 == 1 {
			n, err := r.c.leaderOf(ctx, r.cl, executionID)
			if err == nil {
				err = errors.Join(n.Kill(), n.Start())
			}
			if err == nil {
				err = r.c.WaitReady(ctx, n)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := waitFor(ctx, "the worker of "+executionID, func(ctx context.Context) error {
			w, err := r.c.workerOf(ctx, r.cl, executionID)
			if err != nil || w == nil {
				return errors.Join(err, errors.New("no worker has it"))
			}
			return errors.Join(w.Kill(), w.Start())
		}); err != nil {
			return err
		}
	}
	return nil
}

// noteGaps notes how many workers and leaders were killed, and the longest times between two steps.
func (r *scaleRun) noteGaps(at []int64) {
	var gaps []int64
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, at[i]-at[i-1])
	}
	slices.Sort(gaps)
	var longest []time.Duration
	for _, ms := range gaps[max(0, len(gaps)-2*r.o.Kills):] {
		longest = append(longest, time.Duration(ms)*time.Millisecond)
	}
	r.note("%d kills of the worker and the leader in turn; the longest times between two steps: %v", r.o.Kills, longest)
}

// checkWarning checks that there was one warning about a long journal: in the metrics, which a restart of the
// node clears, and in the log.
func (r *scaleRun) checkWarning(ctx context.Context, executionID string, events int) error {
	want := 0
	if events >= id.JournalWarnEvents {
		want = 1
	}
	counted, logged := 0.0, 0
	for _, n := range r.c.nodes {
		values, err := n.metric(ctx, "perdure_partition_long_journals_total")
		if err != nil {
			return err
		}
		for _, v := range values {
			counted += v
		}
		text, err := os.ReadFile(n.LogFile)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "event=journal_long") && strings.Contains(line, executionID) {
				logged++
			}
		}
	}
	r.note("warnings about a long journal: %.0f in the metrics, %d in the logs", counted, logged)
	if logged != want || r.o.Kills == 0 && int(counted) != want {
		r.violate("a journal of %d events has %d warnings in the logs and %.0f in the metrics, not %d", events, logged, counted, want)
	}
	return nil
}

// metric is the value of each series of a metric of the node.
func (n *Node) metric(ctx context.Context, name string) (values []float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTPAddr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text := lines.Text(); strings.HasPrefix(text, name+"{") || strings.HasPrefix(text, name+" ") {
			words := strings.Fields(text)
			v, err := strconv.ParseFloat(words[len(words)-1], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
			values = append(values, v)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("the metrics of %s lack %s", n.Name, name)
	}
	return values, nil
}
