package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is what processes have used since they started. RSS alone is a level and no sum over time.
type Usage struct {
	// CPU is user and system time, of all threads.
	CPU time.Duration
	// Written is the bytes that went to the page cache to be stored.
	Written int64
	// RSS is the resident memory in bytes.
	RSS int64
	// Metrics are the counters of the nodes' /metrics, summed up over labels and nodes; nil for other processes.
	Metrics map[string]float64
}

// Sub returns what was used between two readings; RSS is the growth.
func (u Usage) Sub(before Usage) Usage {
	out := Usage{CPU: u.CPU - before.CPU, Written: u.Written - before.Written, RSS: u.RSS - before.RSS, Metrics: map[string]float64{}}
	for name, v := range u.Metrics {
		out.Metrics[name] = v - before.Metrics[name]
	}
	return out
}

// Add returns the sum of two processes' figures.
func (u Usage) Add(v Usage) Usage {
	u.add(v)
	return u
}

// add adds the figures of another process.
func (u *Usage) add(v Usage) {
	u.CPU, u.Written, u.RSS = u.CPU+v.CPU, u.Written+v.Written, u.RSS+v.RSS
	for name, n := range v.Metrics {
		if u.Metrics == nil {
			u.Metrics = map[string]float64{}
		}
		u.Metrics[name] += n
	}
}

// Usage returns what all nodes have used. A node that does not run counts with what it had used.
func (c *Cluster) Usage(ctx context.Context) (Usage, error) {
	var sum Usage
	for _, n := range c.nodes { // the processors first: what the scrapes use is left out
		used, err := n.processes()
		if err != nil {
			return Usage{}, err
		}
		sum.add(used)
	}
	for _, n := range c.nodes {
		m, err := n.scrape(ctx)
		if err != nil {
			return Usage{}, err
		}
		sum.add(Usage{Metrics: m})
	}
	return sum, nil
}

// usage is what a node's processes have used.
func (n *Node) usage(ctx context.Context) (Usage, error) {
	used, err := n.processes()
	if err == nil {
		used.Metrics, err = n.scrape(ctx)
	}
	return used, err
}

// processes is what /proc shows of a node's processes, those before a restart included.
func (n *Node) processes() (Usage, error) {
	sum := Usage{CPU: n.past.CPU, Written: n.past.Written}
	if !n.Running() {
		return sum, nil
	}
	now, err := n.Process.Usage()
	sum.add(now)
	return sum, err
}

// scrape is what /metrics shows of a node's processes, those before a restart included.
func (n *Node) scrape(ctx context.Context) (map[string]float64, error) {
	sum := Usage{}
	sum.add(Usage{Metrics: n.past.Metrics})
	if n.Running() {
		m, err := n.metrics(ctx)
		if err != nil {
			return nil, err
		}
		sum.add(Usage{Metrics: m})
	}
	return sum.Metrics, nil
}

// leaderMetric is 1 for each partition that a node leads.
const leaderMetric = "perdure_partition_leader"

// metrics reads the node's /metrics. The cluster's own directory is no partition and left out.
func (n *Node) metrics(ctx context.Context) (map[string]float64, error) {
	body, err := n.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parseMetrics(body)
}

func (n *Node) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := web.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s%s answers %s", n.http, path, resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// parseMetrics sums up the samples of each name.
func parseMetrics(r io.Reader) (map[string]float64, error) {
	out := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || strings.Contains(line, `partition="directory"`) {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			continue
		}
		name, _, _ := strings.Cut(line[:at], "{")
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics line %q: %w", line, err)
		}
		out[name] += v
	}
	return out, lines.Err()
}

// tick is the unit of CPU time in /proc: 1/100 s on every Linux platform that Go supports.
const tick = 10 * time.Millisecond

// Usage returns what the process and its child processes have used, from /proc. A child counts while it runs.
func (p *Process) Usage() (Usage, error) {
	pid := p.cmd.Process.Pid
	used, err := usageOf(pid)
	if err != nil {
		return used, err
	}
	children, err := childrenOf(pid)
	if err != nil {
		return used, err
	}
	for _, child := range children {
		u, err := usageOf(child)
		if ended(err) != nil {
			return used, err
		}
		used.add(u)
	}
	return used, nil
}

// ended drops the error of a process or thread that has ended meanwhile.
func ended(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return gone(err)
}

// childrenOf lists the child processes of a process, whichever of its threads has started them.
func childrenOf(pid int) (children []int, err error) {
	lists, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if ended(err) != nil {
			return nil, err
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list, err)
			}
			children = append(children, child)
		}
	}
	return children, nil
}

func usageOf(pid int) (Usage, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/"
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return Usage{}, err
	}
	// The name, in parentheses, may hold spaces. After it: utime and stime are fields 12 and 13, rss 22
	// (pages), counted from 1 at the state.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	number := func(i int) (n int64) {
		if err == nil {
			n, err = strconv.ParseInt(fields[i-1], 10, 64)
		}
		return n
	}
	if len(fields) < 22 {
		return Usage{}, fmt.Errorf("%sstat has %d fields", dir, len(fields))
	}
	u := Usage{CPU: time.Duration(number(12)+number(13)) * tick, RSS: number(22) * int64(os.Getpagesize())}
	if err != nil {
		return Usage{}, fmt.Errorf("%sstat: %w", dir, err)
	}
	io, err := os.ReadFile(dir + "io")
	if err != nil {
		return Usage{}, err
	}
	for line := range strings.Lines(string(io)) {
		if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			u.Written, err = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return u, err
}
