package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/slab"
)

// decoder decodes log entries as proto.Unmarshal does, with few allocations. It reads the frequent messages itself, into
// values that are allocated together, and leaves a message with any other field to proto.Unmarshal:
//
//	decode(b) == proto.Unmarshal(b)
//
// Payloads and edges of graphs in the result share memory with the entry's bytes, which must not change. It is not safe for
// concurrent use.
type decoder struct {
	entries    slab.Of[commandv1.Entry]
	commands   slab.Of[commandv1.Command]
	grants     slab.Of[commandv1.Grant]
	requests   slab.Of[perdurev1.RequestID]
	starts     slab.Of[startKind]
	commits    slab.Of[commitKind]
	signals    slab.Of[signalKind]
	tokens     slab.Of[perdurev1.TaskToken]
	events     slab.Of[perdurev1.Event]
	completed  slab.Of[completedKind]
	scheduled  slab.Of[scheduledKind]
	started    slab.Of[startedKind]
	returned   slab.Of[returnedKind]
	awaiting   slab.Of[awaitingKind]
	received   slab.Of[receivedKind]
	outcomes   slab.Of[valueKind]
	functions  slab.Of[functionKind]
	inputs     slab.Of[perdurev1.NodeInput]
	sources    slab.Of[perdurev1.NodeInput_Node]
	inputRef   slab.Of[*perdurev1.NodeInput]
	commandRef slab.Of[*commandv1.Command]
	eventRef   slab.Of[*perdurev1.Event]
	textRef    slab.Of[string]
	// texts is unused space for texts. known holds the texts that were read last, by their hash: most texts of an
	// entry occur several times.
	texts []byte
	known [knownTexts]string
}

const (
	// textSpace is how many bytes of texts are allocated together. A text that is kept keeps its neighbours.
	textSpace  = 1 << 10
	knownTexts = 256
	// longText is the length from which on a text is allocated alone.
	longText = 128
)

// The kinds of a command, an event and an outcome, each with the message in it.
type (
	startKind struct {
		kind commandv1.Command_Start
		msg  perdurev1.StartRequest
	}
	commitKind struct {
		kind commandv1.Command_Commit
		msg  perdurev1.Commit
	}
	signalKind struct {
		kind commandv1.Command_Signal
		msg  perdurev1.SignalRequest
	}
	completedKind struct {
		kind perdurev1.Event_ExecutionCompleted
		msg  perdurev1.ExecutionCompleted
	}
	scheduledKind struct {
		kind perdurev1.Event_InvokeScheduled
		msg  perdurev1.InvokeScheduled
	}
	startedKind struct {
		kind perdurev1.Event_InvokeStarted
		msg  perdurev1.InvokeStarted
	}
	returnedKind struct {
		kind perdurev1.Event_InvokeCompleted
		msg  perdurev1.InvokeCompleted
	}
	awaitingKind struct {
		kind perdurev1.Event_ExecutionAwaiting
		msg  perdurev1.ExecutionAwaiting
	}
	receivedKind struct {
		kind perdurev1.Event_SignalReceived
		msg  perdurev1.SignalReceived
	}
	valueKind struct {
		msg  perdurev1.Outcome
		kind perdurev1.Outcome_Value
	}
	submitKind struct {
		kind commandv1.Command_SubmitGraph
		msg  perdurev1.SubmitGraphRequest
	}
	functionKind struct {
		kind perdurev1.GraphNode_Function
		msg  perdurev1.FunctionNode
	}
)

// Wire types of the fields that decoder reads.
const (
	isNumber = 0
	isBytes  = 2
)

// field is one field of a message: its number and wire type in one, as encoded, and its value.
type field struct {
	tag    uint64
	number uint64
	bytes  []byte
}

// fields reads the fields of a message one after the other. ok turns false at the first that decoder does not read.
type fields struct {
	rest []byte
	ok   bool
}

func (r *fields) next() (f field, more bool) {
	if !r.ok || len(r.rest) == 0 {
		return f, false
	}
	f.tag = r.varint()
	n := r.varint()
	switch {
	case !r.ok:
	case f.tag&7 == isNumber:
		f.number = n
	case f.tag&7 == isBytes && n <= uint64(len(r.rest)):
		f.bytes, r.rest = r.rest[:n:n], r.rest[n:]
	default:
		r.ok = false
	}
	return f, r.ok
}

func (r *fields) varint() uint64 {
	if len(r.rest) > 0 && r.rest[0] < 0x80 {
		v := r.rest[0]
		r.rest = r.rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.ok = false
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// countFields counts the fields of a message with a tag.
func countFields(b []byte, tag uint64) (n int, ok bool) {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		if f.tag == tag {
			n++
		}
	}
	return n, r.ok
}

// decode reads an entry without its format byte.
func (d *decoder) decode(b []byte) (*commandv1.Entry, error) {
	e := d.entries.Next()
	if n, ok := countFields(b, 2<<3|isBytes); !ok {
		return reflected(b)
	} else if n > 0 {
		e.Commands = d.commandRef.List(n)[:0]
	}
	for r := (fields{b, true}); ; {
		f, more := r.next()
		if !more {
			return e, nil
		}
		switch f.tag {
		case 1<<3 | isNumber:
			e.TimeMs = int64(f.number)
		case 2<<3 | isBytes:
			cmd := d.commands.Next()
			if !d.command(f.bytes, cmd) {
				cmd = &commandv1.Command{}
				if err := proto.Unmarshal(f.bytes, cmd); err != nil {
					return nil, err
				}
			}
			e.Commands = append(e.Commands, cmd)
		case 3<<3 | isBytes:
			g := d.grants.Next()
			if !d.grant(f.bytes, g) {
				g = &commandv1.Grant{}
				if err := proto.Unmarshal(f.bytes, g); err != nil {
					return nil, err
				}
			}
			e.Grants = append(e.Grants, g)
		case 4<<3 | isNumber:
			e.ClientRetryMs = int64(f.number)
		default:
			return reflected(b)
		}
	}
}

func reflected(b []byte) (*commandv1.Entry, error) {
	e := &commandv1.Entry{}
	if err := proto.Unmarshal(b, e); err != nil {
		return nil, err
	}
	return e, nil
}

// The functions below read one message into m, which is empty. They report false if it has a field that they do not
// read, twice a field that proto would merge, or a text that is not UTF-8; m is not used then.

func (d *decoder) command(b []byte, m *commandv1.Command) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			r.ok = m.Request == nil
			m.Request = d.requests.Next()
			r.ok = r.ok && d.request(f.bytes, m.Request)
		case 2<<3 | isBytes:
			m.Namespace = d.text(&r, f.bytes)
		case 3<<3 | isBytes:
			m.Id = d.text(&r, f.bytes)
		case 4<<3 | isNumber:
			m.SlotEpoch = f.number
		case 16<<3 | isBytes:
			r.ok = m.Kind == nil
			k := d.starts.Next()
			k.kind.Start, m.Kind = &k.msg, &k.kind
			r.ok = r.ok && d.start(f.bytes, &k.msg)
		case 17<<3 | isBytes:
			r.ok = m.Kind == nil
			k := d.commits.Next()
			k.kind.Commit, m.Kind = &k.msg, &k.kind
			r.ok = r.ok && d.commit(f.bytes, &k.msg)
		case 20<<3 | isBytes:
			r.ok = m.Kind == nil
			k := d.signals.Next()
			k.kind.Signal, m.Kind = &k.msg, &k.kind
			r.ok = r.ok && d.signal(f.bytes, &k.msg)
		case 30<<3 | isBytes:
			r.ok = m.Kind == nil
			k := &submitKind{}
			k.kind.SubmitGraph, m.Kind = &k.msg, &k.kind
			r.ok = r.ok && d.submitGraph(f.bytes, &k.msg)
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) request(b []byte, m *perdurev1.RequestID) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.Id = d.copied(f.bytes)
		case 2<<3 | isNumber:
			m.AgeMs = f.number
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) start(b []byte, m *perdurev1.StartRequest) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes: // of a request, not of an entry
			r.ok = m.Request == nil
			m.Request = &perdurev1.RequestID{}
			r.ok = r.ok && d.request(f.bytes, m.Request)
		case 2<<3 | isBytes:
			m.Namespace = d.text(&r, f.bytes)
		case 3<<3 | isBytes:
			m.Id = d.text(&r, f.bytes)
		case 4<<3 | isBytes:
			m.Function = d.text(&r, f.bytes)
		case 5<<3 | isBytes:
			m.Input = f.bytes
		case 6<<3 | isNumber:
			m.TimeoutMs = int64(f.number)
		case 8<<3 | isBytes:
			m.ComponentDigest = d.text(&r, f.bytes)
		case 9<<3 | isNumber:
			m.AllowUnknownFunction = f.number != 0
		case 10<<3 | isNumber:
			m.Reuse = perdurev1.Reuse(int32(f.number))
		case 11<<3 | isNumber:
			m.WaitMs = int64(f.number)
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) signal(b []byte, m *perdurev1.SignalRequest) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes: // of a request, not of an entry
			r.ok = m.Request == nil
			m.Request = &perdurev1.RequestID{}
			r.ok = r.ok && d.request(f.bytes, m.Request)
		case 2<<3 | isBytes:
			m.Namespace = d.text(&r, f.bytes)
		case 3<<3 | isBytes:
			m.Id = d.text(&r, f.bytes)
		case 4<<3 | isBytes:
			m.Name = d.text(&r, f.bytes)
		case 5<<3 | isBytes:
			m.Payload = f.bytes
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) submitGraph(b []byte, m *perdurev1.SubmitGraphRequest) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes: // of a request, not of an entry
			r.ok = m.Request == nil
			m.Request = &perdurev1.RequestID{}
			r.ok = r.ok && d.request(f.bytes, m.Request)
		case 2<<3 | isBytes:
			m.Namespace = d.text(&r, f.bytes)
		case 3<<3 | isBytes:
			m.Id = d.text(&r, f.bytes)
		case 4<<3 | isBytes:
			r.ok = m.Graph == nil
			m.Graph = &perdurev1.Graph{}
			r.ok = r.ok && d.graph(f.bytes, m.Graph)
		case 5<<3 | isBytes:
			m.Input = f.bytes
		case 6<<3 | isNumber:
			m.TimeoutMs = int64(f.number)
		case 8<<3 | isNumber:
			m.AllowUnknownFunctions = f.number != 0
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) graph(b []byte, m *perdurev1.Graph) bool {
	n, ok := countFields(b, 2<<3|isBytes)
	if !ok {
		return false
	}
	nodes := make([]perdurev1.GraphNode, n)
	m.Nodes = make([]*perdurev1.GraphNode, 0, n)
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.Name = d.text(&r, f.bytes)
		case 2<<3 | isBytes:
			node := &nodes[len(m.Nodes)]
			if !d.graphNode(f.bytes, node) {
				node = &perdurev1.GraphNode{}
				r.ok = proto.Unmarshal(f.bytes, node) == nil
			}
			m.Nodes = append(m.Nodes, node)
		case 3<<3 | isNumber:
			m.MaxParallel = uint32(f.number)
		case 4<<3 | isNumber:
			m.Wave = f.number != 0
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) graphNode(b []byte, m *perdurev1.GraphNode) bool {
	if n, ok := countFields(b, 2<<3|isBytes); ok && n > 0 {
		m.After = d.textRef.List(n)[:0]
	}
	if n, ok := countFields(b, 3<<3|isBytes); ok && n > 0 {
		m.Inputs = d.inputRef.List(n)[:0]
	}
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.Id = d.text(&r, f.bytes)
		case 2<<3 | isBytes:
			m.After = append(m.After, shared(&r, f.bytes))
		case 3<<3 | isBytes:
			in := d.inputs.Next()
			r.ok = d.nodeInput(f.bytes, in)
			m.Inputs = append(m.Inputs, in)
		case 4<<3 | isBytes:
			r.ok = m.Retry == nil
			m.Retry = &perdurev1.NodeRetry{}
			r.ok = r.ok && proto.Unmarshal(f.bytes, m.Retry) == nil
		case 5<<3 | isNumber:
			m.TimeoutMs = int64(f.number)
		case 6<<3 | isNumber:
			m.OnFailure = perdurev1.OnFailure(int32(f.number))
		case 7<<3 | isNumber:
			m.Output = perdurev1.ValueType(int32(f.number))
		case 10<<3 | isBytes:
			r.ok = m.Kind == nil
			k := d.functions.Next()
			k.kind.Function, m.Kind = &k.msg, &k.kind
			r.ok = r.ok && d.functionNode(f.bytes, &k.msg)
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) functionNode(b []byte, m *perdurev1.FunctionNode) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		if f.tag != 1<<3|isBytes {
			return false
		}
		m.Function = d.text(&r, f.bytes)
	}
	return r.ok
}

func (d *decoder) nodeInput(b []byte, m *perdurev1.NodeInput) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.Name = d.text(&r, f.bytes)
		case 2<<3 | isBytes:
			source := d.sources.Next()
			source.Node, m.Source = d.text(&r, f.bytes), source
		case 3<<3 | isBytes: // of a graph that is kept longer than its entry
			m.Source = &perdurev1.NodeInput_Value{Value: append([]byte{}, f.bytes...)}
		case 4<<3 | isNumber:
			m.Source = &perdurev1.NodeInput_Run{Run: f.number != 0}
		case 5<<3 | isBytes:
			m.Path = d.text(&r, f.bytes)
		case 6<<3 | isNumber:
			m.Type = perdurev1.ValueType(int32(f.number))
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) commit(b []byte, m *perdurev1.Commit) bool {
	if n, ok := countFields(b, 5<<3|isBytes); ok && n > 0 {
		m.Events = d.eventRef.List(n)[:0]
	}
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes: // of a request, not of an entry
			r.ok = m.Request == nil
			m.Request = &perdurev1.RequestID{}
			r.ok = r.ok && d.request(f.bytes, m.Request)
		case 2<<3 | isBytes:
			r.ok = m.Task == nil
			m.Task = d.tokens.Next()
			r.ok = r.ok && d.token(f.bytes, m.Task)
		case 3<<3 | isNumber:
			m.NextChild = uint32(f.number)
		case 4<<3 | isNumber:
			m.KnownSeq = f.number
		case 5<<3 | isBytes:
			ev := d.events.Next()
			if !d.event(f.bytes, ev) {
				ev = &perdurev1.Event{}
				r.ok = proto.Unmarshal(f.bytes, ev) == nil
			}
			m.Events = append(m.Events, ev)
		case 8<<3 | isNumber:
			m.WaitTimeoutMs = int64(f.number)
		case 9<<3 | isNumber:
			m.Credit = uint32(f.number)
		case 12<<3 | isNumber:
			m.CleanupMs = int64(f.number)
		case 13<<3 | isNumber:
			m.Keeps = f.number != 0
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) token(b []byte, m *perdurev1.TaskToken) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.Namespace = d.text(&r, f.bytes)
		case 2<<3 | isBytes:
			m.Id = d.text(&r, f.bytes)
		case 3<<3 | isNumber:
			m.Incarnation = f.number
		case 4<<3 | isNumber:
			m.Version = f.number
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) event(b []byte, m *perdurev1.Event) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		if m.Kind != nil {
			return false
		}
		switch f.tag {
		case 2<<3 | isBytes:
			k := d.completed.Next()
			k.kind.ExecutionCompleted, m.Kind = &k.msg, &k.kind
			r.ok = d.executionCompleted(f.bytes, &k.msg)
		case 6<<3 | isBytes:
			k := d.scheduled.Next()
			k.kind.InvokeScheduled, m.Kind = &k.msg, &k.kind
			r.ok = d.invokeScheduled(f.bytes, &k.msg)
		case 7<<3 | isBytes:
			k := d.started.Next()
			k.kind.InvokeStarted, m.Kind = &k.msg, &k.kind
			r.ok = d.invokeStarted(f.bytes, &k.msg)
		case 8<<3 | isBytes:
			k := d.returned.Next()
			k.kind.InvokeCompleted, m.Kind = &k.msg, &k.kind
			r.ok = d.invokeCompleted(f.bytes, &k.msg)
		case 15<<3 | isBytes:
			k := d.received.Next()
			k.kind.SignalReceived, m.Kind = &k.msg, &k.kind
			r.ok = d.signalReceived(f.bytes, &k.msg)
		case 16<<3 | isBytes:
			k := d.awaiting.Next()
			k.kind.ExecutionAwaiting, m.Kind = &k.msg, &k.kind
			r.ok = d.executionAwaiting(f.bytes, &k.msg)
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) executionCompleted(b []byte, m *perdurev1.ExecutionCompleted) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		if f.tag != 1<<3|isBytes {
			return false
		}
		m.Result = f.bytes
	}
	return r.ok
}

func (d *decoder) invokeScheduled(b []byte, m *perdurev1.InvokeScheduled) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.PromiseId = d.text(&r, f.bytes)
		case 2<<3 | isNumber:
			m.Kind = perdurev1.InvokeKind(int32(f.number))
		case 3<<3 | isBytes:
			m.FunctionName = d.text(&r, f.bytes)
		case 4<<3 | isBytes:
			m.Input = f.bytes
		case 5<<3 | isBytes:
			m.RetryPolicy = d.text(&r, f.bytes)
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) invokeStarted(b []byte, m *perdurev1.InvokeStarted) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.PromiseId = d.text(&r, f.bytes)
		case 2<<3 | isNumber:
			m.Attempt = uint32(f.number)
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) invokeCompleted(b []byte, m *perdurev1.InvokeCompleted) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.PromiseId = d.text(&r, f.bytes)
		case 2<<3 | isBytes:
			if m.Result != nil {
				return false
			}
			m.Result, r.ok = d.outcome(f.bytes)
		case 3<<3 | isNumber:
			m.Attempt = uint32(f.number)
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) signalReceived(b []byte, m *perdurev1.SignalReceived) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.PromiseId = d.text(&r, f.bytes)
		case 2<<3 | isBytes:
			m.Name = d.text(&r, f.bytes)
		case 3<<3 | isBytes:
			if m.Payload != nil {
				return false
			}
			m.Payload, r.ok = d.outcome(f.bytes)
		case 4<<3 | isNumber:
			m.DeliveryId = f.number
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) outcome(b []byte) (m *perdurev1.Outcome, ok bool) {
	k := d.outcomes.Next()
	if value(b, k) {
		return &k.msg, true
	}
	m = &perdurev1.Outcome{}
	return m, proto.Unmarshal(b, m) == nil
}

// value reads an outcome that is a value.
func value(b []byte, m *valueKind) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		if f.tag != 1<<3|isBytes {
			return false
		}
		m.kind.Value, m.msg.Result = f.bytes, &m.kind
	}
	return r.ok
}

func (d *decoder) executionAwaiting(b []byte, m *perdurev1.ExecutionAwaiting) bool {
	if n, ok := countFields(b, 1<<3|isBytes); ok && n > 0 {
		m.WaitingOn = d.textRef.List(n)[:0]
	}
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.WaitingOn = append(m.WaitingOn, d.text(&r, f.bytes))
		case 2<<3 | isNumber:
			m.Kind = perdurev1.AwaitKind(int32(f.number))
		case 3<<3 | isBytes:
			m.SignalName = d.text(&r, f.bytes)
		case 4<<3 | isBytes:
			m.JoinSetId = d.text(&r, f.bytes)
		default:
			return false
		}
	}
	return r.ok
}

func (d *decoder) grant(b []byte, m *commandv1.Grant) bool {
	if n, ok := countFields(b, 3<<3|isBytes); ok && n > 0 {
		m.Functions = d.textRef.List(n)[:0]
	}
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			m.Worker = d.text(&r, f.bytes)
		case 2<<3 | isBytes:
			m.Namespace = d.text(&r, f.bytes)
		case 3<<3 | isBytes:
			m.Functions = append(m.Functions, d.text(&r, f.bytes))
		case 4<<3 | isNumber:
			m.Credit = uint32(f.number)
		case 5<<3 | isNumber:
			m.LeaseMs = int64(f.number)
		case 6<<3 | isBytes:
			m.Digests = append(m.Digests, d.text(&r, f.bytes))
		default:
			return false
		}
	}
	return r.ok
}

// text is a copy of b as a text.
func (d *decoder) text(r *fields, b []byte) string {
	if !utf8.Valid(b) {
		r.ok = false
		return ""
	}
	if len(b) > longText {
		return string(b)
	}
	known := &d.known[xxhash.Sum64(b)%knownTexts]
	if *known != string(b) {
		if b = d.copied(b); len(b) == 0 {
			return ""
		}
		*known = unsafe.String(&b[0], len(b)) // the copy is never written again
	}
	return *known
}

// shared is b as a text, in the entry's memory: for the edges of a graph, which no run keeps.
func shared(r *fields, b []byte) string {
	if !utf8.Valid(b) {
		r.ok = false
	}
	if len(b) == 0 || !r.ok {
		return ""
	}
	return unsafe.String(&b[0], len(b)) // an entry's bytes do not change
}

// copied is a copy of b; nil if b is empty.
func (d *decoder) copied(b []byte) []byte {
	if len(b) == 0 || len(b) > longText {
		return append([]byte(nil), b...)
	}
	if len(b) > len(d.texts) {
		d.texts = make([]byte, textSpace)
	}
	out := d.texts[:len(b):len(b)]
	d.texts = d.texts[copy(out, b):]
	return out
}

// DecodeEntry is the inverse of EncodeEntry. The result shares memory with b.
func DecodeEntry(b []byte) (*commandv1.Entry, error) { return (&decoder{}).entry(b) }

func (d *decoder) entry(b []byte) (*commandv1.Entry, error) {
	if len(b) == 0 {
		return nil, errors.New("fsm: an empty log entry")
	}
	if b[0] != entryFormat {
		return nil, fmt.Errorf("fsm: log entry of format %d, this program knows %d: written by a newer version", b[0], entryFormat)
	}
	e, err := d.decode(b[1:])
	if err != nil {
		return nil, fmt.Errorf("fsm: damaged log entry: %w", err)
	}
	return e, nil
}
