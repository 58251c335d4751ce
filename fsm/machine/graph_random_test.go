package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/internal/testkit"
	"perdure/reduction"
)

// A graphDriver drives one graph run: workers that end attempts according to ends, clients that send signals,
// time, and occasional restarts of the machine.
type graphDriver struct {
	*world
	draw func(n int) int
	// ends says how the attempts of a node end, by the node's path through the subgraphs.
	ends map[string][]string
	// reopen: how often, in percent, the machine forgets what it has in memory.
	reopen int
}

// drawGraph draws a graph, and how its attempts will end.
func drawGraph(draw func(n int) int, ends map[string][]string, path string, depth int) *perdurev1.Graph {
	var text strings.Builder
	var subgraphs []*perdurev1.Graph
	n := 1 + draw(7)
	for i := range n {
		name := fmt.Sprint("n", i)
		text.WriteString(name)
		switch draw(10) {
		case 0:
			fmt.Fprintf(&text, " signal %c", "ab"[draw(2)])
		case 1:
			fmt.Fprintf(&text, " sleep %d", 1+draw(50))
		case 2:
			text.WriteString(" http http://127.0.0.1/")
		case 3:
			if depth < 2 {
				fmt.Fprintf(&text, " graph %d", len(subgraphs))
				subgraphs = append(subgraphs, drawGraph(draw, ends, path+name+"/", depth+1))
			}
		}
		var after, in []string
		for j := range i {
			if draw(3) == 0 {
				after = append(after, fmt.Sprint("n", j))
				in = append(in, fmt.Sprintf("in i%d=n%d", j, j))
			}
		}
		if len(after) > 0 {
			text.WriteString(" after " + strings.Join(after, ","))
			if w := text.String(); !strings.Contains(w[strings.LastIndex(w, ";")+1:], " signal ") && !strings.Contains(w[strings.LastIndex(w, ";")+1:], " sleep ") {
				text.WriteString(" " + strings.Join(in, " "))
			}
		}
		if draw(3) == 0 {
			text.WriteString(" skip")
		}
		if a := draw(4); a > 1 {
			fmt.Fprintf(&text, " attempts=%d", a)
		}
		text.WriteString("; ")
		for range 3 {
			ends[path+name] = append(ends[path+name], []string{
				fmt.Sprintf("return %d", draw(100)), `return "x"`, "return", "fail app:broken", "fail graph.skipped:",
				fmt.Sprintf("fail graph.suspended:%c", "ab"[draw(2)]), "return {}",
			}[draw(7)])
		}
	}
	g := graphOf(text.String(), subgraphs...)
	g.MaxParallel = uint32(draw(4))
	g.Wave = draw(3) == 0
	return g
}

// runs lists a run and the runs of its subgraphs that there are, with their paths.
func (w *world) runs(run, path string, visit func(run, path string, s *perdurev1.GraphStatus)) {
	s := w.graphStatus(run)
	visit(run, path, s)
	for _, n := range s.Nodes {
		if n.Kind == "subgraph" && n.AttemptId != "" && !n.Kept {
			w.runs(n.AttemptId, path+n.Id+"/", visit)
		}
	}
}

// drive plays until the run has ended. trouble: leases are lost, tasks given back, the run cancelled.
func (d *graphDriver) drive(run string, trouble bool) {
	d.t.Helper()
	for round := 0; ; round++ {
		if round > 2000 {
			d.t.Fatalf("there is no end to %s: %s", run, d.showGraph(run))
		}
		if d.draw(100) < d.reopen {
			d.open(d.at(run))
		}
		if d.describe(run).WakeSource == "finished" {
			return
		}
		d.work()
		type end struct{ attempt, how string }
		var ends []end
		d.runs(run, "", func(r, path string, s *perdurev1.GraphStatus) {
			for _, n := range s.Nodes {
				if n.Status == perdurev1.NodeStatus_NODE_STATUS_RUNNING && n.AttemptId != "" && n.Kind != "subgraph" && n.RetryAtMs == 0 {
					all := d.ends[path+n.Id]
					ends = append(ends, end{n.AttemptId, all[min(int(n.Attempt), len(all))-1]})
				}
			}
		})
		choice := d.draw(10)
		switch {
		case trouble && choice == 0:
			d.now += 10_001 // every lease is lost
			d.tick()
		case trouble && choice == 1 && len(ends) > 0:
			if v := d.views[viewKey{"w1", ends[0].attempt}]; v != nil {
				d.one(releaseCmd(v.token, "no", 0))
			}
		case trouble && choice == 2 && len(ends) > 0:
			// The attempt ends, its node is updated, and then the commit is refused: all of it rolls back.
			if v := d.views[viewKey{"w1", ends[0].attempt}]; v != nil {
				if reply := d.one(d.commitCmd(v, ends[0].how+"; step x -> 1")); wire.ReplyError(reply) == nil {
					d.t.Fatalf("a commit with an event behind its end is answered %v", reply)
				}
			}
		case len(ends) > 1 && choice == 7:
			// Several end in one entry, which gives out at once what they make ready.
			entry := &commandv1.Entry{Grants: []*commandv1.Grant{grant("w1", 3, "f", "$http")}}
			for _, e := range ends[:2+d.draw(len(ends)-1)] {
				if v := d.views[viewKey{"w1", e.attempt}]; v != nil {
					entry.Commands = append(entry.Commands, d.commitCmd(v, e.how))
				}
			}
			d.assigned(d.apply(d.at(run), entry))
		case len(ends) > 0 && choice < 8:
			e := ends[d.draw(len(ends))]
			v := d.views[viewKey{"w1", e.attempt}]
			if v == nil {
				d.t.Fatalf("no worker has %s", e.attempt)
			}
			// The lease may have ended; then the task was assigned again in the meantime.
			if reply := d.one(d.commitCmd(v, e.how)); wire.ReplyError(reply) != nil && !trouble {
				d.t.Fatalf("%s of %s: %v", e.how, e.attempt, wire.ReplyError(reply))
			}
		case choice == 8 || len(ends) == 0:
			at, ok, err := query.NextExpiration(d.at(run).state)
			if err != nil {
				d.t.Fatalf("%v", err)
			}
			if ok && (at < d.now+5_000 || len(ends) == 0) && at < d.now+100_000 {
				d.now = max(d.now, at)
				d.tick()
				continue
			}
			var waiting [][2]string
			d.runs(run, "", func(r, _ string, s *perdurev1.GraphStatus) {
				for _, n := range s.Nodes {
					if n.Signal != "" {
						waiting = append(waiting, [2]string{r, n.Signal})
					}
				}
			})
			if len(waiting) > 0 {
				d.signal(waiting[d.draw(len(waiting))])
			}
		}
	}
}

func (d *graphDriver) signal(to [2]string) {
	d.do(signalCmd(d.request(), to[0], to[1], `"`+to[1]+`"`))
}

// final is what has become of every node, whatever the order in which it happened.
func (d *graphDriver) final(run string) string {
	var out []string
	d.runs(run, "", func(r, path string, s *perdurev1.GraphStatus) {
		for _, n := range s.Nodes {
			o := d.nodeOutcome(r, n.Id)
			out = append(out, fmt.Sprintf("%s%s %v #%d %q %s %t", path, n.Id, n.Status, n.Attempt, o.Output, n.Failure.GetType(), n.ByPropagation))
		}
		out = append(out, path+" "+s.Phase+" "+d.result(r))
	})
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// pure reduces the outcomes that the nodes of a run have come to by the papers' own definitions, and compares.
func (w *world) pure(run string) {
	w.t.Helper()
	w.runs(run, "", func(r, path string, s *perdurev1.GraphStatus) {
		if s.Status == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
			return
		}
		g := w.query(&commandv1.Query{Id: r, Kind: &commandv1.Query_Graph{Graph: &perdurev1.GetGraphRequest{}}}).GetGraph().Graph
		rel, err := state.RelationOf(g)
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		results := map[reduction.NodeID]reduction.Outcome{}
		for i, n := range s.Nodes {
			id := reduction.NodeID(n.Id)
			switch {
			case n.Status == perdurev1.NodeStatus_NODE_STATUS_COMPLETED:
				results[id] = reduction.Succeeded{Output: w.nodeOutcome(r, n.Id).Output}
			case n.Status == perdurev1.NodeStatus_NODE_STATUS_FAILED && !n.ByPropagation:
				results[id] = reduction.NodeFailed{}
			case n.Status == perdurev1.NodeStatus_NODE_STATUS_SKIPPED && n.Failure != nil:
				results[id] = reduction.Policy(g.Nodes[i].OnFailure).Translate(reduction.NodeFailed{})
			case n.Status == perdurev1.NodeStatus_NODE_STATUS_SKIPPED:
				results[id] = reduction.Skipped{}
			}
		}
		reduced, phase := reduction.Initial(rel), reduction.PhaseProgressing
		for phase == reduction.PhaseProgressing {
			p := reduction.Classify(rel, reduced).(reduction.Progressing)
			var batch []reduction.Result
			for _, node := range p.Frontier {
				if results[node] == nil {
					w.t.Fatalf("%s: node %s was ready, and has no result: %s", r, node, w.showGraph(r))
				}
				batch = append(batch, reduction.Result{Node: node, Outcome: results[node]})
				delete(results, node)
			}
			if reduced, err = reduction.Accumulate(rel, reduced, batch...); err != nil {
				w.t.Fatalf("%s: %v", r, err)
			}
			reduced = reduction.Close(rel, reduced)
			phase = reduction.Classify(rel, reduced).Phase()
		}
		if len(results) > 0 {
			w.t.Fatalf("%s: results of nodes that were never ready: %v", r, results)
		}
		for _, n := range s.Nodes {
			at := reduced.Statuses[reduction.NodeID(n.Id)].Kind
			if wire.EncodeNodeStatus(at) != n.Status {
				w.t.Fatalf("%s: node %s is %v, the reduction says %v", r, n.Id, n.Status, at)
			}
		}
		if !strings.EqualFold(phase.String(), s.Phase) {
			w.t.Fatalf("%s: the run is %s, the reduction says %s", r, s.Phase, phase)
		}
	})
}

func drawer(t *rapid.T) func(n int) int {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "draw") }
}

// Random graphs with random outcomes, in any order and with restarts, reach the result of the reduction over
// these outcomes. Every following replica reaches the same bytes.
func TestGraphsReduce(t *testing.T) {
	testkit.Checks(t, testkit.Choose(50, 30, 100)) // of which -short tries a fifth
	rapid.Check(t, func(rt *rapid.T) {
		d := &graphDriver{world: newWorld(rt, 1), draw: drawer(rt), ends: map[string][]string{}, reopen: 20}
		g := drawGraph(d.draw, d.ends, "", 0)
		d.submit("run", g, `{"in":1}`)
		d.drive("run", d.draw(2) == 0)
		d.pure("run")
		for _, r := range []replica{
			{name: "in one go", reopen: 1 << 30, batch: 1},
			{name: "reopened every time", reopen: 1, batch: 1},
			{name: "batches of three", reopen: 2, batch: 3},
		} {
			if got := r.follow(t, d.parts[0]); got != "" {
				rt.Fatalf("%s: %s", r.name, got)
			}
		}
	})
}

// The same outcomes lead to the same end, one by one and in waves, whatever runs at once.
func TestGraphSchedulesAgree(t *testing.T) {
	testkit.Checks(t, testkit.Choose(50, 30, 100)) // of which -short tries a fifth
	rapid.Check(t, func(rt *rapid.T) {
		draw := drawer(rt)
		ends := map[string][]string{}
		g := drawGraph(draw, ends, "", 1)
		want := ""
		for i, wave := range []bool{false, true, false, true} {
			d := &graphDriver{world: newWorld(rt, 1), draw: draw, ends: ends, reopen: 10}
			g.Wave, g.MaxParallel = wave, uint32(i)
			d.submit("run", g, "")
			d.drive("run", false)
			got := d.final("run")
			if want == "" {
				want = got
			}
			if got != want {
				rt.Fatalf("wave %v, at most %d at once:\n%s\nelse\n%s", wave, i, got, want)
			}
		}
	})
}

// Runs that are cancelled, terminated, timed out and retried at any moment end, and leave nothing behind.
func TestGraphsEnd(t *testing.T) {
	testkit.Checks(t, testkit.Choose(50, 30, 100)) // of which -short tries a fifth
	rapid.Check(t, func(rt *rapid.T) {
		d := &graphDriver{world: newWorld(rt, 1), draw: drawer(rt), ends: map[string][]string{}, reopen: 20}
		cmd := submitCmd(d.request(), "run", drawGraph(d.draw, d.ends, "", 0), "")
		if d.draw(2) == 0 {
			cmd.GetSubmitGraph().TimeoutMs = int64(1 + d.draw(500))
		}
		d.do(cmd)
		for range 1 + d.draw(3) {
			for range d.draw(8) {
				d.work()
				s := d.graphStatus("run")
				if n := s.Nodes[d.draw(len(s.Nodes))]; n.AttemptId != "" {
					if v := d.views[viewKey{"w1", n.AttemptId}]; v != nil {
						d.one(d.commitCmd(v, d.ends[n.Id][0]))
					} else if d.draw(3) == 0 {
						d.one(terminateCmd(n.AttemptId, "from outside"))
					}
				}
				d.pass(int64(d.draw(200)))
			}
			switch d.draw(4) {
			case 0:
				d.one(cancelCmd("run", "enough", int64(1+d.draw(1000))))
			case 1:
				d.one(terminateCmd("run", "enough"))
			}
			if d.draw(2) == 0 {
				d.open(d.parts[0])
			}
			d.drive("run", true)
			d.one(retryCmd(d.request(), "run"))
		}
		d.drive("run", true)
		r := replica{name: "reopened every time", reopen: 1, batch: 1}
		if got := r.follow(t, d.parts[0]); got != "" {
			rt.Fatalf("%s: %s", r.name, got)
		}
		d.pass(1 << 40)
		if open := d.openIDs(); len(open) > 0 {
			rt.Fatalf("still open: %v", open)
		}
		if _, due, _ := query.NextExpiration(d.parts[0].state); due {
			rt.Fatalf("something is still due")
		}
	})
}

func (w *world) openIDs() (ids []string) {
	for _, h := range takeCensus(w.parts[0].state).headers {
		if !h.Status.Terminal() {
			ids = append(ids, h.ID)
		}
	}
	return ids
}
