package reduction

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Stored bytes live longer than programs: these must never change.
func TestGoldenBytes(t *testing.T) {
	diamond := must(Lower(Layered([]NodeID{"alpha"}, []NodeID{"beta", "gamma"}, []NodeID{"delta"})))
	state := State{
		Statuses: map[NodeID]Status{"delta": {Kind: StatusPending}, "alpha": {Kind: StatusCompleted}, "gamma": Waiting("go"), "beta": {Kind: StatusRunning}},
		Outputs:  map[NodeID][]byte{"alpha": {0, 255}},
	}
	for name, tc := range map[string]struct {
		got  []byte
		want string
	}{
		"pending":        {AppendStatus(nil, Status{Kind: StatusPending}), "01"},
		"running":        {AppendStatus(nil, Status{Kind: StatusRunning}), "02"},
		"completed":      {AppendStatus(nil, Status{Kind: StatusCompleted}), "03"},
		"failed":         {AppendStatus(nil, Status{Kind: StatusFailed}), "04"},
		"skipped":        {AppendStatus(nil, Status{Kind: StatusSkipped}), "05"},
		"waiting":        {AppendStatus(nil, Waiting("approval")), "0608" + "617070726f76616c"},
		"succeeded":      {AppendOutcome(nil, Succeeded{[]byte("v")}), "010176"},
		"empty output":   {AppendOutcome(nil, Succeeded{}), "0100"},
		"skip":           {AppendOutcome(nil, Skipped{}), "02"},
		"suspended":      {AppendOutcome(nil, SuspendedOn{"go"}), "0302676f"},
		"node failed":    {AppendOutcome(nil, NodeFailed{[]byte("why")}), "0403776879"},
		"timed out":      {AppendOutcome(nil, NodeTimedOut{}), "05"},
		"cancelled":      {AppendOutcome(nil, NodeCancelled{}), "06"},
		"shutdown":       {AppendOutcome(nil, NodeShutdown{}), "07"},
		"run cancelled":  {AppendOutcome(nil, NodeRunCancelled{}), "08"},
		"no state":       {AppendState(nil, State{}), "010000"},
		"state":          {AppendState(nil, state), "01" + "04" + "05616c70686103" + "046265746102" + "0564656c746101" + "0567616d6d610602676f" + "01" + "05616c7068610200ff"},
		"empty relation": {AppendRelation(nil, must(Lower(Empty()))), "0100"},
		"diamond":        {AppendRelation(nil, diamond), "01" + "04" + "05616c706861" + "0462657461" + "0564656c7461" + "0567616d6d61" + "020102" + "0102" + "00" + "0102"},
	} {
		if got := hex.EncodeToString(tc.got); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
}

// The names and numbers never change either.
func TestNames(t *testing.T) {
	for n, name := range []string{"absent", "Pending", "Running", "Completed", "Failed", "Skipped", "Waiting", "StatusKind(7)"} {
		k := StatusKind(n)
		if k.String() != name || k.Valid() != (n >= 1 && n <= 6) || k.Terminal() != (n >= 3 && n <= 5) {
			t.Errorf("%d is %v, valid %v, terminal %v", n, k, k.Valid(), k.Terminal())
		}
	}
	for n, name := range []string{"Phase(0)", "Progressing", "Completed", "Failed", "Suspended", "Stuck", "Phase(6)"} {
		if p := Phase(n); p.String() != name || p.Settled() != (n == 2 || n == 3) {
			t.Errorf("%d is %v", n, p)
		}
	}
	if got := Waiting("a\nb").String(); got != `Waiting("a\nb")` {
		t.Error(got)
	}
}

var (
	genText = rapid.StringN(0, 5, 20)
	genBlob = rapid.Custom(func(t *rapid.T) []byte {
		// Empty decodes as nil; they are the same value.
		if b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "blob"); len(b) > 0 {
			return b
		}
		return nil
	})
	genStatus = rapid.Custom(func(t *rapid.T) Status {
		k := StatusKind(rapid.IntRange(1, 6).Draw(t, "kind"))
		if k == StatusWaiting {
			return Waiting("s" + genText.Draw(t, "signal"))
		}
		return Status{Kind: k}
	})
	genOutcome = rapid.Custom(func(t *rapid.T) Outcome {
		switch o := rapid.SampledFrom(allOutcomes).Draw(t, "outcome").(type) {
		case Succeeded:
			return Succeeded{genBlob.Draw(t, "output")}
		case SuspendedOn:
			return SuspendedOn{"s" + genText.Draw(t, "signal")}
		case NodeFailed:
			return NodeFailed{genBlob.Draw(t, "detail")}
		default:
			return o
		}
	})
	genState = rapid.Custom(func(t *rapid.T) State {
		return State{
			Statuses: rapid.MapOfN(rapid.Map(genText, asNode), genStatus, 0, 6).Draw(t, "statuses"),
			Outputs:  rapid.MapOfN(rapid.Map(genText, asNode), genBlob, 0, 4).Draw(t, "outputs"),
		}
	})
	genRelation = rapid.Custom(func(t *rapid.T) *Relation { return drawDAG(t).Relation })
)

func asNode(s string) NodeID { return NodeID(s) }

// codec is one encoding with its inverse.
type codec[V any] struct {
	add    func([]byte, V) []byte
	decode func([]byte) (V, error)
	equal  func(a, b V) bool
}

var (
	statusCodec   = codec[Status]{AppendStatus, DecodeStatus, func(a, b Status) bool { return a == b }}
	outcomeCodec  = codec[Outcome]{AppendOutcome, DecodeOutcome, func(a, b Outcome) bool { return reflect.DeepEqual(a, b) }}
	stateCodec    = codec[State]{AppendState, DecodeState, State.Equal}
	relationCodec = codec[*Relation]{AppendRelation, DecodeRelation, (*Relation).Equal}
)

// roundTrip: a value comes back equal; its bytes follow a prefix and share nothing with the result; and no
// proper part of them, nor anything longer, is an encoding.
func (c codec[V]) roundTrip(t *testing.T, gen *rapid.Generator[V]) {
	property(t, func(t *rapid.T) {
		v := gen.Draw(t, "v")
		b := c.add([]byte("prefix"), v)[len("prefix"):]
		kept := slices.Clone(b)
		got, err := c.decode(b)
		for i := range b {
			b[i] ^= 0xff
		}
		if err != nil || !c.equal(got, v) {
			t.Fatalf("got %+v, %v, want %+v", got, err, v)
		}
		if again := c.add(nil, got); !bytes.Equal(again, kept) {
			t.Fatalf("encoded again %x, want %x", again, kept)
		}
		step := 1 + len(kept)/100
		for n := 0; n < len(kept); n += step {
			if _, err := c.decode(kept[:n]); !corrupt(err) {
				t.Fatalf("%x without its last %d bytes: %v", kept, len(kept)-n, err)
			}
		}
		if _, err := c.decode(append(kept, 0)); !corrupt(err) {
			t.Fatalf("%x with a byte after it: %v", kept, err)
		}
	})
}

func corrupt(err error) bool {
	var c *CorruptError
	return errors.As(err, &c) && c.Offset >= 0 && strings.HasPrefix(err.Error(), "reduction: corrupt "+c.What)
}

func TestCodecs(t *testing.T) {
	t.Run("status", func(t *testing.T) { statusCodec.roundTrip(t, genStatus) })
	t.Run("outcome", func(t *testing.T) { outcomeCodec.roundTrip(t, genOutcome) })
	t.Run("state", func(t *testing.T) { stateCodec.roundTrip(t, genState) })
	t.Run("relation", func(t *testing.T) { relationCodec.roundTrip(t, genRelation) })
}

// canonical: what decodes encodes to the same bytes, and everything else is corrupt.
func (c codec[V]) canonical(t *testing.T, data []byte) {
	v, err := c.decode(data)
	if err != nil {
		if !corrupt(err) {
			t.Fatalf("%x: %v", data, err)
		}
		return
	}
	if again := c.add(nil, v); !bytes.Equal(again, data) {
		t.Fatalf("%x decodes as %+v, which encodes as %x", data, v, again)
	}
}

func FuzzDecodeStatus(f *testing.F) {
	for _, s := range allStatuses {
		f.Add(AppendStatus(nil, s))
	}
	f.Fuzz(statusCodec.canonical)
}

func FuzzDecodeOutcome(f *testing.F) {
	for _, o := range allOutcomes {
		f.Add(AppendOutcome(nil, o))
	}
	f.Fuzz(outcomeCodec.canonical)
}

func FuzzDecodeState(f *testing.F) {
	r := must(Lower(Path("a", "b", "c")))
	f.Add(AppendState(nil, Initial(r)))
	f.Add(AppendState(nil, State{map[NodeID]Status{"a": Waiting("go")}, map[NodeID][]byte{"a": []byte("out"), "b": nil}}))
	f.Fuzz(stateCodec.canonical)
}

func FuzzDecodeRelation(f *testing.F) {
	f.Add(AppendRelation(nil, must(Lower(Clique("a", "b", "c", "d")))))
	f.Add(AppendRelation(nil, must(Lower(Overlay(Star("m", "a", "z"), Vertex("lone"))))))
	f.Fuzz(relationCodec.canonical)
}

// Random damage of good encodings is found, or leaves another good encoding: fuzzing for every test run.
func TestDamagedEncodings(t *testing.T) {
	found := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		damaged := func(b []byte) []byte {
			switch i := d.rng.IntN(len(b)); d.rng.IntN(4) {
			case 0:
				b[i] ^= 1 << d.rng.IntN(8)
			case 1:
				b = slices.Delete(b, i, i+1)
			case 2:
				b = slices.Insert(b, i, byte(d.rng.IntN(256)))
			case 3:
				j := d.rng.IntN(len(b))
				b[i], b[j] = b[j], b[i]
			}
			return b
		}
		relation := damaged(AppendRelation(nil, d.Relation))
		if r, err := DecodeRelation(relation); err == nil {
			if !bytes.Equal(AppendRelation(nil, r), relation) {
				t.Fatalf("%x", relation)
			}
			for _, e := range r.Edges() {
				if r.Reaches(e.To, e.From) {
					t.Fatalf("%x decodes as a cycle", relation)
				}
			}
		} else if found++; !corrupt(err) {
			t.Fatalf("%v", err)
		}
		state := damaged(AppendState(nil, d.causalState(true)))
		if s, err := DecodeState(state); err == nil {
			if !bytes.Equal(AppendState(nil, s), state) {
				t.Fatalf("%x", state)
			}
		} else if found++; !corrupt(err) {
			t.Fatalf("%v", err)
		}
	})
	n.saw(t, "found", found, 1000)
}

func TestCorruption(t *testing.T) {
	huge := "ffffffffffffffffff01"
	for _, tc := range []struct{ what, data, want string }{
		{"status", "", "status at byte 0: it ends too early"},
		{"status", "00", "status at byte 0: no status: absent"},
		{"status", "07", "status at byte 0: no status: StatusKind(7)"},
		{"status", "0600", `status at byte 0: no status: Waiting("")`},
		{"status", "060261", "status at byte 1: a length points beyond the end"},
		{"status", "06" + huge, "status at byte 1: a length points beyond the end"},
		{"status", "06810061", "status at byte 1: a number is not in its shortest form"},
		{"status", "06ffffffffffffffffffff01", "status at byte 1: a number is above 64 bits"},
		{"status", "0100", "status at byte 1: 1 bytes after the end"},
		{"outcome", "", "outcome at byte 0: it ends too early"},
		{"outcome", "00", "outcome at byte 0: no outcome: OutcomeKind(0)"},
		{"outcome", "09", "outcome at byte 0: no outcome: OutcomeKind(9)"},
		{"outcome", "0300", "outcome at byte 1: a signal without a name"},
		{"outcome", "0101", "outcome at byte 1: a length points beyond the end"},
		{"outcome", "0200", "outcome at byte 1: 1 bytes after the end"},
		{"state", "02", "state at byte 0: unknown layout 2"},
		{"state", "01", "state at byte 1: it ends too early"},
		{"state", "01" + huge, "state at byte 1: a list is longer than what follows"},
		{"state", "0102016201016101" + "00", "state at byte 5: the nodes are not in ascending order"},
		{"state", "0102016101016101" + "00", "state at byte 5: the nodes are not in ascending order"},
		{"state", "01010161" + "09" + "00", "state at byte 4: no status: StatusKind(9)"},
		{"state", "010002016100016100", "state at byte 6: the nodes are not in ascending order"},
		{"state", "01000000", "state at byte 3: 1 bytes after the end"},
		{"relation", "00", "relation at byte 0: unknown layout 0"},
		{"relation", "01020161", "relation at byte 4: it ends too early"},
		{"relation", "010201620161" + "0000", "relation at byte 4: the nodes are not in ascending order"},
		{"relation", "01010000", `relation at byte 4: reduction: node_id_not_empty: a node has no name`},
		{"relation", "01010161" + "0100", `relation at byte 6: reduction: acyclic: "a" → "a"`},
		{"relation", "010201610162" + "0101" + "0100", `relation at byte 10: reduction: acyclic: "a" → "b" → "a"`},
		{"relation", "010201610162" + "0102" + "00", "relation at byte 7: no successor"},
		{"relation", "010201610162" + "020100" + "00", "relation at byte 8: no successor"},
		{"relation", "010201610162" + "0201" + huge + "00", "relation at byte 8: no successor"},
		{"relation", "010201610162" + "0901" + "00", "relation at byte 6: a list is longer than what follows"},
	} {
		data := must(hex.DecodeString(tc.data))
		var err error
		switch tc.what {
		case "status":
			_, err = DecodeStatus(data)
		case "outcome":
			_, err = DecodeOutcome(data)
		case "state":
			_, err = DecodeState(data)
		case "relation":
			_, err = DecodeRelation(data)
		}
		if err == nil || err.Error() != "reduction: corrupt "+tc.want {
			t.Errorf("%s %s: %v\nwant %s", tc.what, tc.data, err, tc.want)
		}
	}
	// A value that is too large is refused before it is read.
	nodes := append([]byte{relationLayout, 0x91, 0x4e}, make([]byte, 20_000)...) // 10,001
	if _, err := DecodeRelation(nodes); err == nil || !strings.Contains(err.Error(), "too many nodes") {
		t.Error(err)
	}
	edges := AppendRelation(nil, must(Lower(Vertex("a"))))
	edges = append(edges[:len(edges)-1], 0xc1, 0x84, 0x3d) // 1,000,001
	edges = append(edges, make([]byte, MaxEdges+1)...)
	if _, err := DecodeRelation(edges); err == nil || !strings.Contains(err.Error(), "too many edges") {
		t.Error(err)
	}
}
