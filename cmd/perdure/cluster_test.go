package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// The operators' service of the fake server.

func (s *fakeServer) GetStatus(_ context.Context, r *perdurev1.GetStatusRequest) (*perdurev1.ClusterStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	if len(s.statuses) == 0 {
		return nil, status.Error(codes.Unimplemented, "this server has no operators' service")
	}
	look := s.statuses[0]
	if len(s.statuses) > 1 {
		s.statuses = s.statuses[1:]
	}
	select {
	case s.answered <- struct{}{}:
	default:
	}
	return look, nil
}

func (s *fakeServer) Upgrade(_ context.Context, r *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	resp := &perdurev1.UpgradeResponse{From: 4, Level: max(4, r.GetLevel())}
	switch r.GetLevel() {
	case 0:
		resp.Level = 5
	case 6:
		resp.Waiting = []uint32{1, 3}
	case 7:
		return nil, api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "feature level 7 is not known to all members of cluster c: node n2 knows up to 6, node n3 has not been heard from")
	}
	return resp, nil
}

func (s *fakeServer) TransferLeadership(_ context.Context, r *perdurev1.TransferLeadershipRequest) (*perdurev1.TransferLeadershipResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	resp := &perdurev1.TransferLeadershipResponse{}
	for _, p := range s.statuses[0].GetPartitions() {
		if r.Partition != nil && p.GetPartition() == r.GetPartition() || r.Partition == nil && p.GetLeader() == r.GetFromNode() {
			to := r.GetToNode()
			switch to {
			case "":
				to = "n2"
			case "n3":
				to = "n1" // n3 lost the election
			}
			resp.Transferred = append(resp.Transferred, &perdurev1.TransferredLeadership{Partition: p.GetPartition(), Leader: to})
		}
	}
	if len(resp.Transferred) == 0 && r.Partition != nil {
		return nil, api.Errorf(perdurev1.Reason_REASON_PARTITION_NOT_FOUND, "there is no partition %d", r.GetPartition()).With("partition", fmt.Sprint(r.GetPartition()))
	}
	return resp, nil
}

func (s *fakeServer) RebuildReplica(ctx context.Context, r *perdurev1.RebuildReplicaRequest) (*perdurev1.RebuildReplicaResponse, error) {
	s.mu.Lock()
	err := s.note(r)
	s.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case r.GetNodeId() == "n9":
		return nil, api.Errorf(perdurev1.Reason_REASON_NODE_NOT_FOUND, "there is no node n9").With("node", "n9")
	case r.GetNodeId() == "n1":
		return &perdurev1.RebuildReplicaResponse{Applied: 1207, DoneMsAgo: 3_600_000}, nil
	case s.rebuilt != nil:
		select {
		case <-s.rebuilt:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &perdurev1.RebuildReplicaResponse{Applied: 1207}, nil
}

func (s *fakeServer) ForgetQuarantined(_ context.Context, r *perdurev1.ForgetQuarantinedRequest) (*perdurev1.ForgetQuarantinedResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	all := []*perdurev1.QuarantinedReplica{{Partition: r.GetPartition(), Name: "kept-0002-20260102T030405.678", Bytes: 13_400_000},
		{Partition: r.GetPartition(), Name: "kept-0002-20260103T030405.678", Bytes: 912}}
	switch {
	case r.GetNodeId() == "n9":
		return nil, api.Errorf(perdurev1.Reason_REASON_NODE_NOT_FOUND, "there is no node n9").With("node", "n9")
	case r.GetNodeId() == "n2":
		return nil, api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, "partition 2 has halted on node n2, and its quarantined files stay until it has been rebuilt")
	case r.GetNodeId() == "n1":
		all = nil
	case r.GetName() != "":
		all = all[:1]
	}
	return &perdurev1.ForgetQuarantinedResponse{Forgotten: all}, nil
}

// wellCluster is a cluster of three in which all is well.
func wellCluster() *perdurev1.ClusterStatus {
	s := &perdurev1.ClusterStatus{ClusterId: "c-7f31", Epoch: 9, State: "ready", AnsweredBy: "n2", DirectoryLeader: "n1", FeatureLevel: 5}
	for i, leads := range []uint32{2, 1, 1} {
		n := i + 1
		s.Nodes = append(s.Nodes, &perdurev1.ClusterNode{NodeId: fmt.Sprintf("n%d", n), ServerId: fmt.Sprintf("n%d-0a", n),
			PeerAddr: fmt.Sprintf("10.0.0.%d:7402", n), GrpcAddr: fmt.Sprintf("10.0.0.%d:7400", n), HttpAddr: fmt.Sprintf("10.0.0.%d:7401", n),
			Reachable: true, Leads: leads, ClockOffsetMs: int64(i * 20), FeatureLevel: 5, Version: "v1.2.3",
			Retention: &perdurev1.RetentionStatus{Rules: []string{"30d", "billing=90d"}, Purged: uint64(i), Waiting: uint64(i)}})
	}
	for p, leader := range []string{"n1", "n2", "n3", "n1"} {
		part := &perdurev1.ClusterPartition{Partition: uint32(p), Leader: leader, Preferred: leader, Term: 4, Comparison: "equal", ComparedIndex: 1200, FeatureLevel: 5}
		if p == 3 {
			part.Preferred = "n2"
		}
		for _, n := range s.Nodes {
			r := &perdurev1.ClusterReplica{NodeId: n.NodeId, State: "follower", LastIndex: 1210, Applied: 1208, Lag: 2, Checksum: 77, ChecksumIndex: 1200}
			if n.NodeId == leader {
				r.State, r.Applied, r.Lag = "leader", 1210, 0
			}
			part.Replicas = append(part.Replicas, r)
		}
		s.Partitions = append(s.Partitions, part)
	}
	return s
}

// backupSchedule is that of a node that makes the backups, a day's each.
func backupSchedule() *perdurev1.BackupSchedule {
	return &perdurev1.BackupSchedule{Url: "s3://backups/perdure", EveryMs: 24 * 3_600_000, Keep: 7, Leads: true,
		LastName: "20260506T070809Z", LastMs: 1_778_051_289_000, LastBytes: 3 << 30, NextMs: 1_778_137_689_000}
}

// unhealthyCluster has everything wrong with it that can be.
func unhealthyCluster() *perdurev1.ClusterStatus {
	s := wellCluster()
	s.State, s.DirectoryLeader = "creating", ""
	n3 := s.Nodes[2]
	n3.Reachable, n3.Problem, n3.GrpcAddr, n3.HttpAddr, n3.Version = false, "dial tcp 10.0.0.3:7402: connection refused", "", "", ""
	n3.Retention = nil
	s.Nodes[1].ClockOffsetMs = -2500
	s.Nodes[0].Backups, s.Nodes[1].Backups = backupSchedule(), backupSchedule()
	s.Nodes[0].Backups.Leads, s.Nodes[1].Backups.Failures, s.Nodes[1].Backups.Problem = false, 3, "cannot store files/00: \x1b[2Jfull"
	for _, p := range s.Partitions {
		p.Replicas[2].State, p.Replicas[2].Applied, p.Replicas[2].Checksum, p.Replicas[2].ChecksumIndex = "unreachable", 0, 0, 0
	}
	s.Partitions[0].Replicas[1].Checksum = 78
	s.Partitions[0].Comparison = "different"
	s.Partitions[1].Replicas[0].State, s.Partitions[1].Replicas[0].Problem = "halted", "the state \x1b[2Jdiffers"
	s.Partitions[1].Comparison, s.Partitions[1].ComparedIndex = "unknown", 0
	s.Partitions[2].Leader = ""
	s.Partitions[2].Replicas[0].State = "candidate"
	s.Partitions[2].Replicas[1].State, s.Partitions[2].Replicas[1].Problem = "unreachable", "no answer"
	s.Partitions[3].Replicas[1].State, s.Partitions[3].Replicas[1].Applied, s.Partitions[3].Replicas[1].Lag = "rebuilding", 10, 1200
	return s
}

// aloneCluster is one node by itself.
func aloneCluster() *perdurev1.ClusterStatus {
	s := wellCluster()
	s.Nodes = s.Nodes[:1]
	s.AnsweredBy = "n1"
	for _, p := range s.Partitions {
		p.Leader, p.Preferred, p.Replicas, p.Comparison, p.ComparedIndex = "n1", "n1", p.Replicas[:1], "unknown", 0
		p.Replicas[0].State, p.Replicas[0].Lag = "leader", 0
	}
	return s
}

// rebuiltCluster is well, and has something worth knowing.
func rebuiltCluster() *perdurev1.ClusterStatus {
	s := wellCluster()
	s.Nodes[2].ClockOffsetMs = 900
	s.Quotas = []*perdurev1.NamespaceUse{{Namespace: "billing", Open: 12, OpenLimit: 1000, Bytes: 3 << 20, BytesLimit: 1 << 30, StartsLimit: 50, Refused: 7}}
	s.Nodes[1].Retention = &perdurev1.RetentionStatus{}
	s.Nodes[0].Backups = backupSchedule()
	s.Nodes[2].Backups = &perdurev1.BackupSchedule{Url: "s3://backups/perdure", EveryMs: 6 * 3_600_000, Keep: 7}
	s.Nodes[2].Retention.Idle = "command purge needs feature level 5, the cluster is at 4"
	s.Partitions[0].Replicas[1].State = "rebuilding"
	s.Partitions[0].Comparison = "unknown"
	s.Partitions[1].Replicas[2].Lag, s.Partitions[2].Replicas[1].Lag, s.Partitions[3].Replicas[2].Lag = 300, 256, 4000
	return s
}

func TestClusterStatus(t *testing.T) {
	s := newFakeServer()
	sh := &shell{addr: s.serve(t)}
	s.statuses = []*perdurev1.ClusterStatus{wellCluster(), rebuiltCluster(), aloneCluster(), unhealthyCluster(), unhealthyCluster(), wellCluster()}
	sh.story(t, "cluster_status",
		"# All is well.", "cluster status",
		"# Well, with a note.", "cluster status",
		"# One node.", "cluster status",
		"# Nothing is well.", "cluster status", "cluster status --json",
		"cluster status --json",
		"# Invalid arguments.",
		"cluster", "cluster stauts", "cluster status n1", "cluster status --every 0s")

	none := &shell{addr: newFakeServer().serve(t)}
	none.story(t, "cluster_none", "# A server that is no cluster's.", "cluster status", "cluster status --json")
}

// Each state that an operator may be woken by, from what a node answers to what is read.
func TestClusterStates(t *testing.T) {
	change := func(f func(s *perdurev1.ClusterStatus)) *perdurev1.ClusterStatus {
		s := wellCluster()
		f(s)
		return s
	}
	away := func(s *perdurev1.ClusterStatus) {
		s.Nodes[2].Reachable, s.Nodes[2].Leads, s.Nodes[2].Problem = false, 0, "dial tcp 10.0.0.3:7402: connect: connection refused"
		for i, p := range s.Partitions {
			p.Replicas[2] = &perdurev1.ClusterReplica{NodeId: "n3", State: "unreachable"}
			if p.Leader == "n3" {
				p.Leader, s.Partitions[i].Replicas[0].State = "n1", "leader"
			}
		}
	}
	alone := func(s *perdurev1.ClusterStatus) {
		away(s)
		s.Nodes[1].Reachable, s.Nodes[1].Problem, s.DirectoryLeader, s.AnsweredBy = false, "context deadline exceeded", "n2", "n1"
		for _, p := range s.Partitions {
			p.Leader, p.Comparison, p.ComparedIndex = "", "unknown", 0
			p.Replicas[0].State, p.Replicas[0].Lag = "candidate", 0
			p.Replicas[1] = &perdurev1.ClusterReplica{NodeId: "n2", State: "unreachable"}
		}
	}
	halted := func(s *perdurev1.ClusterStatus) {
		s.Partitions[2].Replicas[0] = &perdurev1.ClusterReplica{NodeId: "n1", State: "halted", Lag: 1210, Problem: "state-0002: the manifest is damaged"}
	}
	s := newFakeServer()
	s.statuses = []*perdurev1.ClusterStatus{
		change(away), change(alone),
		change(func(s *perdurev1.ClusterStatus) {
			s.Partitions[1].Leader, s.Partitions[1].Replicas[1].State = "", "follower"
			for _, r := range s.Partitions[1].Replicas {
				r.Lag = 0
			}
		}),
		change(halted),
		change(func(s *perdurev1.ClusterStatus) { away(s); halted(s); s.Partitions[2].Leader = "" }),
		change(func(s *perdurev1.ClusterStatus) {
			for _, p := range []*perdurev1.ClusterPartition{s.Partitions[0], s.Partitions[1], s.Partitions[3]} {
				p.Replicas[2].Applied, p.Replicas[2].Lag, p.Comparison = 10, 1200, "unknown"
			}
		}),
		change(func(s *perdurev1.ClusterStatus) {
			for _, p := range s.Partitions {
				p.Comparison, p.ComparedIndex = "unknown", 0
			}
		}),
		change(func(s *perdurev1.ClusterStatus) {
			s.State, s.Epoch = "creating", 2
			for _, p := range s.Partitions[1:] {
				p.Leader, p.Comparison, p.Term = "", "unknown", 0
				for _, r := range p.Replicas {
					r.State, r.Applied, r.Lag = "follower", 0, 0
				}
			}
		}),
		change(func(s *perdurev1.ClusterStatus) {
			s.Nodes[0].Quarantined = []*perdurev1.QuarantinedReplica{{Partition: 1, Name: "kept-0001-20260102T030405.678", Bytes: 912}}
			s.Nodes[2].Quarantined = []*perdurev1.QuarantinedReplica{{Partition: 0, Name: "kept-0000-20260102T030405.678", Bytes: 13_400_000},
				{Partition: 2, Name: "kept-0002-20260102T030405.678", Bytes: 5}, {Partition: 2, Name: "kept-0002-20260103T030405.678", Bytes: 1_999_995}}
		}),
		change(func(s *perdurev1.ClusterStatus) {
			s.Nodes[0].Disk = &perdurev1.DiskStatus{Level: "ok", Free: 400_000_000_000, Total: 500_000_000_000, LowMark: 2 << 30, Reserve: 1 << 30, ReserveHeld: true}
			s.Nodes[1].Disk = &perdurev1.DiskStatus{Level: "low", Free: 1_900_000_000, Total: 500_000_000_000, LowMark: 2 << 30, Reserve: 1 << 30, ReserveHeld: true}
			s.Nodes[2].Disk = &perdurev1.DiskStatus{Level: "full", Free: 4096, Total: 500_000_000_000, LowMark: 2 << 30, Reserve: 1 << 30, ReserveHeld: true}
		}),
	}
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "cluster_states",
		"# One node is down.", "cluster status",
		"# One node is left of three.", "cluster status",
		"# A partition has no leader.", "cluster status",
		"# A replica has halted.", "cluster status",
		"# A replica has halted, and a node is down.", "cluster status",
		"# A node has come back and catches up.", "cluster status",
		"# Nothing could be compared yet.", "cluster status",
		"# The cluster is being created.", "cluster status",
		"# Replicas are quarantined.", "cluster status",
		"# Disks fill up.", "cluster status")
}

func TestReplicaForgetQuarantined(t *testing.T) {
	s := newFakeServer()
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "replica_forget_quarantined",
		"replica forget-quarantined --node n3 --partition 2", "replica forget-quarantined --node n3 --partition 2 --json",
		"replica forget-quarantined --node n3 --partition 2 --name kept-0002-20260102T030405.678",
		"# Nothing is quarantined.", "replica forget-quarantined --node n1 --partition 2", "replica forget-quarantined --node n1 --partition 2 --json",
		"# Refused.", "replica forget-quarantined --node n2 --partition 2", "replica forget-quarantined --node n9 --partition 2",
		"# Invalid arguments.",
		"replica forget-quarantined", "replica forget-quarantined --node n3", "replica forget-quarantined --partition 2", "replica forget-quarantined --node n3 --partition 2 --name ''",
		"replica forget-quarantined --help")
	want := &perdurev1.ForgetQuarantinedRequest{Partition: 2, NodeId: "n9"}
	if got := s.last["ForgetQuarantinedRequest"]; !proto.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 2_500_000_000: "2.5 GB", 7e15: "7000.0 TB"} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
}

// The last line and the exit code agree, for every problem.
func TestDiagnose(t *testing.T) {
	for what, change := range map[string]func(*perdurev1.ClusterStatus){
		"the cluster is being created: 4 of 4 partitions have a leader": func(s *perdurev1.ClusterStatus) { s.State = "creating" },
		"the cluster is not ready: closing":                             func(s *perdurev1.ClusterStatus) { s.State = "closing" },
		"the directory has no leader":                                   func(s *perdurev1.ClusterStatus) { s.DirectoryLeader = "" },
		"node n2 is unreachable (gone): check that it runs and that the network reaches it": func(s *perdurev1.ClusterStatus) {
			s.Nodes[1].Reachable, s.Nodes[1].Problem = false, "gone"
		},
		"partition 2 has no leader":                        func(s *perdurev1.ClusterStatus) { s.Partitions[2].Leader = "" },
		"the replicas of partition 1 differ at index 1200": func(s *perdurev1.ClusterStatus) { s.Partitions[1].Comparison = "different" },
		"partition 3 on node n1 has halted (why): perdure replica rebuild --node n1 --partition 3 rebuilds it": func(s *perdurev1.ClusterStatus) {
			s.Partitions[3].Replicas[0].State, s.Partitions[3].Replicas[0].Problem = "halted", "why"
		},
		"partition 0 on node n3 is unreachable": func(s *perdurev1.ClusterStatus) { s.Partitions[0].Replicas[2].State = "unreachable" },
	} {
		s := wellCluster()
		change(s)
		if wrong, _ := diagnose(s); !slices.Equal(wrong, []string{what}) {
			t.Errorf("%q, want %q", wrong, what)
		}
	}
	// Replicas of an absent node are not listed one by one.
	s := wellCluster()
	s.Nodes[2].Reachable = false
	for _, p := range s.Partitions {
		p.Replicas[2].State = "unreachable"
	}
	if wrong, notes := diagnose(s); len(wrong) != 1 || len(notes) != 0 {
		t.Errorf("a node away: %q, %q", wrong, notes)
	}
	if wrong, notes := diagnose(rebuiltCluster()); len(wrong) != 0 || len(notes) != 6 {
		t.Errorf("a rebuild, a clock, a lag, two retentions and three schedules of backups: %q, %q", wrong, notes)
	}
	if wrong, _ := diagnose(&perdurev1.ClusterStatus{}); len(wrong) == 0 {
		t.Error("a cluster that shows nothing is well")
	}
}

// A watch runs until it is interrupted; its exit code is that of the last status.
func TestClusterWatch(t *testing.T) {
	for _, c := range []struct {
		last *perdurev1.ClusterStatus
		code int
	}{{wellCluster(), exitDone}, {unhealthyCluster(), exitFailed}} {
		s := newFakeServer()
		s.statuses = []*perdurev1.ClusterStatus{unhealthyCluster(), wellCluster(), c.last}
		s.answered = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		sh := &shell{addr: s.serve(t), ctx: ctx}
		go func() {
			for range 4 {
				<-s.answered
			}
			cancel()
		}()
		stdout, stderr, code := sh.run("cluster", "status", "--watch", "--every", "10ms")
		if n := strings.Count(stdout, "PARTITION"); n < 3 || code != c.code || strings.Contains(stderr, "INTERRUPTED") {
			t.Errorf("%d answers, exit %d, want %d: %s", n, code, c.code, stderr)
		}
	}
}

func TestClusterTransfer(t *testing.T) {
	s := newFakeServer()
	s.statuses = []*perdurev1.ClusterStatus{wellCluster()}
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "cluster_transfer",
		"cluster transfer --partition 0", "cluster transfer --partition 0 --to n2 --json",
		"cluster transfer --from n1", "cluster transfer --from n1 --json", "cluster transfer --from n9",
		"# The one that was to lead did not win.", "cluster transfer --partition 1 --to n3",
		"cluster transfer --partition 7", "cluster transfer --partition 7 --json",
		"# Invalid arguments.",
		"cluster transfer", "cluster transfer --to n1", "cluster transfer --partition 1 --from n1", "cluster transfer --partition one",
		"cluster transfer --partition -1", "cluster transfer --partition 1 --to ''")
	if _, stderr, code := sh.run("cluster", "transfer", "--partition", "0", "--to", "n1"); code != exitDone {
		t.Errorf("exit %d: %s", code, stderr)
	}
	want := &perdurev1.TransferLeadershipRequest{Partition: proto.Uint32(0), ToNode: "n1"}
	if got := s.last["TransferLeadershipRequest"]; !proto.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
}

func TestUpgradeCommand(t *testing.T) {
	s := newFakeServer()
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "cluster_upgrade",
		"cluster upgrade", "cluster upgrade --json", "cluster upgrade --level 4",
		"# Some partitions need longer.", "cluster upgrade --level 6", "cluster upgrade --level 6 --json",
		"# Too early.", "cluster upgrade --level 7", "cluster upgrade --level 7 --json",
		"# Invalid arguments.", "cluster upgrade --level 0", "cluster upgrade --level=-1", "cluster upgrade 5",
		"cluster upgrade --help")
}

func TestReplicaRebuild(t *testing.T) {
	s := newFakeServer()
	s.statuses = []*perdurev1.ClusterStatus{wellCluster()}
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "replica_rebuild",
		"replica rebuild --node n3 --partition 2", "replica rebuild --node n3 --partition 2 --json",
		"# It was done before.",
		"replica rebuild --node n1 --partition 2", "replica rebuild --node n1 --partition 2 --json",
		"# There is none.",
		"replica rebuild --node n9 --partition 2",
		"# Invalid arguments.",
		"replica", "replica rebuild", "replica rebuild --node n3", "replica rebuild --partition 2", "replica rebuild --node n3 --partition 2 --wait 0s")
	want := &perdurev1.RebuildReplicaRequest{Partition: 2, NodeId: "n9"}
	if got := s.last["RebuildReplicaRequest"]; !proto.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
}

// The command shows the progress of a rebuild; when its timeout ends, it says that the rebuild continues.
func TestReplicaRebuildTakesLong(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newFakeServer()
	s.rebuilt = make(chan struct{})
	s.statuses = []*perdurev1.ClusterStatus{unhealthyCluster()}
	s.answered = make(chan struct{})
	sh := &shell{addr: s.serve(t)}
	go func() {
		<-s.answered
		<-s.answered
		close(s.rebuilt)
	}()
	stdout, stderr, code := sh.run("replica", "rebuild", "--node", "n2", "--partition", "3")
	if code != exitDone || !strings.Contains(stdout, "has caught up: 1207 entries applied\nits former files are quarantined") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if stderr != "partition 3 on n2: rebuilding, 10 entries applied, 1200 behind\n" {
		t.Errorf("progress: %q", stderr)
	}

	s.rebuilt = make(chan struct{})
	stdout, stderr, code = sh.run("replica", "rebuild", "--node", "n2", "--partition", "3", "--wait", "1200ms")
	if code != exitUnavailable || stdout != "" || !strings.Contains(stderr, "partition 3 on n2") || !strings.Contains(stderr, "NOT_FINISHED") ||
		!strings.Contains(stderr, "hint: the rebuild continues;") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	// A rebuild whose begin was not seen may not have begun.
	s.mu.Lock()
	s.statuses = []*perdurev1.ClusterStatus{wellCluster()}
	s.mu.Unlock()
	stdout, stderr, code = sh.run("replica", "rebuild", "--node", "n2", "--partition", "3", "--wait", "1200ms", "--json")
	if code != exitUnavailable || stdout != "" || !strings.Contains(stderr, "NOT_FINISHED") || !strings.Contains(stderr, "it may not have begun, or be done already") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if got := rebuildText(wellCluster(), "n7", 3); got != "partition 3 on n7: no status yet" {
		t.Error(got)
	}
}

func TestClusterUnavailable(t *testing.T) {
	for _, args := range []string{"cluster status", "cluster transfer --from n1", "replica rebuild --node n1 --partition 0 --wait 3s", "cluster upgrade"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			sh := &shell{addr: "127.0.0.1:1"}
			timeout := "3s"
			if strings.Contains(args, "--wait") {
				timeout = "1m" // the time that is named is that of --wait
			}
			stdout, stderr, code := sh.run(append(strings.Fields(args), "--timeout", timeout)...)
			if code != exitUnavailable || stdout != "" || !strings.Contains(stderr, "within 3s at") || !strings.Contains(stderr, "starts a node here") ||
				!regexp.MustCompile(`reason: UNAVAILABLE\n`).MatchString(stderr) {
				t.Errorf("exit %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

func TestHelpOfClusters(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	sh.story(t, "help_cluster", "cluster --help", "cluster status --help", "cluster transfer --help", "replica --help", "replica rebuild --help")
}

func TestClusterWords(t *testing.T) {
	for ms, want := range map[int64]string{0: "in step", 9: "in step", -9: "in step", 120: "120ms ahead", -1500: "1.5s behind"} {
		if got := offsetText(ms); got != want {
			t.Errorf("offsetText(%d) = %q, want %q", ms, got, want)
		}
	}
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a and b": {"a", "b"}, "a, b and c": {"a", "b", "c"}} {
		if got := listText(words); got != want {
			t.Errorf("listText(%q) = %q", words, got)
		}
	}
	for problem, want := range map[string]string{
		"gone": "gone", "rpc error: code = DeadlineExceeded desc = context deadline exceeded": "context deadline exceeded",
		`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.3:7402: connect: connection refused"`: "dial tcp 10.0.0.3:7402: connect: connection refused",
	} {
		if got := unframed(problem); got != want {
			t.Errorf("unframed(%q) = %q", problem, got)
		}
	}
	a := testApp(io.Discard)
	a.timeout = time.Second
	if c := a.complain(t.Context(), &unhealthyError{2}); c.exit != exitFailed || c.reason != "UNHEALTHY" {
		t.Errorf("%+v", c)
	}
}
