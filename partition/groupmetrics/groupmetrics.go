// Package groupmetrics owns the metrics of a node's Raft groups: a group's counters, which it updates itself, and
// the gauges that a scrape reads from it. It promises that a scrape waits for no group and reads no disk unless a
// replica's former files are quarantined there. All of it is memory: counters begin at 0 when the process starts.
package groupmetrics

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
)

// Replica is what the gauges read of a replica. No method blocks.
type Replica interface {
	ID() uint32
	Serving() bool
	Halted() error
	// QueueDepth counts the commands that wait for the log, PendingBytes the bytes of those and of the ones in flight.
	QueueDepth() int
	PendingBytes() int64
	// StateIndex is the last command entry in the state; false without a state.
	StateIndex() (uint64, bool)
	// Stuck counts the open executions that wait for code that fits their journals; false without a state.
	Stuck() (int, bool)
	// WaitingQueues counts the queues that may hold unassigned tasks. DeadlineLag is how late the earliest expired
	// deadline is, ShipStalled the longest time without progress of a waiting message, OutboxBytes the bytes of the
	// messages for the partition for which the most wait. All are 0 where the replica does not lead.
	WaitingQueues() int
	DeadlineLag() time.Duration
	ShipStalled() time.Duration
	OutboxBytes() uint64
	// LastAudit is nil before the first background audit has ended.
	LastAudit() *perdurev1.ReplicaAudit
}

// Counters are one partition's counters and histograms, which its group updates. METRICS.md explains all metrics.
type Counters struct {
	Elections    prometheus.Counter
	Lost         prometheus.Counter
	Commands     prometheus.Counter
	Entries      prometheus.Counter
	EntryBytes   prometheus.Counter
	StateWrites  prometheus.Counter
	StateBytes   prometheus.Counter
	Sheds        prometheus.Counter
	Joined       prometheus.Counter
	GivenUp      prometheus.Counter
	Ticks        prometheus.Counter
	Shipped      prometheus.Counter
	Releases     prometheus.Counter
	Problems     prometheus.Counter
	Expired      prometheus.Counter
	Undelivered  prometheus.Counter
	Backlogs     prometheus.Counter
	Long         prometheus.Counter
	Sent         prometheus.Counter
	Received     prometheus.Counter
	Purged       prometheus.Counter
	PurgeWaiting prometheus.Gauge
	// Unchecked counts the cuts that the replica entered without a checkpoint, CheckpointBytes is the size of those it has.
	Unchecked       prometheus.Counter
	CheckpointBytes prometheus.Gauge
	CommitSeconds   prometheus.Observer
	// DiskRefusals is the node's.
	DiskRefusals prometheus.Counter
}

// Set makes the metrics of all groups of a node.
type Set struct {
	elections, lost, commands, entries, sheds, ticks, shipped                *prometheus.CounterVec
	releases, problems, expired, undelivered, backlogs, long, sent, received *prometheus.CounterVec
	joined, givenUp, entryBytes, stateWrites, stateBytes, purged, unchecked  *prometheus.CounterVec
	purgeWaiting, checkpointBytes                                            *prometheus.GaugeVec
	commit                                                                   *prometheus.HistogramVec
	diskRefusals                                                             prometheus.Counter
	scraper                                                                  *scraper
	collectors                                                               []prometheus.Collector
}

// New makes the metrics of a node's groups, which Collectors returns. refusals counts the commands that a
// group refuses for lack of disk space; quarantined returns how many bytes of a partition's former replicas the node
// keeps.
func New(c clock.Clock, refusals prometheus.Counter, quarantined func(partition uint32) uint64) *Set {
	s := &Set{scraper: newScraper(c, quarantined), diskRefusals: refusals}
	s.collectors = []prometheus.Collector{s.scraper}
	for _, c := range []struct {
		into       **prometheus.CounterVec
		name, help string
	}{
		{&s.elections, "elections_won_total", "Times this node became the partition's leader."},
		{&s.lost, "leadership_lost_total", "Times this node ceased to be the partition's leader."},
		{&s.commands, "commands_total", "Commands applied for callers of this node."},
		{&s.entries, "entries_total", "Log entries that carried them."},
		{&s.entryBytes, "entry_bytes_total", "Bytes of those entries."},
		{&s.stateWrites, "state_writes_total", "Keys that this replica has written to its state."},
		{&s.stateBytes, "state_write_bytes_total", "Bytes of those keys and their values."},
		{&s.sheds, "sheds_total", "Commands refused because too many, or too many bytes of them, were waiting."},
		{&s.joined, "joined_total", "Calls that waited for the same request of an earlier call."},
		{&s.givenUp, "given_up_total", "Commands whose callers left before they were proposed."},
		{&s.ticks, "ticks_total", "Ticks proposed because a deadline had passed."},
		{&s.shipped, "messages_shipped_total", "Messages delivered to other partitions."},
		{&s.releases, "releases_total", "Tasks given back unfinished, by their workers or for workers that went away."},
		{&s.problems, "problems_total", "Tasks that their workers gave back with a problem."},
		{&s.expired, "lease_expiries_total", "Tasks taken from workers that were silent until the lease ended."},
		{&s.undelivered, "signals_undelivered_total", "Signals of functions to executions that do not exist or have ended."},
		{&s.backlogs, "backlog_refusals_total", "Commands refused because an entity's backlog, or the outbox to it, was full."},
		{&s.long, "long_journals_total", "Executions whose journals have reached 50,000 events."},
		{&s.sent, "snapshots_sent_total", "States sent whole to followers that lagged behind the log."},
		{&s.received, "snapshots_received_total", "States received whole and installed."},
		{&s.purged, "purged_total", "Executions and promises deleted because their retention was over."},
		{&s.unchecked, "checkpoint_failures_total", "Cuts that this replica entered without a checkpoint."},
	} {
		*c.into = prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "perdure", Subsystem: "partition", Name: c.name, Help: c.help}, []string{"partition"})
		s.collectors = append(s.collectors, *c.into)
	}
	s.purgeWaiting = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "perdure", Subsystem: "partition", Name: "purge_waiting",
		Help: "Executions and promises whose retention is over and that the last round did not delete; 0 where this node does not lead."},
		[]string{"partition"})
	s.checkpointBytes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "perdure", Subsystem: "partition", Name: "checkpoint_bytes",
		Help: "Bytes of this replica's checkpoints of cuts, two at most. Tables that the state still has count, too.",
	}, []string{"partition"})
	s.collectors = append(s.collectors, s.purgeWaiting, s.checkpointBytes)
	s.commit = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "perdure", Subsystem: "partition", Name: "commit_seconds",
		Help:    "Time from handing an entry to the log until it was applied.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
	}, []string{"partition"})
	s.collectors = append(s.collectors, s.commit)
	return s
}

// Collectors returns the metrics, to be registered once.
func (s *Set) Collectors() []prometheus.Collector { return s.collectors }

// Of returns the counters of a partition.
func (s *Set) Of(partition uint32) Counters {
	p := label(partition)
	return Counters{
		Elections: s.elections.WithLabelValues(p), Lost: s.lost.WithLabelValues(p),
		Commands: s.commands.WithLabelValues(p), Entries: s.entries.WithLabelValues(p), EntryBytes: s.entryBytes.WithLabelValues(p),
		StateWrites: s.stateWrites.WithLabelValues(p), StateBytes: s.stateBytes.WithLabelValues(p), Sheds: s.sheds.WithLabelValues(p),
		Joined: s.joined.WithLabelValues(p), GivenUp: s.givenUp.WithLabelValues(p),
		Ticks: s.ticks.WithLabelValues(p), Shipped: s.shipped.WithLabelValues(p),
		Releases: s.releases.WithLabelValues(p), Problems: s.problems.WithLabelValues(p), Expired: s.expired.WithLabelValues(p), Undelivered: s.undelivered.WithLabelValues(p), Backlogs: s.backlogs.WithLabelValues(p), Long: s.long.WithLabelValues(p),
		Sent: s.sent.WithLabelValues(p), Received: s.received.WithLabelValues(p),
		Purged: s.purged.WithLabelValues(p), PurgeWaiting: s.purgeWaiting.WithLabelValues(p),
		Unchecked: s.unchecked.WithLabelValues(p), CheckpointBytes: s.checkpointBytes.WithLabelValues(p),
		CommitSeconds: s.commit.WithLabelValues(p), DiskRefusals: s.diskRefusals,
	}
}

// directory is the label of the directory's group, which has some of a partition's metrics.
const directory = "directory"

// DirectoryElected counts that this node began, or ceased, to lead the directory.
func (s *Set) DirectoryElected(leads bool) {
	of := s.lost
	if leads {
		of = s.elections
	}
	of.WithLabelValues(directory).Inc()
}

// FollowDirectory reads the gauges of the directory's group from now on.
func (s *Set) FollowDirectory(g *raft.Raft) {
	s.scraper.add(scraped{label: directory, raft: g})
}

// Follow reads a replica's gauges from now on, instead of an earlier replica of the partition. group is nil for a
// replica that halted before its group was joined.
func (s *Set) Follow(r Replica, group *raft.Raft) {
	s.scraper.add(scraped{Replica: r, label: label(r.ID()), raft: group})
}

func label(partition uint32) string { return strconv.FormatUint(uint64(partition), 10) }

// scraper reads the groups' gauges at each scrape. No gauge waits for Raft, and none touches a disk unless
// former replicas are quarantined there.
type scraper struct {
	descs       []*prometheus.Desc
	clock       clock.Clock
	quarantined func(partition uint32) uint64

	mu     sync.Mutex
	groups map[string]scraped // by label
}

// scraped is a replica and since when it runs. The directory's is a group without a replica.
type scraped struct {
	Replica
	label       string
	raft        *raft.Raft // nil for a replica that halted before its group was joined
	by          clock.Clock
	since       time.Time
	quarantined func(partition uint32) uint64
}

// gauges are a replica's figures; ok is false for one that it does not have.
var gauges = []struct {
	name, help string
	read       func(r scraped) (v float64, ok bool)
	group      bool // the directory's group has it, too
}{
	{"leader", "1 while this node leads the partition and serves it.", func(r scraped) (float64, bool) {
		if r.Replica == nil {
			return oneIf(r.raft.State() == raft.Leader), true
		}
		return oneIf(r.Serving()), true
	}, true},
	{"kept_bytes", "Bytes of quarantined former replicas on this node's disk.", func(r scraped) (float64, bool) {
		return float64(r.quarantined(r.ID())), true
	}, false},
	{"audit_completed_timestamp_seconds", "When the last audit of this replica in the background ended, in Unix time.", audited(func(a *perdurev1.ReplicaAudit) float64 {
		return float64(a.EndedMs) / 1000
	}), false},
	{"audit_duration_seconds", "How long that audit took, its pauses included.", audited(func(a *perdurev1.ReplicaAudit) float64 {
		return float64(a.TookMs) / 1000
	}), false},
	{"audit_keys", "How many keys of the state it checked.", audited(func(a *perdurev1.ReplicaAudit) float64 { return float64(a.Keys) }), false},
	{"audit_problems", "How many broken rules it found.", audited(func(a *perdurev1.ReplicaAudit) float64 { return float64(a.Found) }), false},
	{"halted", "1 when the partition has stopped here because its state cannot be trusted.", func(r scraped) (float64, bool) {
		return oneIf(r.Halted() != nil), true
	}, false},
	{"queue_depth", "Commands that wait for the log.", func(r scraped) (float64, bool) {
		return float64(r.QueueDepth()), true
	}, false},
	{"pending_bytes", "Bytes of commands that wait for the log or are in flight.", func(r scraped) (float64, bool) {
		return float64(r.PendingBytes()), true
	}, false},
	{"term", "Raft's term; it grows with every election.", number((*raft.Raft).CurrentTerm), true},
	{"last_index", "The last entry in this replica's log.", number((*raft.Raft).LastIndex), true},
	{"commit_index", "The last entry that this replica knows to be committed.", number((*raft.Raft).CommitIndex), true},
	{"applied_index", "The last entry that Raft has handed to the state machine.", number((*raft.Raft).AppliedIndex), true},
	{"state_index", "The last command entry in this replica's state.", func(r scraped) (float64, bool) {
		index, ok := r.StateIndex()
		return float64(index), ok
	}, false},
	{"replica_lag_entries", "Entries in this replica's log that are not applied yet.", number(func(x *raft.Raft) uint64 {
		applied := x.AppliedIndex() // before the other, which is never behind it
		return max(x.LastIndex(), applied) - applied
	}), true},
	{"leader_contact_seconds", "Time since this replica heard from the partition's leader; 0 on the leader.", (scraped).leaderContact, true},
	{"waiting_queues", "Queues that may hold unassigned tasks, known on the leader; 0 elsewhere.", func(r scraped) (float64, bool) {
		return float64(r.WaitingQueues()), true
	}, false},
	{"stuck_executions", "Open executions that wait for code that fits their journals.", func(r scraped) (float64, bool) {
		n, ok := r.Stuck()
		return float64(n), ok
	}, false},
	{"deadline_lag_seconds", "How late the earliest expired deadline is, known on the leader; 0 elsewhere.", func(r scraped) (float64, bool) {
		return r.DeadlineLag().Seconds(), true
	}, false},
	{"ship_stalled_seconds", "Time without progress while messages wait for another partition, the longest, known on the leader; 0 elsewhere.", func(r scraped) (float64, bool) {
		return r.ShipStalled().Seconds(), true
	}, false},
	{"outbox_bytes", "Bytes of the messages that wait for the partition for which the most wait, known on the leader; 0 elsewhere.", func(r scraped) (float64, bool) {
		return float64(r.OutboxBytes()), true
	}, false},
}

// audited is a figure of the last audit; a replica that was not audited yet has none.
func audited(of func(*perdurev1.ReplicaAudit) float64) func(scraped) (float64, bool) {
	return func(r scraped) (float64, bool) {
		if a := r.LastAudit(); a != nil {
			return of(a), true
		}
		return 0, false
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// number is a figure of Raft's; a replica that halted before its group was joined has none.
func number(of func(*raft.Raft) uint64) func(scraped) (float64, bool) {
	return func(r scraped) (float64, bool) {
		if r.raft == nil {
			return 0, false
		}
		return float64(of(r.raft)), true
	}
}

func (r scraped) leaderContact() (float64, bool) {
	if r.raft == nil {
		return 0, false
	}
	if r.raft.State() == raft.Leader {
		return 0, true
	}
	if last := r.raft.LastContact(); !last.IsZero() {
		return clock.Since(last).Seconds(), true
	}
	return r.by.Now().Sub(r.since).Seconds(), true
}

func newScraper(c clock.Clock, quarantined func(uint32) uint64) *scraper {
	s := &scraper{clock: c, quarantined: quarantined, groups: map[string]scraped{}}
	for _, g := range gauges {
		s.descs = append(s.descs, prometheus.NewDesc(prometheus.BuildFQName("perdure", "partition", g.name), g.help, []string{"partition"}, nil))
	}
	return s
}

func (s *scraper) add(g scraped) {
	g.by, g.since, g.quarantined = s.clock, s.clock.Now(), s.quarantined
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[g.label] = g
}

// Describe implements prometheus.Collector.
func (s *scraper) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scraper) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	groups := slices.Collect(maps.Values(s.groups))
	s.mu.Unlock()
	for _, r := range groups {
		for i, g := range gauges {
			if r.Replica == nil && !g.group {
				continue
			}
			if v, ok := g.read(r); ok {
				out <- prometheus.MustNewConstMetric(s.descs[i], prometheus.GaugeValue, v, r.label)
			}
		}
	}
}
