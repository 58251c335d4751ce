package durable

import (
	"errors"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// NodeOption is an option of a Graph's node.
type NodeOption func(*Node)

// JSONType is the declared type of an output, or the type that an input asks of its source. The two are
// compared when the graph is built; values are not checked when it runs.
type JSONType = perdurev1.ValueType

// The types of JSON. AnyJSON, which is the default, agrees with all.
const (
	AnyJSON    JSONType = perdurev1.ValueType_VALUE_TYPE_ANY
	JSONObject JSONType = perdurev1.ValueType_VALUE_TYPE_OBJECT
	JSONArray  JSONType = perdurev1.ValueType_VALUE_TYPE_ARRAY
	JSONString JSONType = perdurev1.ValueType_VALUE_TYPE_STRING
	JSONNumber JSONType = perdurev1.ValueType_VALUE_TYPE_NUMBER
	JSONBool   JSONType = perdurev1.ValueType_VALUE_TYPE_BOOL
)

// Output declares the type of the node's output.
func Output(t JSONType) NodeOption { return func(n *Node) { n.wire.Output = t } }

// NodeRetry retries a node that fails; without it, the node has one attempt. Zero fields of the policy take
// their defaults; pauses are counted in milliseconds, rounded up, and the factor in percent.
func NodeRetry(p RetryPolicy) NodeOption {
	bad := p.check()
	p = p.withDefaults()
	return func(n *Node) {
		if bad != nil {
			n.problem("%v", bad)
		}
		n.wire.Retry = &perdurev1.NodeRetry{Attempts: uint32(p.MaxAttempts), InitialMs: client.Millis(p.Initial), MaxMs: client.Millis(p.Max),
			FactorPercent: uint32(min(math.Round(p.Factor*100), math.MaxInt32))}
	}
}

// NodeTimeout bounds one attempt of a node; of a signal node, the wait. It is counted in milliseconds,
// rounded up.
func NodeTimeout(d time.Duration) NodeOption {
	return func(n *Node) {
		if d < 0 {
			n.problem("the time-out %v is negative", d)
		}
		n.wire.TimeoutMs = client.Millis(d)
	}
}

// SkipOnFailure lets the run continue when the node has failed: the node counts as skipped, and its
// descendants run. Without it, all descendants fail with the node.
func SkipOnFailure() NodeOption {
	return func(n *Node) { n.wire.OnFailure = perdurev1.OnFailure_ON_FAILURE_SKIP }
}

// Source is where an input comes from: From, RunInput or Literal.
type Source struct {
	node *Node
	wire *perdurev1.NodeInput
	err  error
}

// From is the output of another node, or the value under a path in it: member names and, for arrays, numbers,
// each an argument or separated by dots. It makes the node depend on the other. It is null if the other node
// was skipped or the path leads nowhere.
func From(n *Node, path ...string) Source {
	if n == nil {
		return Source{wire: &perdurev1.NodeInput{}, err: errNilNode}
	}
	return Source{node: n, wire: &perdurev1.NodeInput{Source: &perdurev1.NodeInput_Node{Node: n.ID()}, Path: strings.Join(path, ".")}}
}

// RunInput is the input of the whole run, or the value under a path in it; see From.
func RunInput(path ...string) Source {
	return Source{wire: &perdurev1.NodeInput{Source: &perdurev1.NodeInput_Run{Run: true}, Path: strings.Join(path, ".")}}
}

// Literal is a value that is encoded as JSON when the node is made; []byte and json.RawMessage are JSON
// already.
func Literal(v any) Source {
	data, err := encode(JSON{}, "the literal", "", v)
	return Source{wire: &perdurev1.NodeInput{Source: &perdurev1.NodeInput_Value{Value: data}}, err: err}
}

// As requires that the source is declared with this type.
func (s Source) As(t JSONType) Source {
	s.wire = proto.CloneOf(s.wire)
	s.wire.Type = t
	return s
}

// Input gives the node one input under a name. Signals and sleeps take none.
func Input(name string, s Source) NodeOption {
	return func(n *Node) {
		switch {
		case s.wire == nil:
			n.problem("the input %q has no source", name)
			return
		case s.err != nil:
			n.problem("the input %q: %w", name, s.err)
			return
		case s.node != nil && s.node.g != n.g:
			n.problem("the input %q comes from node %q of another graph", name, s.node.ID())
			return
		}
		in := proto.CloneOf(s.wire)
		in.Name = name
		n.wire.Inputs = append(n.wire.Inputs, in)
		if s.node != nil {
			n.after = append(n.after, s.node)
		}
	}
}

func cloneNode(n *perdurev1.GraphNode) *perdurev1.GraphNode { return proto.CloneOf(n) }

var errNilNode = errors.New("the node is nil")
