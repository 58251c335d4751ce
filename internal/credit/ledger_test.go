package credit

import (
	"fmt"
	"slices"
	"testing"
)

func init() { Assert = true }

func task(id string, version uint64) Task {
	return Task{Namespace: "ns", ID: id, Incarnation: 1, Version: version}
}

// TestLedger runs sequences of events: it states the ledger's actions after each event, and its values:
// announced/overcommitted, and each link's credit.
func TestLedger(t *testing.T) {
	type step struct {
		at   int64
		e    Event
		does string
		has  string
	}
	const a, b = Link("a"), Link("b")
	home := step{0, LinkOpened{Home, true, 1}, "", "0/0 home:0"}
	for _, story := range []struct {
		name  string
		cfg   Config
		held  []Task
		steps []step
	}{
		{"one node", Config{}, nil, []step{
			home,
			{0, Announced{3}, "grant 3 home", "3/0 home:3"},
			{0, Announced{-1}, "", "3/0 home:3"},
			{0, Assigned{Home, task("x", 1)}, "", "2/0 home:2"},
			{0, Begun{task("x", 1)}, "", "2/0 home:2"},
			{0, Finished{task("x", 1)}, "", "2/0 home:2"},
			{0, Announced{1}, "grant 1 home", "3/0 home:3"},
			{0, Shrunk{Home, 2}, "", "1/0 home:1"},
		}},
		{"no link yet", Config{}, nil, []step{
			{0, Announced{2}, "", "2/0"},
			{0, Resent{task("x", 1)}, "", "1/0"},
			{0, LinkOpened{a, false, 1}, "grant 1 a", "1/0 a:1"},
		}},
		{"split over nodes that lead", Config{}, nil, []step{
			home,
			{0, Announced{9}, "grant 9 home", "9/0 home:9"},
			{0, LinkOpened{a, true, 3}, "revoke 3 home", "9/0 home:9 a:0"},
			{0, Returned{Home, 3}, "grant 2 a, grant 1 a", "9/0 home:6 a:3"},
			{0, LinkOpened{b, false, 3}, "", "9/0 home:6 a:3 b:0"},
			{0, Leads{Home, false}, "", "9/0 home:6 a:3 b:0"},
			{0, Announced{1}, "grant 1 a", "10/0 home:6 a:4 b:0"},
		}},
		{"credit goes where tasks wait", Config{Rest: 50}, nil, []step{
			home,
			{0, Announced{1}, "grant 1 home", "1/0 home:1"},
			{0, LinkOpened{a, true, 3}, "", "1/0 home:1 a:0"},
			{0, LinkOpened{b, true, 3}, "", "1/0 home:1 a:0 b:0"},
			{0, Wants{a, true}, "revoke 1 home", "1/0 home:1 a:0 b:0"},
			{0, Returned{Home, 1}, "grant 1 a", "1/0 home:0 a:1 b:0"},
			{0, Assigned{a, task("x", 1)}, "", "0/0 home:0 a:0 b:0"},
			{0, Wants{a, false}, "", "0/0 home:0 a:0 b:0"},
			{0, Leads{a, false}, "", "0/0 home:0 a:0 b:0"},
			{0, Announced{2}, "grant 1 home, grant 1 b", "2/0 home:1 a:0 b:1"},
			{0, Wants{Home, true}, "", "2/0 home:1 a:0 b:1"},
			{0, Assigned{Home, task("y", 1)}, "revoke 1 b", "1/0 home:0 a:0 b:1"},
			{9, Returned{b, 0}, "wake 59", "1/0 home:0 a:0 b:1"},
			{20, Announced{0}, "", "1/0 home:0 a:0 b:1"},
			{59, Tick{}, "revoke 1 b", "1/0 home:0 a:0 b:1"},
			{60, Returned{b, 1}, "grant 1 home", "1/0 home:1 a:0 b:0"},
		}},
		{"a task that comes twice uses credit once", Config{}, []Task{task("held", 3)}, []step{
			home,
			{0, Announced{4}, "grant 4 home", "4/0 home:4"},
			{0, Assigned{Home, task("x", 1)}, "", "3/0 home:3"},
			{0, Assigned{Home, task("x", 1)}, "grant 1 home", "3/0 home:3"},
			{0, Resent{task("x", 1)}, "", "3/0 home:3"},
			{0, Resent{task("held", 3)}, "", "3/0 home:3"},
			{0, Dropped{Home}, "grant 1 home", "3/0 home:3"},
			{0, Assigned{Home, task("x", 2)}, "", "2/0 home:2"},
		}},
		{"a task delivered again uses the next credit", Config{}, nil, []step{
			{0, LinkOpened{a, true, 1}, "", "0/0 a:0"},
			{0, Announced{2}, "grant 2 a", "2/0 a:2"},
			{0, Resent{task("x", 1)}, "revoke 1 a", "2/1 a:2"},
			{0, Resent{task("y", 1)}, "", "2/2 a:2"},
			{0, Resent{task("z", 1)}, "", "2/2 a:2"},
			{0, Returned{a, 1}, "revoke 1 a", "1/1 a:1"},
			{0, Assigned{a, task("w", 1)}, "", "0/0 a:0"},
			{0, Returned{a, 1}, "", "0/0 a:0"},
			{0, Announced{1}, "grant 1 a", "1/0 a:1"},
		}},
		{"what is lost with a link covers tasks first", Config{}, nil, []step{
			{0, LinkOpened{a, true, 2}, "", "0/0 a:0"},
			{0, Announced{3}, "grant 3 a", "3/0 a:3"},
			{0, Resent{task("x", 1)}, "revoke 1 a", "3/1 a:3"},
			{0, Resent{task("y", 1)}, "", "3/2 a:3"},
			{0, LinkLost{a}, "", "1/0"},
			{0, Returned{a, 1}, "", "1/0"},
			{0, LinkOpened{a, true, 2}, "grant 1 a", "1/0 a:1"},
		}},
		{"a task that is over before it is sent", Config{}, nil, []step{
			home,
			{0, Announced{1}, "grant 1 home", "1/0 home:1"},
			{0, Assigned{Home, task("x", 1)}, "", "0/0 home:0"},
			{0, Resent{task("y", 1)}, "", "0/0 home:0"},
			{0, Undelivered{task("y", 1)}, "", "0/0 home:0"},
			{0, Undelivered{task("x", 1)}, "grant 1 home", "1/0 home:1"},
			{0, Undelivered{task("x", 1)}, "", "1/0 home:1"},
			{0, Wants{Home, true}, "", "1/0 home:1"},
			{0, Resent{task("z", 1)}, "", "1/1 home:1"},
			{0, Undelivered{task("z", 1)}, "", "1/0 home:1"},
			{0, Assigned{Home, task("x", 1)}, "", "0/0 home:0"},
			{0, Begun{task("x", 1)}, "", "0/0 home:0"},
			{0, Undelivered{task("x", 1)}, "", "0/0 home:0"},
		}},
		{"a worker that splits its own", Config{}, nil, []step{
			{0, LinkOpened{a, true, 2}, "", "0/0 a:0"},
			{0, Announced{8}, "grant 8 a", "8/0 a:8"},
			{0, LinkOpened{b, true, 2}, "revoke 4 a", "8/0 a:8 b:0"},
			{0, Returned{a, 4}, "grant 2 b, grant 1 b, grant 1 b", "8/0 a:4 b:4"},
			{0, Assigned{a, task("x", 1)}, "", "7/0 a:3 b:4"},
			{0, Finished{task("x", 1)}, "", "7/0 a:3 b:4"},
			{0, Extended{a, 1}, "", "8/0 a:4 b:4"},
			{0, LinkLost{a}, "grant 4 b", "8/0 b:8"},
			{0, Assigned{b, task("y", 1)}, "", "7/0 b:7"},
			{0, Finished{task("y", 1)}, "", "7/0 b:7"},
			{0, Extended{a, 1}, "grant 1 b", "8/0 b:8"},
			{0, LinkOpened{a, true, 9}, "", "8/0 b:8 a:0"},
		}},
		{"a silent worker gets no grants", Config{SilentAfter: 10}, nil, []step{
			home,
			{10, Announced{4}, "grant 4 home", "4/0 home:4"},
			{11, Announced{1}, "", "5/0 home:4"},
			{11, LinkOpened{a, true, 2}, "", "5/0 home:4 a:0"},
			{11, Wants{a, true}, "", "5/0 home:4 a:0"},
			{11, LinkLost{Home}, "", "5/0 a:0"},
			{11, Resent{task("x", 1)}, "", "4/0 a:0"},
			{30, Heard{}, "grant 4 a", "4/0 a:4"},
			{40, LinkOpened{Home, true, 2}, "", "4/0 home:0 a:4"},
			{40, Announced{1}, "grant 1 home", "5/0 home:1 a:4"},
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			l := New(story.cfg, 0, story.held...)
			for k, s := range story.steps {
				if does := words(l.Step(s.at, s.e)); does != s.does {
					t.Errorf("%d: %#v: %q, want %q", k, s.e, does, s.does)
				}
				if has := figures(l); has != s.has {
					t.Fatalf("%d: after %#v: %s, want %s", k, s.e, has, s.has)
				}
			}
		})
	}
}

func linkName(l Link) string {
	if l == Home {
		return "home"
	}
	return string(l)
}

func words(actions []Action) (out string) {
	for k, a := range actions {
		if k > 0 {
			out += ", "
		}
		switch a := a.(type) {
		case Grant:
			out += fmt.Sprintf("grant %d %s", a.N, linkName(a.Link))
		case Revoke:
			out += fmt.Sprintf("revoke %d %s", a.N, linkName(a.Link))
		case Wake:
			out += fmt.Sprintf("wake %d", a.At)
		}
	}
	return out
}

func figures(l *Ledger) string {
	out := fmt.Sprintf("%d/%d", l.Announced(), l.Overcommitted())
	for _, k := range l.links {
		out += fmt.Sprintf(" %s:%d", linkName(k.name), l.Granted(k.name))
	}
	return out
}

// TestShare: what is reserved is granted, whatever is asked for.
func TestShare(t *testing.T) {
	var s Share
	var got []int
	has := func() { got = append(got, s.Granted(), s.Free()) }
	s.Grant(5)
	s.Grant(-2)
	has()
	got = append(got, s.Reserve(2), s.Reserve(9), s.Reserve(-1))
	has()
	got = append(got, s.Withdraw(1))
	s.Release(3)
	got = append(got, s.Withdraw(2), s.Withdraw(-1))
	has()
	s.Release(2)
	s.Use()
	has()
	if want := []int{5, 5, 2, 3, 0, 5, 0, 0, 2, 0, 3, 1, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAssert: a broken inequality ends the test that breaks it.
func TestAssert(t *testing.T) {
	for name, breaks := range map[string]func(){
		"use without credit": func() { (&Share{}).Use() },
		"release too much":   func() { (&Share{granted: 1}).Release(1) },
		"a leak":             func() { (&Ledger{announced: 1}).Step(0, Tick{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: nothing happened", name)
				}
			}()
			breaks()
		}()
	}
}
