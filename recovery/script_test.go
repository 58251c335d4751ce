package recovery

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the results of the scripts into testdata")

// TestScripts plays the stories in testdata/*.txt. A line "> TIME OP ID [key=value ...]" is an operation; its
// answer and its effects follow, one line each. "> state" prints everything. All else is for the reader.
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
	p := &player{t: t, s: NewMemStore(), out: &out}
	answering := false
	for line := range strings.Lines(script) {
		switch {
		case strings.HasPrefix(line, "> "):
			out.WriteString(line)
			p.do(strings.Fields(line)[1:])
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

type player struct {
	t    *testing.T
	s    *MemStore
	out  *bytes.Buffer
	born uint64
	last Settlement
}

// args are the key=value words of an operation; a word without a value is a flag.
type args map[string]string

func (a args) num(key string) int64 {
	n, _ := strconv.ParseInt(a[key], 10, 64)
	return n
}

func (a args) list(key string) (refs []Ref) {
	for id := range strings.SplitSeq(a[key], ",") {
		refs = append(refs, Ref{ID: id})
	}
	return refs
}

func (p *player) say(lines ...string) {
	for _, line := range lines {
		fmt.Fprintf(p.out, "  %s\n", line)
	}
}

func (p *player) do(words []string) {
	if words[0] == "state" {
		p.say(strings.Split(strings.TrimSpace(dump(p.s)), "\n")...)
		return
	}
	now, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil || len(words) < 3 {
		p.t.Fatalf("cannot read %q", words)
	}
	op, id, a := words[1], words[2], args{}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		a[key] = value
	}
	_, timer := a["timer"]
	_, external := a["external"]
	req := CreateRequest{ID: id, Target: a["target"], Timer: timer, External: external,
		TimeoutAt: a.num("timeout"), DelayUntil: a.num("delay"), Param: []byte(a["param"])}
	ref := TaskRef{ID: id, Version: uint64(a.num("v"))}

	var answer []string
	var fx Effects
	settled := func(st Settlement) {
		p.last = st
		answer = append(answer, showPromise(st.Promise), fmt.Sprintf("changed=%v awaiters=%q listeners=%q",
			st.Changed, st.Awaiters, st.Listeners))
	}
	switch op {
	case "create":
		p.born++
		req.Incarnation = p.born
		var c Created
		if c, fx, err = Create(p.s, now, req, retry); err == nil {
			answer = append(answer, showPromise(c.Promise))
		}
	case "create-acquired":
		p.born++
		req.Incarnation = p.born
		var c Created
		if c, err = CreateAcquired(p.s, now, req, a["pid"], a.num("ttl")); err == nil {
			answer = append(answer, showPromise(c.Promise), showTask(c.Task))
		}
	case "settle":
		state, _ := ParsePromiseState(a["to"])
		var st Settlement
		if st, err = Settle(p.s, now, Ref{ID: id}, state, []byte(a["value"])); err == nil {
			settled(st)
		}
	case "fulfill":
		state, _ := ParsePromiseState(a["to"])
		var st Settlement
		if st, err = Fulfill(p.s, now, ref, state, []byte(a["value"])); err == nil {
			settled(st)
		}
	case "deadline":
		settled(TimeoutPromise(p.s, now, Ref{ID: id}))
	case "resume":
		var r Resumed
		r, fx = Resume(p.s, now, id, a["by"], retry)
		answer = append(answer, r.String())
	case "propagate":
		fx = Propagate(p.s, now, p.last, retry)
	case "callback":
		var r Registered
		if r, err = RegisterCallback(p.s, now, Ref{ID: id}, Ref{ID: a["awaiter"]}, false); err == nil {
			answer = append(answer, fmt.Sprintf("waiting=%v %s", r.Waiting, showPromise(r.Promise)))
		}
	case "listen":
		var r Registered
		if r, err = RegisterListener(p.s, now, Ref{ID: id}, a["address"], false); err == nil {
			answer = append(answer, fmt.Sprintf("waiting=%v %s", r.Waiting, showPromise(r.Promise)))
		}
	case "acquire":
		var h Holding
		if h, err = Acquire(p.s, now, ref, a["pid"], a.num("ttl")); err == nil {
			answer = append(answer, showTask(h.Task))
		}
	case "fence":
		_, err = Fence(p.s, now, ref)
	case "heartbeat":
		answer = append(answer, fmt.Sprintf("extended=%v", Heartbeat(p.s, now, a["pid"], []TaskRef{ref})))
	case "release":
		var task Task
		if task, fx, err = Release(p.s, now, ref, a.num("delay"), retry); err == nil {
			answer = append(answer, showTask(task))
		}
	case "suspend":
		var got Suspended
		if got, err = Suspend(p.s, now, ref, a.list("on"), false); err == nil {
			answer = append(answer, showTask(got.Task))
			for _, ready := range got.Ready {
				answer = append(answer, "ready "+showPromise(ready))
			}
		}
	case "halt":
		var task Task
		if task, err = Halt(p.s, now, Ref{ID: id}); err == nil {
			answer = append(answer, showTask(task))
		}
	case "continue":
		var task Task
		if task, fx, err = Continue(p.s, now, Ref{ID: id}, retry); err == nil {
			answer = append(answer, showTask(task))
		}
	case "lease-timer":
		var done bool
		done, fx = ExpireLease(p.s, now, Ref{ID: id}, retry)
		answer = append(answer, fmt.Sprintf("done=%v", done))
	case "retry-timer":
		var done bool
		done, fx = ExpireRetry(p.s, now, Ref{ID: id}, retry)
		answer = append(answer, fmt.Sprintf("done=%v", done))
	default:
		p.t.Fatalf("no operation %q", op)
	}
	if err != nil {
		answer = []string{err.Error()}
	}
	p.say(answer...)
	p.say(showEffects(fx)...)
}
