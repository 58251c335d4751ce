package machine

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
)

var update = flag.Bool("update", false, "write the results of the scripts into testdata")

// TestScripts plays the stories in testdata/*.txt. A line "> ..." is something that happens; what is
// answered, and what the leader is to do, follows, one line each. All else is for the reader.
//
//	> partitions N                              begin (one partition if not said)
//	> at MS                                     the clock
//	> register FUNCTION … [partition=N]
//	> start ID FUNCTION [INPUT] [timeout=MS] [request=R] [age=MS] [reuse=POLICY]
//	> grant WORKER FUNCTION,… [credit=N] [lease=MS] [partition=N] [digests=DIGEST,…]
//	> attach DIGEST FUNCTION … [partition=N]    a worker of a digest attaches
//	> commit WORKER ID OPERATIONS               see ops; [request=R] [next=N] may stand before them
//	> again WORKER ID                           repeats the last commit, with its request id
//	> signal ID NAME PAYLOAD [request=R] [age=MS] [function=F] [reuse=POLICY]   with a function: and start it
//	> restart ID start|failure|EVENT [children=new]
//	> misfit WORKER ID PROBLEM [code=C]         the worker's code does not fit the journal
//	> cancel ID REASON [grace=MS]   > terminate ID REASON
//	> heartbeat WORKER ID   > release WORKER ID PROBLEM [delay=MS]
//	> create ID [timeout=MS]   > settle ID STATE VALUE   > promise ID
//	> tick   > restart
//	> channel SRC DST   > deliver SRC DST [limit=N] [late]   > trim SRC DST THROUGH
//	> describe ID   > journal ID   > list [STATUS …]
//	> tell, ask, answer, entity, work, run, rerun, give: see playEntity
//
// A root made by hashing is shown, and may be given, as @ and its first eight digits.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the story goes otherwise now:\n%s", firstDifference(string(want), string(got)))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

func play(t *testing.T, script string) []byte {
	var out bytes.Buffer
	p := &player{world: newWorld(t, 1)}
	answering := false
	for line := range strings.Lines(script) {
		switch {
		case strings.HasPrefix(line, "> "):
			out.WriteString(line)
			for _, answer := range p.play(p.long(strings.TrimSpace(line[2:]))) {
				fmt.Fprintf(&out, "  %s\n", hashed.ReplaceAllString(answer, "@$1"))
			}
			answering = true
		case strings.HasPrefix(line, "  ") && answering:
			// An old answer; the new one is written already.
		default:
			out.WriteString(line)
			answering = false
		}
	}
	return out.Bytes()
}

var (
	hashed = regexp.MustCompile(`([0-9a-f]{8})[0-9a-f]{56}`)
	short  = regexp.MustCompile(`@[0-9a-f]{8}`)
)

// long puts hashed roots in the place of their short forms.
func (p *player) long(line string) string {
	return short.ReplaceAllStringFunc(line, func(s string) string {
		for _, part := range p.parts {
			for objectID := range takeCensus(part.state).headers {
				if strings.HasPrefix(objectID, s[1:]) {
					return objectID
				}
			}
		}
		return s
	})
}

type player struct {
	*world
	// late keeps the messages that a channel held when "channel" was asked, to deliver them once more.
	late map[[2]int]*commandv1.Command
	last map[viewKey]*commandv1.Command
	// held are the tasks of entities by worker and entity, ran their last commits.
	held map[viewKey]*holding
	ran  map[viewKey]*commandv1.Command
}

// words splits a line and takes the options (key=value) out of it.
type words struct {
	list    []string
	options map[string]string
}

func (w words) at(i int) string {
	if i < len(w.list) {
		return w.list[i]
	}
	return ""
}

func (w words) from(i int) string { return strings.Join(w.list[min(i, len(w.list)):], " ") }

func (w words) num(i int) int {
	n, _ := strconv.Atoi(w.at(i))
	return n
}

func (w words) option(name string, otherwise int64) int64 {
	if s, ok := w.options[name]; ok {
		n, _ := strconv.ParseInt(s, 10, 64)
		return n
	}
	return otherwise
}

// reuse is what a start does with an id that has ended.
func (w words) reuse() perdurev1.Reuse {
	return perdurev1.Reuse(perdurev1.Reuse_value["REUSE_"+strings.ToUpper(w.options["reuse"])])
}

func split(line string) words {
	w := words{options: map[string]string{}}
	for _, word := range strings.Fields(line) {
		key, value, ok := strings.Cut(word, "=")
		if ok && slices.Contains([]string{"timeout", "request", "age", "credit", "lease", "next", "grace", "delay", "limit", "partition",
			"reuse", "digests", "function", "children", "code"}, key) {
			w.options[key] = value
			continue
		}
		w.list = append(w.list, word)
	}
	return w
}

// play runs one line and returns its output.
func (p *player) play(line string) []string {
	p.t.Helper()
	a := split(line)
	switch a.at(0) {
	case "partitions":
		p.world = newWorld(p.t, a.num(1))
		p.late = map[[2]int]*commandv1.Command{}
		return nil
	case "at":
		p.now = int64(a.num(1))
		return nil
	case "restart":
		if len(a.list) > 1 {
			break
		}
		for _, part := range p.parts {
			p.open(part)
		}
		return nil
	case "describe":
		return []string{showExecution(p.describe(a.at(1)))}
	case "journal":
		return showEntries(p.journal(a.at(1)))
	case "promise":
		return []string{showPromise(p.promise(a.at(1)))}
	case "list":
		return p.playList(a)
	case "channel":
		return p.playChannel(a)
	}
	if out, known := p.playEntity(a); known {
		return out
	}
	cmd, part, grants := p.command(line, a)
	res := p.apply(part, &commandv1.Entry{Commands: []*commandv1.Command{cmd}, Grants: grants})
	out := showReply(res.Replies[0])
	for _, v := range p.assigned(res) {
		out = append(out, v.worker+" reads "+strconv.Itoa(len(v.journal))+" entries of "+v.token.Id)
	}
	if c := res.Replies[0].GetCommit(); c != nil && a.at(0) == "commit" {
		p.learn(p.views[viewKey{a.at(1), a.at(2)}], cmd.GetCommit(), c)
	}
	return append(out, showEffects(res.Effects)...)
}

func (p *player) playList(a words) (out []string) {
	req := &perdurev1.ListRequest{}
	for _, s := range a.list[1:] {
		req.Status = append(req.Status, perdurev1.ExecutionStatus(perdurev1.ExecutionStatus_value["EXECUTION_STATUS_"+s]))
	}
	for _, part := range p.parts {
		reply, err := query.Answer(part.state, part.cfg.Partition, &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_List{List: req}})
		if err != nil {
			p.t.Fatalf("list: %v", err)
		}
		for _, e := range reply.GetList().Executions {
			out = append(out, fmt.Sprintf("%s@%d %s %s created=%d closed=%d", e.Id, e.Incarnation, e.Function, status(e.Status), e.CreatedMs, e.ClosedMs))
		}
	}
	return out
}

func (p *player) playChannel(a words) (out []string) {
	cmd := p.deliverCmd(a.num(1), a.num(2), 100)
	p.late[[2]int{a.num(1), a.num(2)}] = cmd
	for _, m := range cmd.GetDeliver().Messages {
		out = append(out, showMessage(m))
	}
	return out
}

// command returns the command of a line, its partition, and the entry's grants.
func (p *player) command(line string, a words) (*commandv1.Command, *part, []*commandv1.Grant) {
	p.t.Helper()
	request := func(cmd *commandv1.Command) *commandv1.Command {
		if r, ok := a.options["request"]; ok {
			cmd.Request = &perdurev1.RequestID{Id: []byte(r)}
		}
		if cmd.Request != nil {
			cmd.Request.AgeMs = uint64(a.option("age", 0))
		}
		return cmd
	}
	placed := func(cmd *commandv1.Command) (*commandv1.Command, *part, []*commandv1.Grant) {
		return cmd, p.at(cmd.Id), nil
	}
	held := func() *view {
		v, ok := p.views[viewKey{a.at(1), a.at(2)}]
		if !ok {
			p.t.Fatalf("%s was never given %s", a.at(1), a.at(2))
		}
		return v
	}
	switch a.at(0) {
	case "register":
		return registerCmd(a.list[1:]...), p.parts[int(a.option("partition", 0))], nil
	case "start":
		cmd := startCmd(p.request(), a.at(1), a.at(2), a.at(3))
		cmd.GetStart().TimeoutMs = a.option("timeout", 0)
		cmd.GetStart().AllowUnknownFunction, cmd.GetStart().Reuse = false, a.reuse()
		return placed(request(cmd))
	case "grant":
		o := grant(a.at(1), int(a.option("credit", 1)), strings.Split(a.at(2), ",")...)
		o.LeaseMs = a.option("lease", o.LeaseMs)
		if digests := a.options["digests"]; digests != "" {
			o.Digests = strings.Split(digests, ",")
		}
		return assignCmd(), p.parts[int(a.option("partition", 0))], []*commandv1.Grant{o}
	case "commit":
		// Options of operations stay with them: only those before the first operation are the line's.
		_, text, _ := strings.Cut(line, a.at(2)+" ")
		for _, option := range []string{"request", "next"} {
			if s, ok := a.options[option]; ok {
				text = strings.TrimPrefix(strings.TrimSpace(text), option+"="+s)
			}
		}
		v := held()
		cmd := request(p.commitCmd(v, text))
		cmd.GetCommit().NextChild = uint32(a.option("next", int64(cmd.GetCommit().NextChild)))
		if p.last == nil {
			p.last = map[viewKey]*commandv1.Command{}
		}
		p.last[viewKey{a.at(1), a.at(2)}] = cmd
		return placed(cmd)
	case "again":
		return placed(p.last[viewKey{a.at(1), a.at(2)}])
	case "signal":
		cmd := signalCmd(p.request(), a.at(1), a.at(2), a.from(3))
		if fn := a.options["function"]; fn != "" {
			cmd.GetSignal().Start = reuseCmd(nil, a.at(1), fn, "in", a.reuse()).GetStart()
		}
		return placed(request(cmd))
	case "restart":
		cmd := restartCmd(p.request(), a.at(1), fromEvent, uint64(a.num(2)))
		switch r := cmd.GetRestart(); a.at(2) {
		case "start":
			r.From = fromStart
		case "failure":
			r.From = fromFailure
		}
		cmd.GetRestart().NewChildren = a.options["children"] == "new"
		return placed(request(cmd))
	case "attach":
		cmd := registerCmd(a.list[2:]...)
		cmd.GetRegisterFunctions().Digest, cmd.GetRegisterFunctions().Code = a.at(1), a.at(1)
		return cmd, p.parts[int(a.option("partition", 0))], nil
	case "misfit":
		cmd := releaseCmd(held().token, a.from(3), 0)
		cmd.GetRelease().CodeMismatch, cmd.GetRelease().Code = true, a.options["code"]
		return placed(cmd)
	case "cancel":
		return placed(cancelCmd(a.at(1), a.from(2), a.option("grace", 0)))
	case "terminate":
		return placed(terminateCmd(a.at(1), a.from(2)))
	case "heartbeat":
		return heartbeatCmd(a.at(1), held().token), p.at(a.at(2)), nil
	case "release":
		return placed(releaseCmd(held().token, a.from(3), a.option("delay", 0)))
	case "create":
		return placed(createPromiseCmd(a.at(1), a.option("timeout", 0)))
	case "settle":
		return placed(settlePromiseCmd(a.at(1), perdurev1.PromiseState(perdurev1.PromiseState_value["PROMISE_STATE_"+a.at(2)]), a.from(3)))
	case "tick":
		return tickCmd(0), p.parts[a.num(1)], nil
	case "deliver":
		cmd := p.deliverCmd(a.num(1), a.num(2), int(a.option("limit", 100)))
		if a.at(3) == "late" {
			cmd = p.late[[2]int{a.num(1), a.num(2)}]
		}
		return cmd, p.parts[a.num(2)], nil
	case "trim":
		return &commandv1.Command{Kind: &commandv1.Command_Trim{Trim: &commandv1.Trim{
			Destination: uint32(a.num(2)), Epoch: 1, Through: uint64(a.num(3))}}}, p.parts[a.num(1)], nil
	}
	p.t.Fatalf("cannot read %q", line)
	return nil, nil, nil
}
