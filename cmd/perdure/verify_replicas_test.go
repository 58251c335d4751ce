package main

import (
	"context"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// cut is a well cluster of one partition after a change to its replicas.
func cut(change func(p *perdurev1.ClusterPartition, r []*perdurev1.ClusterReplica)) *perdurev1.ClusterStatus {
	s := wellCluster()
	s.Partitions = s.Partitions[:1]
	s.Partitions[0].Comparison, s.Partitions[0].ComparedIndex = "unknown", 0
	change(s.Partitions[0], s.Partitions[0].Replicas)
	return s
}

func TestCompareReplicas(t *testing.T) {
	type part = perdurev1.ClusterPartition
	type replicas = []*perdurev1.ClusterReplica
	none := cut(func(_ *part, r replicas) {
		for _, r := range r {
			r.ChecksumIndex, r.Checksum = 0, 0
		}
	})
	for _, c := range []struct {
		name     string
		statuses []*perdurev1.ClusterStatus
		code     int
		says     string
	}{
		{"at once", []*perdurev1.ClusterStatus{wellCluster()}, exitDone, "partition 2: equal at index 1200 on n1, n2 and n3\n"},
		{"after a while", []*perdurev1.ClusterStatus{{}, none, none, cut(func(*part, replicas) {})}, exitDone, "partition 0: equal at index 1200 on n1, n2 and n3\n"},
		// They pass the same index at different times.
		{"one after the other", []*perdurev1.ClusterStatus{
			cut(func(_ *part, r replicas) { r[2].ChecksumIndex, r[2].Checksum = 1100, 5 }),
			cut(func(_ *part, r replicas) {
				r[0].ChecksumIndex, r[1].ChecksumIndex, r[0].Checksum, r[1].Checksum = 1300, 1300, 99, 99
			}),
		}, exitDone, "partition 0: equal at index 1200 on n1, n2 and n3\n"},
		{"one after the other, different", []*perdurev1.ClusterStatus{
			cut(func(_ *part, r replicas) { r[2].ChecksumIndex, r[2].Checksum = 1100, 5 }),
			cut(func(_ *part, r replicas) { r[0].ChecksumIndex, r[1].ChecksumIndex, r[2].Checksum = 1300, 1300, 78 }),
		}, exitFailed, "violation: replicas_differ: the replicas do not hold the same at index 1200 (partition 0)\n"},
		{"the cluster says different", []*perdurev1.ClusterStatus{cut(func(p *part, _ replicas) { p.Comparison, p.ComparedIndex = "different", 1152 })},
			exitFailed, "do not hold the same at index 1152"},
		{"nothing was ever written", []*perdurev1.ClusterStatus{cut(func(_ *part, r replicas) {
			for _, r := range r {
				r.Applied, r.LastIndex, r.Lag, r.ChecksumIndex, r.Checksum = 0, 2, 0, 0, 0
			}
		})}, exitDone, "partition 0: equal at index 0 on n1, n2 and n3\n"},
		{"nothing has come to one", []*perdurev1.ClusterStatus{cut(func(_ *part, r replicas) { r[2].Applied, r[2].ChecksumIndex, r[2].Checksum = 0, 0, 0 })},
			exitUnavailable, "partition 0: equal at index 1200 on n1 and n2; not compared: n3 (follower)\n"},
		{"never", []*perdurev1.ClusterStatus{none}, exitUnavailable, "partition 0: not compared: n1 (leader), n2 (follower), n3 (follower)\n"},
		{"one is away", []*perdurev1.ClusterStatus{cut(func(_ *part, r replicas) { r[2].State, r[2].ChecksumIndex = "unreachable", 0 })},
			exitUnavailable, "partition 0: equal at index 1200 on n1 and n2; not compared: n3 (unreachable)\n"},
		{"two are away", []*perdurev1.ClusterStatus{cut(func(_ *part, r replicas) {
			r[1].State, r[1].ChecksumIndex, r[2].State, r[2].ChecksumIndex = "unreachable", 0, "unreachable", 0
		})}, exitUnavailable, "partition 0: not compared: n1 (leader), n2 (unreachable), n3 (unreachable)\n"},
		{"one comes back", []*perdurev1.ClusterStatus{
			cut(func(_ *part, r replicas) { r[2].State, r[2].ChecksumIndex = "unreachable", 0 }),
			cut(func(_ *part, r replicas) { r[2].ChecksumIndex = 0 }),
			cut(func(_ *part, r replicas) { r[2].State, r[2].ChecksumIndex = "unreachable", 0 }),
			wellCluster(),
		}, exitDone, "partition 0: equal at index 1200 on n1, n2 and n3\n"},
		{"one has halted", []*perdurev1.ClusterStatus{cut(func(_ *part, r replicas) {
			r[2].State, r[2].Problem, r[2].ChecksumIndex = "halted", "it differs", 0
		})}, exitFailed, "violation: replica_halted: the replica on n3 has halted (it differs) (partition 0)\n"},
		{"no partitions", []*perdurev1.ClusterStatus{{}}, exitUnavailable, ""},
		{"one node", []*perdurev1.ClusterStatus{aloneCluster()}, exitDone, "each of 4 partitions has one replica: nothing to compare\nok\n"},
		{"no cluster", nil, exitDone, "replicas were not compared: this server has no operators' service\nok\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := sound()
			s.statuses = c.statuses
			within := deadline.String()
			away := strings.Contains(c.says, "unreachable")
			if c.code == exitUnavailable && !away {
				within = "2s" // for what never comes
			}
			sh := &shell{addr: s.serve(t)}
			stdout, stderr, code := sh.run("verify", "--compare-within", within)
			if code != c.code || !strings.Contains(stdout, c.says) {
				t.Errorf("exit %d, want %d and %q:\n%s%s", code, c.code, c.says, stdout, stderr)
			}
			if strings.Contains(stderr, "hint: start n") != away || away && !strings.Contains(stderr, "cannot be reached\n") {
				t.Errorf("stderr %q", stderr)
			}
			if wants := "NOT_COMPARED"; strings.Contains(stderr, wants) != (code == exitUnavailable) {
				t.Errorf("stderr %q", stderr)
			}
		})
	}
}

// verify prints the problems of journals before it compares the replicas, which may take long.
func TestVerifyTellsJournalsFirst(t *testing.T) {
	s := sound()
	s.statuses = []*perdurev1.ClusterStatus{cut(func(_ *perdurev1.ClusterPartition, r []*perdurev1.ClusterReplica) { r[2].ChecksumIndex = 0 })}
	ctx, cancel := context.WithCancel(t.Context())
	out := &enough{what: "executions", stop: cancel}
	var stderr strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: out, stderr: &stderr, now: func() time.Time { return fakeNow }, zone: time.UTC, random: zeros{},
		lookup: func(string) (string, bool) { return "", false }}
	code := a.run(ctx, []string{"verify", "--addr", s.serve(t), "--compare-within", deadline.String()})
	if code != exitFailed || !strings.Contains(out.String(), "executions  7\n") || !strings.Contains(stderr.String(), "INTERRUPTED") {
		t.Errorf("exit %d, %q, %q", code, out.String(), stderr.String())
	}
}

// enough is an output whose reader has read enough at a word.
type enough struct {
	strings.Builder
	what string
	stop func()
}

func (e *enough) Write(p []byte) (int, error) {
	if strings.Contains(string(p), e.what) {
		e.stop()
	}
	return e.Builder.Write(p)
}

// When the cluster cannot be asked any more, that is the answer.
func TestCompareUnavailable(t *testing.T) {
	e := &notComparedError{partitions: []uint32{1, 2, 4}, waited: time.Minute}
	if got := e.Error(); got != "not every replica of partitions 1, 2 and 4 could be compared within 1m0s" {
		t.Error(got)
	}
	s := sound()
	addr := s.serve(t)
	s.statuses = nil
	sh := &shell{addr: addr}
	if stdout, _, code := sh.run("verify", "--json"); code != exitDone || !strings.Contains(stdout, `"replicas":null,"violations":[]`) {
		t.Errorf("exit %d, %s", code, stdout)
	}
}
