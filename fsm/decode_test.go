package fsm

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
)

// TestDecodeAsProto decodes random entries, whole and damaged, and compares with proto.Unmarshal.
func TestDecodeAsProto(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 9))
	d := &decoder{}
	for n := range testkit.Choose(3_000, 30_000, 30_000) {
		e := &commandv1.Entry{}
		randomMessage(rng, e.ProtoReflect(), 0)
		b, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		switch n % 5 {
		case 1:
			b = damage(rng, b)
		case 2:
			b = append(b, b...) // merged by proto
		case 3:
			b = respell(rng, b, 0)
		case 4:
			b = append(b, twoEventsInOne(rng)...)
		}
		compareDecoded(t, d, b)
	}
}

// TestDecodeKnowsEveryFieldOfAnEntry decodes an entry that has each of its fields, as a leader's has. proto.Unmarshal, which
// the decoder leaves an unknown field to, allocates several times as much.
func TestDecodeKnowsEveryFieldOfAnEntry(t *testing.T) {
	e := &commandv1.Entry{TimeMs: 1, ClientRetryMs: 30_000, Grants: []*commandv1.Grant{{Worker: "w", Functions: []string{"f"}, Credit: 1}}}
	for range 50 {
		e.Commands = append(e.Commands, &commandv1.Command{Namespace: "default", Id: "e", Kind: &commandv1.Command_Commit{Commit: &perdurev1.Commit{
			Task:   &perdurev1.TaskToken{Namespace: "default", Id: "e", Incarnation: 1, Version: 1},
			Events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte("done")}}}},
		}}})
	}
	m := e.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		if field := m.Descriptor().Fields().Get(i); !m.Has(field) {
			t.Fatalf("the entry lacks its field %s", field.Name())
		}
	}
	b, err := proto.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	d := &decoder{}
	compareDecoded(t, d, b)
	own := testing.AllocsPerRun(100, func() { _, err = d.decode(b) })
	if err != nil {
		t.Fatal(err)
	}
	if by := testing.AllocsPerRun(100, func() { _ = proto.Unmarshal(b, &commandv1.Entry{}) }); own > by/2 {
		t.Errorf("%v allocations, by proto %v", own, by)
	}
}

// TestDecodeSharesTheEdgesOfAGraph decodes a submission with every field that a graph of functions has. It allocates for
// neither texts nor edges one by one.
func TestDecodeSharesTheEdgesOfAGraph(t *testing.T) {
	g := benchmarkGraph(10, 20, 10)
	g.MaxParallel, g.Wave = 3, true
	for _, n := range g.Nodes {
		n.TimeoutMs, n.OnFailure, n.Output = 5, perdurev1.OnFailure_ON_FAILURE_SKIP, perdurev1.ValueType_VALUE_TYPE_NUMBER
		n.Inputs = append(n.Inputs, &perdurev1.NodeInput{Name: "run", Source: &perdurev1.NodeInput_Run{Run: true}, Path: "a.b", Type: perdurev1.ValueType_VALUE_TYPE_NUMBER},
			&perdurev1.NodeInput{Name: "value", Source: &perdurev1.NodeInput_Value{Value: []byte("1")}})
	}
	e := &commandv1.Entry{Commands: []*commandv1.Command{{Namespace: "default", Id: "run", Kind: &commandv1.Command_SubmitGraph{
		SubmitGraph: &perdurev1.SubmitGraphRequest{Namespace: "default", Id: "run", Graph: g, Input: []byte("{}"), TimeoutMs: 7, AllowUnknownFunctions: true}}}}}
	b, err := proto.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	d := &decoder{}
	compareDecoded(t, d, b)
	own := testing.AllocsPerRun(20, func() { _, err = d.decode(b) })
	if err != nil {
		t.Fatal(err)
	}
	if by := testing.AllocsPerRun(20, func() { _ = proto.Unmarshal(b, &commandv1.Entry{}) }); own > by/4 {
		t.Errorf("%v allocations, by proto %v", own, by)
	}

	g.Nodes[1].After = []string{"##"}
	if b, err = proto.Marshal(e); err != nil {
		t.Fatal(err)
	}
	compareDecoded(t, d, bytes.ReplaceAll(b, []byte("##"), []byte{0xff, 0xfe})) // no UTF-8
}

// twoEventsInOne is an entry with an event that is written in two parts, which proto merges if they are of one kind.
func twoEventsInOne(rng *rand.Rand) []byte {
	var event []byte
	for range 2 {
		e := &perdurev1.Event{}
		for e.GetExecutionAwaiting() == nil && e.GetInvokeScheduled() == nil {
			e.Reset()
			randomMessage(rng, e.ProtoReflect(), 0)
		}
		b, err := proto.Marshal(e)
		if err != nil {
			panic(err)
		}
		event = append(event, b...)
	}
	for _, field := range []protoreflect.FieldDescriptor{
		(&perdurev1.Commit{}).ProtoReflect().Descriptor().Fields().ByName("events"),
		(&commandv1.Command{}).ProtoReflect().Descriptor().Fields().ByName("commit"),
		(&commandv1.Entry{}).ProtoReflect().Descriptor().Fields().ByName("commands"),
	} {
		event = protowire.AppendBytes(protowire.AppendTag(nil, field.Number(), protowire.BytesType), event)
	}
	return event
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{8, 1})
	f.Fuzz(func(t *testing.T, b []byte) { compareDecoded(t, &decoder{}, b) })
}

func compareDecoded(t *testing.T, d *decoder, b []byte) {
	t.Helper()
	want := &commandv1.Entry{}
	wrong := proto.Unmarshal(b, want)
	before := bytes.Clone(b)
	got, err := d.decode(b)
	if (err == nil) != (wrong == nil) {
		t.Fatalf("%x: error %v, proto's is %v", b, err, wrong)
	}
	if err == nil && !proto.Equal(got, want) {
		t.Fatalf("%x: decoded\n%v\nnot\n%v", b, got, want)
	}
	if !bytes.Equal(b, before) {
		t.Fatal("decoding has changed the bytes")
	}
}

// TestDecodeKeepsNothingTwice decodes entries one after the other, and finds none changed by those that follow.
func TestDecodeKeepsNothingTwice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := &decoder{}
	var got, want []*commandv1.Entry
	for range 2000 {
		e := &commandv1.Entry{}
		randomMessage(rng, e.ProtoReflect(), 0)
		b, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := d.decode(b)
		if err != nil {
			t.Fatal(err)
		}
		got, want = append(got, decoded), append(want, e)
	}
	for i := range got {
		if !proto.Equal(got[i], want[i]) {
			t.Fatalf("entry %d has become\n%v\nnot\n%v", i, got[i], want[i])
		}
	}
}

// randomMessage sets some fields of a message. Of a oneof it prefers the first kinds, which are the frequent ones.
func randomMessage(rng *rand.Rand, m protoreflect.Message, depth int) {
	fds := m.Descriptor().Fields()
	for i := range fds.Len() {
		fd := fds.Get(i)
		if o := fd.ContainingOneof(); o != nil {
			n := o.Fields().Len()
			if rng.IntN(2) == 0 {
				n = min(n, 2)
			}
			if m.WhichOneof(o) == nil && fd == o.Fields().Get(rng.IntN(n)) {
				m.Set(fd, randomValue(rng, m, fd, depth))
			}
			continue
		}
		if rng.IntN(4) == 0 || depth > 6 {
			continue
		}
		switch {
		case fd.IsMap():
			if rng.IntN(4) == 0 {
				m.Mutable(fd).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
			}
		case fd.IsList():
			if fd.Message() == nil || rng.IntN(8) > 0 || depth == 0 || fd.Name() == "events" {
				for range rng.IntN(4) {
					m.Mutable(fd).List().Append(randomValue(rng, m, fd, depth))
				}
			}
		case fd.Message() != nil && fd.Name() != "task" && fd.Name() != "result" && rng.IntN(8) > 0:
		default:
			m.Set(fd, randomValue(rng, m, fd, depth))
		}
	}
}

func randomValue(rng *rand.Rand, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	number := rng.Uint64() >> (1 + rng.IntN(63))
	switch fd.Kind() {
	case protoreflect.MessageKind:
		var v protoreflect.Value
		if fd.IsList() {
			v = m.NewField(fd).List().NewElement()
		} else {
			v = m.NewField(fd)
		}
		randomMessage(rng, v.Message(), depth+1)
		return v
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(number)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rng.IntN(2) == 0)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(randomText(rng))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(randomText(rng)))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(number))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(number))
	default:
		return protoreflect.ValueOfUint64(number)
	}
}

func randomText(rng *rand.Rand) string {
	lengths := []int{0, 1, 3, 8, 20, longText, longText + 1, 400}
	b := make([]byte, lengths[rng.IntN(len(lengths))])
	for i := range b {
		b[i] = "ab"[rng.IntN(2)]
	}
	return string(b)
}

// damage changes, drops or inserts a byte.
func damage(rng *rand.Rand, b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	b = bytes.Clone(b)
	i := rng.IntN(len(b))
	switch rng.IntN(3) {
	case 0:
		b[i] ^= 1 << rng.IntN(8)
	case 1:
		b = append(b[:i], b[i+1:]...)
	default:
		b = append(b[:i], append([]byte{byte(rng.IntN(256))}, b[i:]...)...)
	}
	return b
}

// respell encodes the fields of a message differently: in another order, some twice, some unknown to the schema.
func respell(rng *rand.Rand, b []byte, depth int) []byte {
	var parts [][]byte
	for rest := b; len(rest) > 0; {
		_, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return b
		}
		part := rest[:n]
		rest = rest[n:]
		num, typ, tag := protowire.ConsumeTag(part)
		if typ == protowire.BytesType && depth < 5 && rng.IntN(3) > 0 {
			if inner, m := protowire.ConsumeBytes(part[tag:]); m > 0 {
				part = protowire.AppendBytes(protowire.AppendTag(nil, num, typ), respell(rng, inner, depth+1))
			}
		}
		parts = append(parts, part)
		if rng.IntN(30) == 0 {
			parts = append(parts, part)
		}
	}
	if rng.IntN(10) == 0 {
		parts = append(parts, protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 5))
	}
	if rng.IntN(3) == 0 {
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	}
	return bytes.Join(parts, nil)
}
