package addresses

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for address, want := range map[string]target{
		"poll://any@g":               {scheme: schemePoll, group: "g"},
		"poll://any@g/p":             {scheme: schemePoll, group: "g", pid: "p"},
		"poll://uni@g/p/q":           {scheme: schemePoll, group: "g", pid: "p/q", only: true},
		"poll://uni@g":               {},
		"poll://all@g/p":             {},
		"poll://any@a@b%20c":         {scheme: schemePoll, group: "a@b%20c"},
		"http://h":                   {scheme: schemeHTTP, host: "h"},
		"https://u:p@h:8080/x?y#z":   {scheme: schemeHTTP, host: "u:p@h:8080"},
		"http://h?x/y":               {scheme: schemeHTTP, host: "h?x"},
		"":                           {},
		"bash://true":                {},
		"HTTP://h":                   {},
		"poll://any@":                {scheme: schemePoll},
		"gcps://project/topic":       {},
		"https://h/path/http://evil": {scheme: schemeHTTP, host: "h"},
	} {
		if have := parse(address); have != want {
			t.Errorf("%q is %+v, must be %+v", address, have, want)
		}
	}
}

// The table answers as a list of all entries does.
func TestTableTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type entry struct {
			name
			place
		}
		table, all := newTable(), []entry{}
		names := func() name {
			return name{group{ns, rapid.SampledFrom([]string{"g", "h"}).Draw(rt, "group")}, rapid.SampledFrom([]string{"p", "q", "r"}).Draw(rt, "pid")}
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			n, server := names(), rapid.SampledFrom([]string{"", "n2", "n3"}).Draw(rt, "server")
			at := slices.IndexFunc(all, func(e entry) bool { return e.name == n && e.server == server })
			if rapid.Bool().Draw(rt, "add") {
				since := rapid.Int64Range(1, 5).Draw(rt, "since")
				news := at < 0 || since > all[at].since
				if table.add(n, server, since) != news {
					rt.Fatalf("%v at %q since %d is news: %v", n, server, since, !news)
				}
				if at >= 0 {
					all = slices.Delete(all, at, at+1)
				}
				all = append(all, entry{n, place{server, since}})
			} else {
				table.remove(n, server)
				if at >= 0 {
					all = slices.Delete(all, at, at+1)
				}
			}
			if table.size != len(all) {
				rt.Fatalf("%d entries of %d", table.size, len(all))
			}
			q := names()
			for _, only := range []bool{false, true} {
				to := target{scheme: schemePoll, group: q.group.name, pid: q.pid, only: only}
				var fit []string
				best := int64(0)
				for _, e := range all {
					if e.name == q && e.since >= best {
						if e.since > best {
							fit, best = nil, e.since
						}
						fit = append(fit, e.pid+e.server)
					}
				}
				if slices.Contains(fit, q.pid) {
					fit = []string{q.pid} // of equals this node's
				}
				for _, here := range []bool{true, false} {
					for _, e := range all {
						if best == 0 && !only && e.group == q.group && (e.server == "") == here {
							fit = append(fit, e.pid+e.server)
						}
					}
					if best == 0 && len(fit) > 0 {
						break
					}
				}
				if table.holds(ns, to) != (len(fit) > 0) {
					rt.Fatalf("%+v of %v is there: %v", to, all, len(fit) == 0)
				}
				pid, server, ok := table.pick(ns, to)
				if ok != (len(fit) > 0) || ok && !slices.Contains(fit, pid+server) {
					rt.Fatalf("%+v of %v is at %q %q, must be of %v", to, all, pid, server, fit)
				}
				pid, ok = table.pickHere(ns, to)
				here := slices.ContainsFunc(all, func(e entry) bool {
					return e.group == q.group && e.server == "" && (!only || e.pid == q.pid)
				})
				if ok != here || ok && !slices.ContainsFunc(all, func(e entry) bool { return e.group == q.group && e.pid == pid && e.server == "" }) {
					rt.Fatalf("%+v of %v is here at %q", to, all, pid)
				}
			}
		}
	})
}

// Messages for any process of a group go to each of its streams in turn.
func TestTurns(t *testing.T) {
	table := newTable()
	for i := range 3 {
		table.add(name{group{ns, "g"}, fmt.Sprint(i)}, "n2", 1)
	}
	seen := map[string]int{}
	for range 9 {
		pid, _, _ := table.pick(ns, target{scheme: schemePoll, group: "g"})
		seen[pid]++
	}
	if len(seen) != 3 || seen["0"] != 3 || seen["1"] != 3 {
		t.Errorf("nine messages went to %v", seen)
	}
}
