package election

import (
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
)

// TestPosition: of two servers the one with more of the log is preferred, and of equals exactly one.
func TestPosition(t *testing.T) {
	for _, c := range []struct {
		a, b position
		want bool
	}{
		{position{"a", 3, 10}, position{"b", 2, 99}, true},
		{position{"a", 2, 10}, position{"b", 2, 11}, false},
		{position{"b", 2, 11}, position{"a", 2, 10}, true},
		{position{"a", 2, 10}, position{"b", 2, 10}, true},
		{position{"b", 2, 10}, position{"a", 2, 10}, false},
	} {
		if got := c.a.before(c.b); got != c.want || got == c.b.before(c.a) {
			t.Errorf("%v before %v: %v, the other way round %v", c.a, c.b, got, c.b.before(c.a))
		}
	}
}

// at is a candidate with a log of n entries.
func at(server string, n uint64, state string) candidate {
	return candidate{position: position{server, 1, n}, addr: server + ":1", state: state}
}

func TestPreferred(t *testing.T) {
	me := at("b", 10, "Follower")
	for name, c := range map[string]struct {
		others      []candidate
		unreachable []string
		try         int
		want        string // "" to wait
	}{
		"alone":                                 {nil, nil, 0, "b"},
		"ahead":                                 {[]candidate{at("a", 9, "Follower")}, nil, 0, "b"},
		"ahead, a lower id does not answer":     {nil, []string{"a"}, 0, ""},
		"ahead, a higher id does not answer":    {nil, []string{"c"}, 0, "b"},
		"a lower id does not answer again":      {nil, []string{"a"}, 1, "b"},
		"behind, the other campaigns by itself": {[]candidate{at("c", 11, "Follower")}, nil, 0, ""},
		"behind, the other did not campaign":    {[]candidate{at("c", 11, "Follower")}, nil, 1, "c"},
		"an equal with a lower id":              {[]candidate{at("a", 10, "Follower")}, nil, 1, "a"},
		"an equal with a higher id":             {[]candidate{at("c", 10, "Follower")}, nil, 0, "b"},
		"another one campaigns":                 {[]candidate{at("a", 9, "Candidate")}, nil, 0, ""},
		"the campaign of another one failed":    {[]candidate{at("a", 9, "Candidate")}, nil, 1, "b"},
		"another one leads":                     {[]candidate{at("a", 9, "Leader")}, nil, 3, ""},
	} {
		got, campaign := preferred(me, c.others, c.unreachable, c.try)
		if campaign != (c.want != "") || campaign && got.server != c.want {
			t.Errorf("%s: %s, %v; want %q", name, got.server, campaign, c.want)
		}
	}
}

// TestPreferredOnce: whatever two servers see of each other on their first try, at most one of them
// campaigns. On the second try both name the same candidate.
func TestPreferredOnce(t *testing.T) {
	for _, n := range []uint64{9, 10, 11} {
		a, b := at("a", n, "Follower"), at("b", 10, "Follower")
		_, aCampaigns := preferred(a, nil, []string{"b"}, 0)
		_, bCampaigns := preferred(b, nil, []string{"a"}, 0)
		if aCampaigns == bCampaigns {
			t.Errorf("a has %d entries and neither hears the other: a %v, b %v", n, aCampaigns, bCampaigns)
		}
		_, aCampaigns = preferred(a, []candidate{b}, nil, 0)
		_, bCampaigns = preferred(b, []candidate{a}, nil, 0)
		if aCampaigns == bCampaigns {
			t.Errorf("a has %d entries and both hear each other: a %v, b %v", n, aCampaigns, bCampaigns)
		}
		byA, _ := preferred(a, []candidate{b}, nil, 1)
		if byB, _ := preferred(b, []candidate{a}, nil, 1); byA.server != byB.server {
			t.Errorf("a has %d entries: a prefers %s, b prefers %s", n, byA.server, byB.server)
		}
	}
}

func TestMajoritySilent(t *testing.T) {
	const limit = 500 * time.Millisecond
	hears := candidate{leader: "x", silent: 10 * time.Millisecond}
	deaf := candidate{leader: "x", silent: limit}
	follows := candidate{leader: "y", silent: 10 * time.Millisecond}
	none := candidate{silent: 10 * time.Millisecond}
	for name, c := range map[string]struct {
		voters int
		others []candidate
		want   bool
	}{
		"of three, the other hears it":         {3, []candidate{hears}, false},
		"of three, the other does not":         {3, []candidate{deaf}, true},
		"of three, the other follows another":  {3, []candidate{follows}, true},
		"of three, the other has just lost it": {3, []candidate{none}, false},
		"of three, no other answers":           {3, nil, false},
		"of two, which are both needed":        {2, nil, false},
		"of five, one other does not":          {5, []candidate{deaf, hears, hears}, false},
		"of five, two others do not":           {5, []candidate{deaf, deaf, hears}, true},
		"of four, half of them is no majority": {4, []candidate{deaf, hears}, false},
	} {
		if got := majoritySilent(c.voters, "x", c.others, limit); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestMayLead(t *testing.T) {
	led := &commandv1.ReplicaStatus{LastIndex: 1000, Applied: 990}
	able := func(change func(*commandv1.ReplicaStatus)) *commandv1.NodeStatus {
		st := &commandv1.ReplicaStatus{State: "Follower", Leader: "x", LastIndex: 1000 - maxTargetLag, Applied: 990 - maxTargetLag}
		change(st)
		return &commandv1.NodeStatus{Directory: st, Replicas: []*commandv1.ReplicaStatus{{}, st}}
	}
	for name, c := range map[string]struct {
		status *commandv1.NodeStatus
		want   bool
	}{
		"it lacks just enough":     {able(func(*commandv1.ReplicaStatus) {}), true},
		"it did not answer":        {nil, false},
		"it has no such partition": {&commandv1.NodeStatus{}, false},
		"it lacks an entry more":   {able(func(st *commandv1.ReplicaStatus) { st.LastIndex-- }), false},
		"its state lacks more":     {able(func(st *commandv1.ReplicaStatus) { st.Applied-- }), false},
		"it has halted":            {able(func(st *commandv1.ReplicaStatus) { st.Halted = "why" }), false},
		"it is being rebuilt":      {able(func(st *commandv1.ReplicaStatus) { st.Rebuilding = true }), false},
		"it follows another":       {able(func(st *commandv1.ReplicaStatus) { st.Leader = "y" }), false},
		"it campaigns":             {able(func(st *commandv1.ReplicaStatus) { st.State = "Candidate" }), false},
	} {
		if got := mayLead(1, "x", led, c.status); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if !mayLead(directoryGroup, "x", led, able(func(st *commandv1.ReplicaStatus) { st.Applied = 0 })) {
		t.Error("the directory's state counts no commands")
	}
}
