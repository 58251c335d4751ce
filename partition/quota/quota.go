// Package quota bounds what a namespace uses of a cluster: open executions, bytes of state, starts per second.
//
// The leader of a partition asks before it proposes what begins work; the machine knows no quota. What finishes work is never
// refused, nor a repeated start of an execution that exists. A quota is the cluster's. The nodes exchange each second what the
// partitions that they lead use and may use, and each takes at most its part of what is left:
//
//	sum of openMost over the nodes <= limit, + nodes - 1 when all take at once
//
// A node that has not heard of a namespace may begin work in it: until it says what it uses, at its second exchange, the others
// keep its part of the whole. A node that uses nothing may hold one. Children count as open executions, but no quota refuses them.
//
// Starts per second are divided by the partitions that a node leads, and few of them may come at once. Bytes are measured in the
// background, in pieces at a bounded share of one processor, and what was admitted since is added. All of it is memory: a new
// leader measures again, and admits by bytes until it has.
//
//	charge, refused := q.Admit(cmd, exists) // before the command is proposed
//	charge.Release()                        // once its outcome is known
package quota

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/internal/clock"
)

// The kinds of quotas, as settings, errors and metrics name them.
const (
	kindOpen   = "open"
	kindBytes  = "bytes"
	kindStarts = "starts"
)

const (
	// exchangeEvery is how often the nodes tell each other what they use, and forgetAfter how long a node that does not
	// answer counts with its last figures.
	exchangeEvery = time.Second
	forgetAfter   = 10 * time.Second
	// maxNamespaces bounds the namespaces whose use is known: those that began work last.
	maxNamespaces = 4096
	// countShare is the part of the time that counting open executions of a namespace may take, measureShare that of
	// measuring bytes, pieceKeys what one piece reads.
	countShare, measureShare = 0.01, 0.05
	pieceKeys                = 2048
)

// Replica is a partition as the quotas see it.
type Replica interface {
	ID() uint32
	// Serving reports whether this node leads the partition.
	Serving() bool
	// Peek runs the function on the state, perhaps again on a later one if it fails.
	Peek(func(state.Reader) error) error
}

// Options are New's.
type Options struct {
	Quotas   Quotas
	Replicas func() []Replica
	// Others asks the other members what they use, by server id; a nil value is of one that does not answer. It blocks for as long as a
	// member's answer may take. Nil for a node alone.
	Others   func(ctx context.Context) map[string]*Use
	Clock    clock.Clock
	Log      *slog.Logger
	Lifetime context.Context // ends when the node begins to stop
}

// Use is what another node uses of the quotas in the partitions that it leads.
type Use struct {
	// Leads: it leads a partition.
	Leads      bool
	Namespaces map[string]*perdurev1.NamespaceUse
}

// Quota is a node's ledger.
type Quota struct {
	o Options

	mu sync.Mutex
	// spaces are the namespaces with a limit that began work here.
	spaces map[string]*space
	// others are the last figures of other nodes, and since when; leaders counts the nodes that lead something.
	others  map[string]heard
	leaders int
}

type heard struct {
	use  *Use
	last time.Time
}

// space is what is known of one namespace on this node. A lock is taken in the order space, Quota.
type space struct {
	namespace string
	limits    Limits
	used      time.Time // last; Quota.mu guards it

	mu sync.Mutex
	// counted is how many executions were open when they were last counted, admitted those that were admitted since,
	// inFlight those of them whose outcome is not known. None is counted again before recount.
	counted, admitted, inFlight int
	recount                     time.Time
	// openElsewhere and bytesElsewhere are the other nodes', openMost and bytesMost what this node may use until the next exchange.
	openElsewhere, openMost   int
	bytesElsewhere, bytesMost int64
	// measured are the bytes of the partitions here, added what was admitted since the last measurement began.
	measured map[uint32]int64
	added    int64
	// tokens are starts that may come at once; filled is as of when.
	tokens  float64
	filled  time.Time
	refused map[string]uint64 // by kind
	last    refusal
}

// refusal is what a namespace was refused last: one that goes on asking gets the same error, encoded once.
type refusal struct {
	kind          string
	used, allowed int64
	err           *api.Error
}

// New makes a ledger with nothing used.
func New(o Options) *Quota {
	return &Quota{o: o, spaces: map[string]*space{}, others: map[string]heard{}, leaders: 1}
}

// Charge is an admitted command. The zero value is of a command without a quota.
type Charge struct{ s *space }

// Release says that the outcome of an admitted command is known.
func (c Charge) Release() {
	if c.s == nil {
		return
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.inFlight--
}

// starts reports whether a command of a client opens an execution, and grows whether it adds to the state.
func starts(cmd *commandv1.Command) (opens, grows bool) {
	switch k := cmd.Kind.(type) {
	case *commandv1.Command_Start, *commandv1.Command_SubmitGraph, *commandv1.Command_RetryGraph, *commandv1.Command_Restart:
		return true, true
	case *commandv1.Command_Signal:
		return k.Signal.GetStart() != nil, true
	case *commandv1.Command_CreatePromise, *commandv1.Command_SignalEntity, *commandv1.Command_CallEntity, *commandv1.Command_ImportHistory:
		return false, true
	}
	return false, false
}

// Admit charges a command to its namespace, or refuses it. exists reports whether the execution that it would start exists: then
// the answer is that, and nothing is charged. It may read the state.
func (q *Quota) Admit(cmd *commandv1.Command, exists func() bool) (Charge, *api.Error) {
	if q.o.Quotas.None() {
		return Charge{}, nil
	}
	opens, grows := starts(cmd)
	limits := q.o.Quotas.Of(cmd.Namespace)
	if !grows || limits == (Limits{}) {
		return Charge{}, nil
	}
	s := q.spaceOf(cmd.Namespace, limits)
	charge, refused := q.charge(s, cmd, opens)
	if refused == nil {
		return charge, nil
	}
	if opens && exists() {
		return Charge{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[refused.Meta["quota"]]++
	return Charge{}, refused
}

// charge charges a command to its namespace, or returns the quota that it would exceed.
func (q *Quota) charge(s *space, cmd *commandv1.Command, opens bool) (Charge, *api.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused := q.refuse(s, opens); refused != nil {
		return Charge{}, refused
	}
	s.added += int64(proto.Size(cmd))
	if !opens {
		return Charge{}, nil
	}
	s.tokens--
	s.admitted++
	s.inFlight++
	return Charge{s}, nil
}

// spaceOf returns what is known of a namespace.
func (q *Quota) spaceOf(namespace string, limits Limits) *space {
	q.mu.Lock()
	now := q.o.Clock.Now()
	s, known := q.spaces[namespace]
	if !known {
		if len(q.spaces) >= maxNamespaces {
			q.forgetLocked()
		}
		s = &space{namespace: namespace, limits: limits, measured: map[uint32]int64{}, tokens: 1, filled: now, refused: map[string]uint64{}}
		q.spaces[namespace] = s
		s.mu.Lock() // nobody else has it
		defer s.mu.Unlock()
	}
	s.used = now
	q.mu.Unlock()
	if !known {
		q.count(s)
		q.first(s)
	}
	return s
}

// forgetLocked forgets the namespace that began work the longest ago.
func (q *Quota) forgetLocked() {
	var oldest *space
	for _, s := range q.spaces {
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
	}
	delete(q.spaces, oldest.namespace)
}

// refuse returns the quota that a command would exceed. The caller holds s.mu.
func (q *Quota) refuse(s *space, opens bool) *api.Error {
	refuse := func(kind string, used, allowed int64, format string) *api.Error {
		if l := s.last; l.err != nil && l.kind == kind && l.used == used && l.allowed == allowed {
			return l.err
		}
		err := api.Errorf(perdurev1.Reason_REASON_QUOTA_EXCEEDED, format, s.namespace, used, allowed).With("namespace", s.namespace).
			With("quota", kind).With("used", strconv.FormatInt(used, 10)).With("allowed", strconv.FormatInt(allowed, 10)).Seal()
		s.last = refusal{kind, used, allowed, err}
		return err
	}
	if limit := s.limits.Bytes; limit > 0 && s.bytes() >= s.bytesMost {
		return refuse(kindBytes, s.bytes()+s.bytesElsewhere, limit, "namespace %q stores %d bytes of %d")
	}
	if !opens {
		return nil
	}
	if limit := int64(s.limits.Starts); limit > 0 {
		if q.fill(s); s.tokens < 1 {
			return refuse(kindStarts, limit, limit, "namespace %q has started as many executions as may come at once, of %[3]d per second")
		}
	}
	if limit := s.limits.Open; limit > 0 {
		if s.open() >= s.openMost {
			q.count(s)
		}
		if s.open() >= s.openMost {
			return refuse(kindOpen, int64(s.open()+s.openElsewhere), int64(limit), "namespace %q has %d open executions of %d")
		}
	}
	return nil
}

// open is how many executions of the namespace may be open in the partitions that this node leads.
func (s *space) open() int { return s.counted + s.admitted }

// bytes is what the namespace stores in them.
func (s *space) bytes() (n int64) {
	for _, of := range s.measured {
		n += of
	}
	return n + s.added
}

// count counts the open executions, unless that was done too recently. The caller holds s.mu.
func (q *Quota) count(s *space) {
	begun := q.o.Clock.Now()
	if s.limits.Open == 0 || begun.Before(s.recount) {
		return
	}
	counted := 0
	for _, r := range q.o.Replicas() {
		if !r.Serving() {
			continue
		}
		n := 0
		if err := r.Peek(func(st state.Reader) (err error) {
			n, err = query.CountOpen(st, s.namespace, s.limits.Open+1)
			return err
		}); err != nil {
			q.o.Log.Warn("cannot count open executions", "event", "quota_failed", "partition", r.ID(), "error", err)
			return
		}
		counted += n
	}
	s.counted, s.admitted = counted, s.inFlight
	now := q.o.Clock.Now()
	s.recount = now.Add(time.Duration(float64(now.Sub(begun)) * (1 - countShare) / countShare))
}

// led counts the partitions that this node leads, and all.
func (q *Quota) led() (led, all int) {
	for _, r := range q.o.Replicas() {
		if all++; r.Serving() {
			led++
		}
	}
	return led, all
}

// fill adds the starts that time has earned: this node's part of the rate, and no more than its part of what may come at once. The
// caller holds s.mu.
func (q *Quota) fill(s *space) {
	led, all := q.led()
	rate, share := float64(s.limits.Starts), float64(led)/float64(max(all, 1))
	now := q.o.Clock.Now()
	s.tokens = min(s.tokens+rate*share*now.Sub(s.filled).Seconds(), max(atOnce(rate)*share, 1))
	s.filled = now
}

// atOnce is how many starts may come at once at a rate: a tenth of a second's, or ten if that is more, but never more than a
// second's. What is admitted together also wakes and ends together, and all others wait behind it each time.
func atOnce(rate float64) float64 { return min(rate, max(rate/10, 10)) }

// all are the namespaces that are known, in order.
func (q *Quota) all() []*space {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := slices.Collect(maps.Values(q.spaces))
	slices.SortFunc(out, func(a, b *space) int { return cmp.Compare(a.namespace, b.namespace) })
	return out
}

// Use is what this node uses of the quotas, in the order of the namespaces.
func (q *Quota) Use() (out []*perdurev1.NamespaceUse) {
	for _, s := range q.all() {
		s.mu.Lock()
		u := &perdurev1.NamespaceUse{Namespace: s.namespace, Open: int64(s.open()), Bytes: s.bytes(), OpenLimit: int64(s.limits.Open),
			BytesLimit: s.limits.Bytes, StartsLimit: int64(s.limits.Starts), OpenMost: int64(s.openMost), BytesMost: s.bytesMost}
		for _, n := range s.refused {
			u.Refused += n
		}
		s.mu.Unlock()
		out = append(out, u)
	}
	return out
}

// Run exchanges and measures, and blocks until Lifetime ends. It returns at once without quotas.
func (q *Quota) Run() {
	if q.o.Quotas.None() {
		return
	}
	q.o.Log.Info("namespaces have quotas", "event", "quotas_on", "rules", strings.Join(q.o.Quotas.Rules(), " "))
	var measuring sync.WaitGroup
	measuring.Go(q.measure)
	defer measuring.Wait()
	q.Exchange(q.o.Lifetime)
	for clock.Wait(q.o.Lifetime, q.o.Clock, exchangeEvery) {
		q.Exchange(q.o.Lifetime)
	}
}

// Exchange asks the other nodes what they use, and divides what is left. It blocks while they answer.
func (q *Quota) Exchange(ctx context.Context) {
	var others map[string]*Use
	if q.o.Others != nil {
		others = q.o.Others(ctx)
	}
	led, _ := q.led()
	q.mu.Lock()
	now := q.o.Clock.Now()
	for server, use := range others {
		if use != nil {
			q.others[server] = heard{use, now}
		}
	}
	q.leaders = min(led, 1)
	for server, h := range q.others {
		if _, member := others[server]; !member || now.Sub(h.last) > forgetAfter {
			delete(q.others, server)
		} else if h.use.Leads {
			q.leaders++
		}
	}
	q.mu.Unlock()
	q.learn()
	for _, s := range q.all() {
		s.mu.Lock()
		q.count(s)
		q.divide(s)
		s.mu.Unlock()
	}
}

// learn watches the namespaces that began work at other nodes, so that what this node may use of them is known there.
func (q *Quota) learn() {
	q.mu.Lock()
	var unknown []string
	for _, h := range q.others {
		for namespace := range h.use.Namespaces {
			if q.spaces[namespace] == nil {
				unknown = append(unknown, namespace)
			}
		}
	}
	free := maxNamespaces - len(q.spaces)
	q.mu.Unlock()
	slices.Sort(unknown)
	for _, namespace := range slices.Compact(unknown) {
		if limits := q.o.Quotas.Of(namespace); free > 0 && limits != (Limits{}) {
			q.spaceOf(namespace, limits)
			free--
		}
	}
}

// divide gives a namespace on this node its part of what is left of its quotas, as of an exchange. The caller holds s.mu.
func (q *Quota) divide(s *space) {
	s.openMost = int(q.share(s, int64(s.limits.Open), int64(s.open()), openUse))
	s.openElsewhere = int(q.heardOf(s, openUse).used)
	q.divideBytes(s)
}

// divideBytes is divide for bytes, of which this node may have measured more.
func (q *Quota) divideBytes(s *space) {
	s.bytesMost = q.share(s, s.limits.Bytes, s.bytes(), bytesUse)
	s.bytesElsewhere = q.heardOf(s, bytesUse).used
}

// first gives a namespace that begins work here what the nodes that have not heard of it keep for this one. The caller
// holds s.mu.
func (q *Quota) first(s *space) {
	q.divide(s)
	nodes := q.heardOf(s, openUse).nodes
	s.openMost = min(s.openMost, max(s.open(), int(part(int64(s.limits.Open), nodes))))
	s.bytesMost = min(s.bytesMost, max(s.bytes(), part(s.limits.Bytes, nodes)))
}

// elsewhere is what the other nodes use of a quota of a namespace.
type elsewhere struct {
	// used is what they use, held what they use or may use.
	used, held int64
	// nodes are those that lead something, this one too; silent the others of them that have not said a word of the namespace.
	nodes, silent int
}

func openUse(u *perdurev1.NamespaceUse) (used, most int64)  { return u.GetOpen(), u.GetOpenMost() }
func bytesUse(u *perdurev1.NamespaceUse) (used, most int64) { return u.GetBytes(), u.GetBytesMost() }

func (q *Quota) heardOf(s *space, of func(*perdurev1.NamespaceUse) (used, most int64)) elsewhere {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := elsewhere{nodes: max(q.leaders, 1)}
	for _, h := range q.others {
		use, said := h.use.Namespaces[s.namespace]
		if !said && h.use.Leads {
			e.silent++
		}
		used, most := of(use)
		e.used += used
		e.held += max(used, most)
	}
	return e
}

// share is how much this node may use of a quota, of which it uses own: that, and its part of what is left. A node that has not
// said a word of the namespace keeps its part of the whole, since it may begin work in it at any time.
func (q *Quota) share(s *space, limit, own int64, of func(*perdurev1.NamespaceUse) (used, most int64)) int64 {
	e := q.heardOf(s, of)
	left := limit - own - e.held - int64(e.silent)*(limit/int64(e.nodes))
	return own + part(left, max(e.nodes-e.silent, 1))
}

// part is a node's part of what is left, rounded up; nothing of what is overdrawn.
func part(left int64, nodes int) int64 { return max(left+int64(nodes)-1, 0) / int64(nodes) }

// measure measures the bytes of namespaces that have such a quota, one after another.
func (q *Quota) measure() {
	for clock.Wait(q.o.Lifetime, q.o.Clock, exchangeEvery) {
		for _, s := range q.all() {
			if s.limits.Bytes > 0 && !q.measureSpace(s) {
				return
			}
		}
	}
}

// measureSpace measures a namespace in the partitions that this node leads. It blocks for as long as that takes at its share
// of the time; false if the node stops.
func (q *Quota) measureSpace(s *space) bool {
	s.mu.Lock()
	before := s.added
	s.mu.Unlock()
	measured := map[uint32]int64{}
	for _, r := range q.o.Replicas() {
		var from []byte
		for r.Serving() {
			begun := q.o.Clock.Now()
			var n int64
			var next []byte
			if err := r.Peek(func(st state.Reader) (err error) {
				n, next, err = query.StoredBytes(st, s.namespace, from, pieceKeys)
				return err
			}); err != nil {
				q.o.Log.Warn("cannot measure a namespace", "event", "quota_failed", "partition", r.ID(), "error", err)
				return true
			}
			measured[r.ID()] += n
			from = next
			if from == nil {
				break
			}
			worked := q.o.Clock.Now().Sub(begun)
			if !clock.Wait(q.o.Lifetime, q.o.Clock, time.Duration(float64(worked)*(1-measureShare)/measureShare)) {
				return false
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measured = measured
	s.added -= before
	q.divideBytes(s)
	return true
}
