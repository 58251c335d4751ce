package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"perdure/internal/clock"
)

// label keeps the gossip of other programs apart.
const label = "perdure"

// ErrLeft reports that the node has left gossip, or closed it.
var ErrLeft = errors.New("membership: this node has left gossip")

// Gossip is a node's part in gossip. All methods may be called by several goroutines at once.
type Gossip struct {
	name   string // of this instance, in memberlist
	addr   string // as others reach it
	bound  string // as it listens
	join   []string
	timing Timing
	clock  clock.Clock
	began  time.Time
	report *reporter
	gate   *gate
	list   *memberlist.Memberlist

	changed     chan struct{}
	selfChanged chan struct{} // Self has changed
	rejoin      chan struct{} // a member was lost
	cancel      context.CancelFunc
	wg          sync.WaitGroup // loops
	logging     sync.WaitGroup

	updating sync.Mutex // one Update at a time; before mu
	ending   sync.Mutex // one Leave or Close at a time; before spreading
	spreads  sync.Mutex // one memberlist.UpdateNode at a time

	// mu guards what follows. It is a leaf: under it nothing is called that blocks, and not memberlist.
	mu         sync.Mutex
	self       Member
	meta       string // self as it should be known
	spread     string // self as memberlist has it
	instances  map[string]*instance
	lost       map[string]lostServer // by the address where it was
	clocks     clocks
	foreigners map[string]bool // reported
	copies     map[string]bool // reported
	left       bool
	closed     bool
}

// Start opens the port and takes part in gossip. It does not wait for other nodes, but blocks to resolve
// BindAddr and Advertise. Errors: *ConfigError, or that of the port.
func Start(cfg Config) (*Gossip, error) {
	cfg.Self = cfg.Self.clone()
	cfg.Self.GossipAddr = ""
	cfg.Timing = cfg.Timing.withDefaults()
	if cfg.Clock == nil {
		cfg.Clock = clock.System{}
	}
	if cfg.Rand == nil {
		cfg.Rand = clock.Entropy
	}
	at, err := cfg.check()
	if err != nil {
		return nil, err
	}
	var chance [4]byte
	if _, err := io.ReadFull(cfg.Rand, chance[:]); err != nil {
		return nil, fmt.Errorf("membership: no chance to be had: %w", err)
	}
	g := &Gossip{
		name:        instanceName(cfg.Self.ServerID, cfg.Clock.Now().UnixNano(), binary.BigEndian.Uint32(chance[:])),
		join:        append([]string(nil), cfg.Join...),
		timing:      cfg.Timing,
		clock:       cfg.Clock,
		began:       cfg.Clock.Now(),
		report:      newReporter(cfg.Logger, cfg.Clock),
		changed:     make(chan struct{}, 1),
		selfChanged: make(chan struct{}, 1),
		rejoin:      make(chan struct{}, 1),
		self:        cfg.Self,
		meta:        string(encodeMeta(cfg.Self, 0)),
		instances:   make(map[string]*instance),
		lost:        make(map[string]lostServer),
		clocks:      make(clocks),
		foreigners:  make(map[string]bool),
		copies:      make(map[string]bool),
	}
	logger := log.New(g.report, "", 0)
	if g.gate, err = listen(at.bind, logger, g.report, cfg.drop); err != nil {
		return nil, err
	}
	if err = g.create(cfg, at, logger); err != nil {
		g.gate.discard()
		return nil, err
	}
	g.logging.Add(1)
	go func() {
		defer g.logging.Done()
		g.report.run()
	}()
	if len(cfg.Keys) == 0 && !isLoopback(g.addr) {
		g.report.event(slog.LevelWarn, "gossip_unencrypted",
			"gossip has no key: any host that reaches its port can read and forge messages", "gossip", g.addr)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	g.wg.Add(2)
	go func() {
		defer g.wg.Done()
		g.spreadLoop(ctx)
	}()
	go func() {
		defer g.wg.Done()
		g.rejoinLoop(ctx)
	}()
	return g, nil
}

// create makes the memberlist. It sets g.addr and g.list.
func (g *Gossip) create(cfg Config, at addresses, logger *log.Logger) error {
	keys := cfg.Keys
	if len(keys) == 0 {
		keys = [][]byte{publicKey()}
	}
	ring, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		return fmt.Errorf("membership: keys: %w", err)
	}
	port := g.gate.GetAutoBindPort()
	g.bound = net.JoinHostPort(at.bind.Addr().String(), strconv.Itoa(port))
	conf := memberlist.DefaultLANConfig()
	conf.Name = g.name
	conf.Label = label
	conf.Transport = g.gate
	conf.BindAddr, conf.BindPort = at.bind.Addr().String(), port
	if at.advertise.Addr().IsValid() {
		conf.AdvertiseAddr, conf.AdvertisePort = at.advertise.Addr().String(), int(at.advertise.Port())
		if conf.AdvertisePort == 0 {
			conf.AdvertisePort = port
		}
	}
	conf.Keyring = ring
	conf.Logger = logger
	d := delegate{g}
	conf.Delegate, conf.Events, conf.Alive, conf.Ping = d, d, d, d
	t := g.timing
	conf.ProbeInterval, conf.ProbeTimeout = t.ProbeInterval, t.ProbeTimeout
	conf.GossipInterval, conf.GossipToTheDeadTime = t.GossipInterval, t.DeadInterval
	conf.PushPullInterval, conf.TCPTimeout = t.SyncInterval, t.StreamTimeout
	conf.SuspicionMult, conf.SuspicionMaxTimeoutMult = 4, 3
	conf.EnableCompression = false // views are small, and unpacking is unbounded

	ip, advertised, err := g.gate.FinalAdvertiseAddr(conf.AdvertiseAddr, conf.AdvertisePort)
	if err != nil {
		return fmt.Errorf("membership: which address to advertise: %w", err)
	}
	g.addr = net.JoinHostPort(ip.String(), strconv.Itoa(advertised))
	if g.list, err = memberlist.Create(conf); err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	return nil
}

// mono is this process's monotonic time.
func (g *Gossip) mono() time.Duration { return g.clock.Now().Sub(g.began) }

// Addr is where the others reach this node's gossip, host:port; what they put in Join.
func (g *Gossip) Addr() string { return g.addr }

// Self is what this node says of itself.
func (g *Gossip) Self() Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	self := g.self.clone()
	self.GossipAddr = g.addr
	return self
}

// Update changes what this node says of itself. Members shows it at once; the others hear it within a few
// gossip intervals, of quick updates perhaps only the last. change gets a copy and may not call Update. The
// error is a *MemberError, and then nothing has changed, or ErrLeft. NodeID and ServerID are fixed, and
// ClusterID once it is set. An accepted Member never becomes too long by its Leads or Epoch.
func (g *Gossip) Update(change func(*Member)) error {
	g.updating.Lock()
	defer g.updating.Unlock()
	g.mu.Lock()
	was := g.self.clone()
	g.mu.Unlock()
	next := was.clone()
	change(&next)
	next = next.clone()
	next.GossipAddr = ""
	fixed := func(field string) error {
		return &MemberError{ServerID: was.ServerID, Field: field, Detail: "cannot change"}
	}
	switch {
	case next.NodeID != was.NodeID:
		return fixed("NodeID")
	case next.ServerID != was.ServerID:
		return fixed("ServerID")
	case was.ClusterID != "" && next.ClusterID != was.ClusterID:
		return fixed("ClusterID")
	}
	if err := next.check(); err != nil {
		return err
	}
	meta := string(encodeMeta(next, 0))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left || g.closed {
		return ErrLeft
	}
	if meta == g.meta {
		return nil
	}
	g.self, g.meta = next, meta
	if was.ClusterID == "" {
		for _, inst := range g.instances {
			if foreign(next.ClusterID, inst.member.ClusterID) {
				g.reportForeign(inst.member)
			}
		}
	}
	g.signal()
	notify(g.selfChanged)
	return nil
}

// spreadLoop sends Self to the others when it has changed.
func (g *Gossip) spreadLoop(ctx context.Context) {
	for {
		select {
		case <-g.selfChanged:
		case <-ctx.Done():
			return
		}
		for !g.spreadOnce() {
			if !clock.Wait(ctx, g.clock, g.timing.GossipInterval) {
				return
			}
		}
	}
}

// spreadOnce hands Self to memberlist and says whether it took it. It drops an update that meets an
// objection to a rumour of our death.
func (g *Gossip) spreadOnce() bool {
	g.spreads.Lock()
	defer g.spreads.Unlock()
	g.mu.Lock()
	done := g.left || g.closed || g.spread == g.meta
	g.mu.Unlock()
	if done {
		return true
	}
	// It waits until the news was passed on as often as is usual, for one interval at most: a newer update
	// need not wait for an older one. Not to have been in time is no error.
	_ = g.list.UpdateNode(g.timing.GossipInterval)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.spread == g.meta
}

// leaveTime bounds each of the two steps of Leave.
const leaveTime = 2 * time.Second

// Leave notifies the others that this node stops on purpose, so that they do not wait for its answers. It
// blocks until the notice was passed on, to the context's deadline or 4 s at most; after an error it may be
// lost. Members then no longer lists this node; the port stays open until Close. A second Leave, or one after
// Close, does nothing.
func (g *Gossip) Leave(ctx context.Context) error {
	g.ending.Lock()
	defer g.ending.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	if g.left || g.closed {
		g.mu.Unlock()
		return nil
	}
	g.left = true
	g.meta = string(encodeMeta(g.self, flagLeaving))
	g.mu.Unlock()
	g.signal()
	limit := func() time.Duration {
		d := leaveTime
		if left, ok := clock.Left(ctx); ok {
			d = min(d, left)
		}
		return max(d, time.Millisecond) // 0 would be for ever
	}
	g.spreads.Lock()
	defer g.spreads.Unlock()
	// First the reason, then the fact: memberlist notifies the others' listeners only of the fact.
	_ = g.list.UpdateNode(min(limit(), 5*g.timing.GossipInterval))
	if err := g.list.Leave(limit()); err != nil {
		return fmt.Errorf("membership: leaving gossip: %w", err)
	}
	return nil
}

// Close ends gossip and frees the port; without Leave before, the others find this node dead. It may be called
// twice. It blocks for a moment; probes under way may take until their time-out to end.
func (g *Gossip) Close() error {
	g.ending.Lock()
	defer g.ending.Unlock()
	g.mu.Lock()
	was := g.closed
	g.closed, g.left = true, true
	g.mu.Unlock()
	if was {
		return nil
	}
	g.cancel()
	g.gate.cut() // a join under way ends
	g.wg.Wait()
	err := g.list.Shutdown()
	g.report.close()
	g.logging.Wait()
	if err != nil {
		return fmt.Errorf("membership: closing gossip: %w", err)
	}
	return nil
}

// isLoopback reports whether only this host reaches addr.
func isLoopback(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().IsLoopback()
}
