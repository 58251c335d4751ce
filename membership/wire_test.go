package membership

import (
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var sample1 = Member{
	NodeID: "n1", ServerID: "n1-7f", ClusterID: "c", PeerAddr: "h:2", GRPCAddr: "h:0", HTTPAddr: "h:1", Version: "v1",
	Partitions: 4, BootstrapExpect: 3, LogStore: "pebble", Founding: "f", Leads: []uint32{0, 3, 9}, Epoch: 258,
}

func TestMetaGolden(t *testing.T) {
	// Bytes that other versions read: they change only with the version byte.
	const want = "0101" + "026e31" + "0163" + "03683a32" + "03683a30" + "03683a31" + "027631" + "06706562626c65" +
		"0166" + "00000004" + "00000003" + "0000000000000102" + "02" + "0902"
	if got := hex.EncodeToString(encodeMeta(sample1, flagLeaving)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func drawMember(t *rapid.T) Member {
	m := Member{
		ServerID:        "s",
		Partitions:      rapid.Uint32().Draw(t, "partitions"),
		BootstrapExpect: rapid.Uint32().Draw(t, "expect"),
		Epoch:           rapid.Uint64().Draw(t, "epoch"),
		Leads:           rapid.SliceOf(rapid.Uint32Range(0, MaxPartitions-1)).Draw(t, "leads"),
	}
	for _, f := range m.texts() {
		*f.text = string(rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, f.name))
	}
	m.NodeID += "n"
	if len(m.Leads) == 0 {
		m.Leads = nil
	}
	return m.clone()
}

func TestMetaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMember(t)
		if err := m.check(); err != nil {
			t.Fatal(err)
		}
		flags := rapid.Byte().Draw(t, "flags")
		b := encodeMeta(m, flags)
		b = append(b, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "appended by a later version")...)
		got, gotFlags, err := decodeMeta(b)
		got.ServerID = m.ServerID
		if err != nil || gotFlags != flags || !reflect.DeepEqual(got, m) {
			t.Fatalf("wrote %+v %x, read %+v %x, %v", m, flags, got, gotFlags, err)
		}
	})
}

func TestMetaRefusesDamage(t *testing.T) {
	whole := encodeMeta(sample1, 0)
	for n := range whole {
		if m, _, err := decodeMeta(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes were read as %+v", n, len(whole), m)
		}
	}
	other := append([]byte(nil), whole...)
	other[0] = metaVersion + 1
	if _, _, err := decodeMeta(other); err == nil {
		t.Error("another version was read")
	}
	long := append([]byte(nil), whole...)
	long[len(long)-3] = MaxPartitions/8 + 1
	if _, _, err := decodeMeta(append(long, make([]byte, 64)...)); err == nil {
		t.Error("a bitmap with more than all partitions was read")
	}
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "noise")
		if m, flags, err := decodeMeta(append([]byte{metaVersion}, b...)); err == nil {
			m = m.clone()
			if again, _, err := decodeMeta(encodeMeta(m, flags)); err != nil || !reflect.DeepEqual(again, m) {
				t.Fatalf("read %+v, which does not come back: %+v, %v", m, again, err)
			}
		}
	})
}

func TestLargestMemberFits(t *testing.T) {
	m := Member{NodeID: strings.Repeat("n", 255), ServerID: strings.Repeat("s", MaxServerIDBytes),
		ClusterID: strings.Repeat("c", MaxTextsBytes-255), Partitions: 1<<32 - 1, BootstrapExpect: 1<<32 - 1, Epoch: 1<<64 - 1}
	for p := range uint32(MaxPartitions) {
		m.Leads = append(m.Leads, p)
	}
	if err := m.check(); err != nil {
		t.Fatal(err)
	}
	if n := len(encodeMeta(m, 0xff)); n != metaBytes {
		t.Errorf("the largest member has %d bytes, want %d", n, metaBytes)
	}
}

func TestMemberLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Member)
		field  string
	}{
		"no node id":        {func(m *Member) { m.NodeID = "" }, "NodeID"},
		"no server id":      {func(m *Member) { m.ServerID = "" }, "ServerID"},
		"NUL":               {func(m *Member) { m.ServerID = "a\x00" }, "ServerID"},
		"long server id":    {func(m *Member) { m.ServerID = strings.Repeat("s", MaxServerIDBytes+1) }, "ServerID"},
		"long text":         {func(m *Member) { m.HTTPAddr = strings.Repeat("s", MaxTextBytes+1) }, "HTTPAddr"},
		"long texts":        {func(m *Member) { m.HTTPAddr, m.GRPCAddr = strings.Repeat("s", 255), strings.Repeat("s", 255) }, "texts"},
		"partition too big": {func(m *Member) { m.Leads = []uint32{1, MaxPartitions} }, "Leads"},
	} {
		m := sample1.clone()
		tc.change(&m)
		var bad *MemberError
		if err := m.check(); !errors.As(err, &bad) || bad.Field != tc.field || bad.ServerID != m.ServerID {
			t.Errorf("%s: got %v, want an error about %s", name, err, tc.field)
		}
	}
}

func TestNames(t *testing.T) {
	early, late := instanceName("a~b", 5, 9), instanceName("a~b", 6, 0)
	server, mark, ok := splitName(early)
	_, lateMark, _ := splitName(late)
	if !ok || server != "a~b" || mark >= lateMark {
		t.Errorf("%q is %q %q %v; a later one is marked %q", early, server, mark, ok, lateMark)
	}
	for _, bad := range []string{"", "a", "~" + mark, "a~" + mark[1:], "a~x" + mark[1:], strings.Repeat("s", MaxServerIDBytes+1) + "~" + mark} {
		if _, _, ok := splitName(bad); ok {
			t.Errorf("%q was taken for an instance", bad)
		}
	}
}
