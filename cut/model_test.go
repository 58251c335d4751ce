package cut_test

import (
	"fmt"
	"maps"
	"slices"

	"perdure/cut"
)

// The model has what a cluster's partitions have: logs that apply commands in order and lose what was not committed,
// outboxes with numbered messages in epochs, inboxes with a high-water, acknowledgements and trims, and leaders that
// remember what was acknowledged and forget it with their term. Its network keeps, repeats, overtakes and loses.
// Objects move amounts by messages, so the sum over all objects and undelivered messages never changes.

const (
	objects = 7
	amount  = 100
)

// message is one transfer between objects. hops more follow when it is applied.
type message struct {
	at       cut.End
	sent     cut.Number
	id       int
	from, to int
	value    int
	hops     int
}

// partition is the replicated state of one partition, with its history: sent and received list ids in order.
type partition struct {
	cut            cut.Number
	balance        map[int]int
	outbox         map[int][]message
	channel, inbox map[int]cut.End
	sent, received []int
}

func (p *partition) clone() *partition {
	c := *p
	c.balance, c.channel, c.inbox = maps.Clone(p.balance), maps.Clone(p.channel), maps.Clone(p.inbox)
	c.outbox = map[int][]message{}
	for dst, list := range p.outbox {
		c.outbox[dst] = slices.Clone(list)
	}
	c.sent, c.received = slices.Clone(p.sent), slices.Clone(p.received)
	return &c
}

// command is one entry of a partition's log. kind says which of the other fields count.
type command struct {
	kind     string // "enter", "transfer", "deliver", "trim"
	n        cut.Number
	transfer message
	peer     int
	messages []message
	through  cut.End
}

// packet is a message of the network: a shipment, an acknowledgement, or the coordinator's call to enter a cut.
type packet struct {
	to int
	command
}

// plant is a defect of the model's partitions, which the laws must notice.
type plant string

const (
	sound            plant = ""
	unstamped        plant = "messages do not carry the sender's cut"
	restamped        plant = "messages carry the cut of their first shipment, not of their sending"
	ackUnstamped     plant = "acknowledgements do not carry the receiver's cut"
	deliverUnguarded plant = "the machine applies messages of a later cut"
	trimUnguarded    plant = "the machine trims by acknowledgements of a later cut"
	lateCheckpoint   plant = "the checkpoint is of one command later"
	early            plant = "the checkpoint lacks the command before it"
	again            plant = "a repeated command takes the checkpoint again"
	skips            plant = "a refused message is counted as received"
)

type world struct {
	plant       plant
	partitions  []*partition
	logs        [][]command
	acked       []map[int]cut.End // of each partition's leader, by destination
	ackedCut    []map[int]cut.Number
	checkpoints []map[cut.Number]*partition
	// For the plants: the state before the last command, and the checkpoints to take behind the next one.
	former  []*partition
	late    []map[cut.Number]bool
	network []packet
	ids     int
	// running is the cut that a coordinator drives; 0 if none does. begun holds, for each cut, what each partition had
	// sent when it began: all that was acknowledged before.
	running cut.Number
	begun   map[cut.Number][][]int
}

func newWorld(partitions int, p plant) *world {
	w := &world{plant: p, begun: map[cut.Number][][]int{}}
	for range partitions {
		w.add()
	}
	for o := range objects {
		w.partitions[w.home(o)].balance[o] = amount
	}
	return w
}

func (w *world) add() {
	w.partitions = append(w.partitions, &partition{balance: map[int]int{}, outbox: map[int][]message{}, channel: map[int]cut.End{}, inbox: map[int]cut.End{}})
	w.logs = append(w.logs, nil)
	w.acked, w.ackedCut = append(w.acked, map[int]cut.End{}), append(w.ackedCut, map[int]cut.Number{})
	w.former = append(w.former, nil)
	w.checkpoints, w.late = append(w.checkpoints, map[cut.Number]*partition{}), append(w.late, map[cut.Number]bool{})
}

func (w *world) home(object int) int { return object % len(w.partitions) }

func (w *world) propose(p int, c command) { w.logs[p] = append(w.logs[p], c) }

// apply applies the first command of a partition's log.
func (w *world) apply(p int) {
	if len(w.logs[p]) == 0 {
		return
	}
	c, st := w.logs[p][0], w.partitions[p]
	w.logs[p] = w.logs[p][1:]
	former := w.former[p]
	w.former[p] = st.clone()
	switch c.kind {
	case "enter":
		var entered bool
		if st.cut, entered = cut.Enter(st.cut, c.n); !entered && (w.plant != again || c.n != st.cut) {
			break
		}
		w.checkpoints[p][c.n] = st.clone()
		switch {
		case w.plant == early && former != nil:
			w.checkpoints[p][c.n] = former
		case w.plant == lateCheckpoint:
			w.late[p][c.n] = true
			return
		}
	case "transfer":
		t := c.transfer
		t.id = w.ids
		w.ids++
		w.send(p, t)
	case "deliver":
		w.deliver(p, c)
	case "trim":
		if w.plant != trimUnguarded && !cut.Admits(st.cut, c.n) {
			break
		}
		st.outbox[c.peer] = slices.DeleteFunc(st.outbox[c.peer], func(m message) bool {
			return m.at.Epoch == c.through.Epoch && m.at.Last <= c.through.Last
		})
	}
	for n := range w.late[p] {
		w.checkpoints[p][n] = st.clone()
		delete(w.late[p], n)
	}
}

// send takes the value from the sender, and applies the message here or appends it to the outbox.
func (w *world) send(p int, m message) {
	st := w.partitions[p]
	st.balance[m.from] -= m.value
	st.sent = append(st.sent, m.id)
	dst := w.home(m.to)
	if dst == p {
		w.receive(p, m)
		return
	}
	end := st.channel[dst]
	end.Epoch = max(end.Epoch, 1)
	end.Last++
	m.at, m.sent = end, st.cut
	if w.plant == unstamped {
		m.sent = 0
	}
	st.channel[dst] = end
	st.outbox[dst] = append(st.outbox[dst], m)
}

func (w *world) receive(p int, m message) {
	st := w.partitions[p]
	st.balance[m.to] += m.value
	st.received = append(st.received, m.id)
	if m.hops > 0 {
		next := message{id: w.ids, from: m.to, to: (m.to + m.from + 1) % objects, value: m.value, hops: m.hops - 1}
		w.ids++
		w.send(p, next)
	}
}

func (w *world) deliver(p int, c command) {
	st := w.partitions[p]
	in := st.inbox[c.peer]
	for _, m := range c.messages {
		if m.at.Epoch < in.Epoch {
			continue
		}
		if m.at.Epoch > in.Epoch {
			in = cut.End{Epoch: m.at.Epoch}
		}
		if m.at.Last <= in.Last {
			continue
		}
		if w.plant != deliverUnguarded && !cut.Admits(st.cut, m.sent) {
			if w.plant == skips {
				in.Last = m.at.Last
			}
			break
		}
		if m.at.Last != in.Last+1 {
			break
		}
		in.Last = m.at.Last
		w.receive(p, m)
	}
	if in.Last > 0 { // else the epoch's first message was refused
		st.inbox[c.peer] = in
	}
}

// ship sends what the outbox holds beyond what the leader knows to be acknowledged, at most limit messages.
func (w *world) ship(p, dst, limit int) {
	var list []message
	for _, m := range w.partitions[p].outbox[dst] {
		if a := w.acked[p][dst]; m.at.Epoch == a.Epoch && m.at.Last <= a.Last || len(list) == limit {
			continue
		}
		if w.plant == restamped {
			m.sent = w.partitions[dst].cut
		}
		list = append(list, m)
	}
	if len(list) > 0 {
		w.network = append(w.network, packet{dst, command{kind: "deliver", peer: p, messages: list}})
	}
}

// arrive is what the leader of a partition does with a packet.
func (w *world) arrive(pk packet, choose func(int) int) {
	switch pk.kind {
	case "enter":
		w.propose(pk.to, pk.command)
	case "deliver":
		var sent []cut.Number
		for _, m := range pk.messages {
			sent = append(sent, m.sent)
		}
		w.within(pk.to, sent, pk.command, choose)
	case "ack":
		if a := w.acked[pk.to][pk.peer]; a.Epoch != pk.through.Epoch || a.Last < pk.through.Last {
			w.acked[pk.to][pk.peer], w.ackedCut[pk.to][pk.peer] = pk.through, pk.n
		}
	}
}

// within proposes to enter the cut that a command requires, and the command. The second may come first into the log, or
// alone.
func (w *world) within(p int, sent []cut.Number, c command, choose func(int) int) {
	proposals := []command{c}
	if need := cut.Required(w.partitions[p].cut, sent...); need > w.partitions[p].cut {
		enter := command{kind: "enter", n: need}
		proposals = [][]command{{enter, c}, {c, enter}, {c}}[choose(3)]
	}
	for _, c := range proposals {
		w.propose(p, c)
	}
}

// acknowledge answers a sender from the state, at any time: after an apply, or when a repeated shipment comes.
func (w *world) acknowledge(p, source int) {
	st := w.partitions[p]
	n := st.cut
	if w.plant == ackUnstamped {
		n = 0
	}
	w.network = append(w.network, packet{source, command{kind: "ack", peer: p, through: st.inbox[source], n: n}})
}

// trim proposes to delete what is acknowledged.
func (w *world) trim(p, dst int, choose func(int) int) {
	if a := w.acked[p][dst]; a.Last > 0 {
		n := w.ackedCut[p][dst]
		w.within(p, []cut.Number{n}, command{kind: "trim", peer: dst, through: a, n: n}, choose)
	}
}

// begin starts a cut; one that runs is given up.
func (w *world) begin() {
	var numbers []cut.Number
	var sent [][]int
	for _, p := range w.partitions {
		numbers, sent = append(numbers, p.cut), append(sent, slices.Clone(p.sent))
	}
	w.running = cut.Next(numbers)
	w.begun[w.running] = sent // a cut that no partition has entered begins again
}

// call asks one partition to enter the running cut.
func (w *world) call(p int) {
	if w.running > 0 {
		w.network = append(w.network, packet{p, command{kind: "enter", n: w.running}})
	}
}

// leave ends a leader's term: its memory is gone, and the last commands of its log were not committed.
func (w *world) leave(p, lost int) {
	w.acked[p], w.ackedCut[p] = map[int]cut.End{}, map[int]cut.Number{}
	w.logs[p] = w.logs[p][:max(len(w.logs[p])-lost, 0)]
}

// step does one thing that choose picks.
func (w *world) step(choose func(int) int) {
	n := len(w.partitions)
	p := choose(n)
	switch k := choose(32); {
	case k < 4:
		o := choose(objects)
		w.propose(w.home(o), command{kind: "transfer", transfer: message{from: o, to: choose(objects), value: 1 + choose(5), hops: choose(3)}})
	case k < 12:
		w.apply(p)
	case k < 16:
		w.ship(p, choose(n), 1+choose(3))
	case k < 22:
		if len(w.network) > 0 {
			i := choose(len(w.network))
			w.arrive(w.network[i], choose)
			if choose(4) > 0 {
				w.network = slices.Delete(w.network, i, i+1)
			}
		}
	case k < 25:
		w.acknowledge(p, choose(n))
	case k < 28:
		w.trim(p, choose(n), choose)
	case k < 29:
		w.call(p)
	case k < 30:
		if choose(4) == 0 {
			w.begin()
		}
	case k < 31:
		if len(w.network) > 0 {
			i := choose(len(w.network))
			w.network = slices.Delete(w.network, i, i+1)
		}
	default:
		w.leave(p, choose(3))
	}
}

func inOrder(int) int { return 0 }

// settle lets everything arrive until nothing is left to do, and finishes the running cut. It returns an error if that
// never happens.
func (w *world) settle() error {
	for range 400 {
		busy := false
		for p := range w.partitions {
			w.call(p)
			for dst := range w.partitions {
				if dst == p && len(w.partitions[p].outbox[dst]) == 0 {
					continue
				}
				w.ship(p, dst, 3)
				w.acknowledge(dst, p)
				w.trim(p, dst, inOrder)
				busy = busy || len(w.partitions[p].outbox[dst]) > 0
			}
		}
		for _, pk := range w.network {
			w.arrive(pk, inOrder)
		}
		w.network = nil
		for p := range w.partitions {
			for len(w.logs[p]) > 0 {
				w.apply(p)
			}
			busy = busy || w.partitions[p].cut < w.running
		}
		if !busy {
			return nil
		}
	}
	return fmt.Errorf("the messages of a quiet cluster are not delivered, or its cut is not entered")
}
