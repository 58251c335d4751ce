package jepsen

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
	"perdure/graph"
)

// graphFunctionName is the function that every function node runs.
const graphFunctionName = "jepsen-graph-node"

// NodeEnd is how the last attempt of a scripted node ends.
type NodeEnd string

// The ends.
const (
	EndSucceed NodeEnd = "succeed"
	EndFail    NodeEnd = "fail"    // with a failure that may be tried again
	EndRefuse  NodeEnd = "refuse"  // with one that may not
	EndSkip    NodeEnd = "skip"    // durable.Skip
	EndSuspend NodeEnd = "suspend" // durable.SuspendOn
	EndHang    NodeEnd = "hang"    // not at all: every attempt runs into the node's time-out
)

// NodePlan is the behaviour of a function node. The function gets it as an input. It depends only on the
// number of the attempt, which is in the attempt's id, so a worker that dies does not change it.
type NodePlan struct {
	Node string `json:"node"`
	// Fails is how many attempts fail before the one that ends as End says.
	Fails uint32  `json:"fails,omitempty"`
	End   NodeEnd `json:"end"`
	// Ms is how long an attempt takes; Step has it spent in a step of its own.
	Ms   int64 `json:"ms,omitempty"`
	Step bool  `json:"step,omitempty"`
	// Signal is what EndSuspend waits for.
	Signal string `json:"signal,omitempty"`
}

// planInput is the input that carries a function's plan.
const planInput = "plan"

// failureScripted is the failure type of attempts that fail by their plan.
const failureScripted = "scripted"

// AttemptNumber reads the number of an attempt, from 1, off its id: run:k.a, run:k.a.k.a in a subgraph. Each
// incarnation of a run has 1024 numbers. It is 0 for an id of another form.
func AttemptNumber(id string) uint32 {
	at := strings.LastIndexAny(id, ".:")
	n, err := strconv.ParseUint(id[at+1:], 10, 32)
	if at < 0 || err != nil {
		return 0
	}
	return uint32(n)%1024 + 1
}

// Answer is the result of a function node that succeeds: a digest of its name and all its inputs, so that a
// wrong input anywhere shows in everything after it.
func Answer(node string, inputs map[string]json.RawMessage) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", node)
	names := make([]string, 0, len(inputs))
	for name := range inputs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name == planInput {
			continue
		}
		var v any
		if err := json.Unmarshal(inputs[name], &v); err != nil {
			return "", err
		}
		canonical, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s=%s\n", name, canonical)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// graphFunction is the function of all function nodes. It calls note before it acts.
func graphFunction(note func(attempt, node string) error) *durable.Function[map[string]json.RawMessage, string] {
	return durable.NewFunction(graphFunctionName, func(ctx durable.Context, in map[string]json.RawMessage) (string, error) {
		var p NodePlan
		if err := json.Unmarshal(in[planInput], &p); err != nil {
			return "", fmt.Errorf("the plan %q: %w", in[planInput], err)
		}
		id := durable.Info(ctx).ID
		if err := note(id, p.Node); err != nil {
			panic(err) // not an answer of the node: another worker may do better
		}
		if err := p.spend(ctx); err != nil {
			return "", err
		}
		attempt := AttemptNumber(id)
		end := p.End
		if end != EndHang && attempt <= p.Fails {
			end = EndFail
		}
		switch end {
		case EndSucceed:
			return Answer(p.Node, in)
		case EndSkip:
			return "", durable.Skip("as scripted")
		case EndSuspend:
			return "", durable.SuspendOn(p.Signal)
		case EndHang:
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "", &durable.Error{Type: failureScripted, Message: p.failure(attempt), NonRetryable: end == EndRefuse}
	})
}

// failure is the message of a failed attempt.
func (p NodePlan) failure(attempt uint32) string {
	return fmt.Sprintf("%s, attempt %d", p.Node, attempt)
}

// spend waits for the time that an attempt takes.
func (p NodePlan) spend(ctx durable.Context) error {
	if p.Ms == 0 {
		return nil
	}
	wait := func(ctx context.Context) (bool, error) { return true, pause(ctx, time.Duration(p.Ms)*time.Millisecond) }
	var err error
	if p.Step {
		_, err = durable.Run(ctx, "spend", wait)
	} else {
		_, err = wait(ctx)
	}
	return err
}

// GraphScript is a graph with the plan of each of its nodes.
type GraphScript struct {
	Graph *perdurev1.Graph
	// Plans are of the function nodes, Subs of the subgraphs, by node.
	Plans map[string]NodePlan
	Subs  map[string]*GraphScript
	// Signals are sent to the run, with SignalPayload. The signals that other nodes wait for never come.
	Signals []string
}

// SignalPayload is what comes with a signal.
func SignalPayload(name string) []byte { return []byte(strconv.Quote("signal " + name)) }

// NodeExpect is a node's end by the script.
type NodeExpect struct {
	Status        perdurev1.NodeStatus
	ByPropagation bool
	// Attempt is that of the end; 0 if the node never starts.
	Attempt uint32
	// Output is JSON, nil unless it completes.
	Output []byte
	// Failure is the failure's type, Message its text, "" if unknown.
	Failure, Message string
	// Waited: it is a signal, or suspends on one.
	Waited bool
}

// Nodes is how many nodes the script has, with those of subgraphs.
func (s *GraphScript) Nodes() int {
	n := len(s.Graph.GetNodes())
	for _, sub := range s.Subs {
		n += sub.Nodes()
	}
	return n
}

// Expect says how every node ends, and whether the run completes. It does not use the reduction: it walks
// along the nodes, whose predecessors precede them.
func (s *GraphScript) Expect() (nodes map[string]NodeExpect, completes bool) {
	nodes, completes = make(map[string]NodeExpect, len(s.Graph.GetNodes())), true
	output := func(node string) ([]byte, bool) { return nodes[node].Output, nodes[node].Output != nil }
	for _, n := range s.Graph.GetNodes() {
		e := NodeExpect{Status: perdurev1.NodeStatus_NODE_STATUS_COMPLETED, Attempt: 1}
		if slices.ContainsFunc(n.GetAfter(), func(before string) bool {
			return nodes[before].Status == perdurev1.NodeStatus_NODE_STATUS_FAILED
		}) {
			e = NodeExpect{Status: perdurev1.NodeStatus_NODE_STATUS_FAILED, ByPropagation: true}
		} else {
			s.run(n, &e, output)
		}
		if e.Status == perdurev1.NodeStatus_NODE_STATUS_FAILED && !e.ByPropagation &&
			n.GetOnFailure() == perdurev1.OnFailure_ON_FAILURE_SKIP {
			e.Status = perdurev1.NodeStatus_NODE_STATUS_SKIPPED
		}
		completes = completes && e.Status != perdurev1.NodeStatus_NODE_STATUS_FAILED
		nodes[n.GetId()] = e
	}
	return nodes, completes
}

// run returns how a started node ends.
func (s *GraphScript) run(n *perdurev1.GraphNode, e *NodeExpect, output func(string) ([]byte, bool)) {
	fail := func(attempt uint32, kind, message string) {
		e.Status, e.Attempt, e.Failure, e.Message = perdurev1.NodeStatus_NODE_STATUS_FAILED, attempt, kind, message
	}
	attempts := max(n.GetRetry().GetAttempts(), 1)
	wait := func(signal string) {
		e.Waited = true
		if slices.Contains(s.Signals, signal) {
			e.Output = SignalPayload(signal)
			return
		}
		fail(1, "timeout", "")
	}
	switch kind := n.GetKind().(type) {
	case *perdurev1.GraphNode_Sleep:
		e.Output = []byte("null")
	case *perdurev1.GraphNode_Signal:
		wait(kind.Signal.GetName())
	case *perdurev1.GraphNode_Subgraph:
		sub := s.Subs[n.GetId()]
		nodes, completes := sub.Expect()
		if !completes {
			fail(attempts, "graph_failed", "")
			return
		}
		e.Output = graph.SinkOutputs(sub.Graph, func(node string) ([]byte, bool) { return nodes[node].Output, nodes[node].Output != nil })
	default:
		p := s.Plans[n.GetId()]
		if p.End == EndHang {
			fail(attempts, "timeout", "")
			return
		}
		e.Attempt = min(p.Fails+1, attempts)
		if p.Fails >= attempts {
			fail(attempts, failureScripted, p.failure(attempts))
			return
		}
		switch p.End {
		case EndSkip:
			e.Status = perdurev1.NodeStatus_NODE_STATUS_SKIPPED
		case EndSuspend:
			wait(p.Signal)
			e.Attempt = p.Fails + 1
		case EndFail:
			fail(attempts, failureScripted, p.failure(attempts))
		case EndRefuse:
			fail(p.Fails+1, failureScripted, p.failure(p.Fails+1))
		default:
			e.Output = s.answer(n, output)
		}
	}
}

// answer is what the function of a node returns.
func (s *GraphScript) answer(n *perdurev1.GraphNode, output func(string) ([]byte, bool)) []byte {
	inputs := map[string]json.RawMessage{}
	for _, in := range n.GetInputs() {
		if in.GetNode() == "" {
			continue
		}
		inputs[in.GetName()] = json.RawMessage("null")
		if v, ok := output(in.GetNode()); ok {
			inputs[in.GetName()] = v
		}
	}
	text, err := Answer(n.GetId(), inputs)
	if err != nil {
		panic(errors.Join(errors.New("the script's own outputs are not JSON"), err))
	}
	return []byte(strconv.Quote(text))
}
