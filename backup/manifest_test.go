package backup

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// example is a manifest of two states.
func example() Manifest {
	sum := func(c string) string { return strings.Repeat(c, 64) }
	return Manifest{Format: 1, Name: "20260102T030405Z", Cluster: "c-1", Cut: 7, Partitions: 2, Level: 6,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), States: []State{
			{Partition: 0, Index: 10, Node: "n1", Files: []File{{"000001.sst", 5, sum("a")}, {"MANIFEST-000002", 0, sum("b")}}},
			{Partition: 1, Index: 20, Node: "n2", Files: []File{}}}}
}

// TestManifestBits flips each bit of a manifest: Read refuses each.
func TestManifestBits(t *testing.T) {
	s, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := example()
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	object := "backups/" + m.Name + ".json"
	put(t, s, object, string(b))
	got, err := Read(t.Context(), s, m.Name)
	if err != nil || got.Cut != 7 || len(got.States) != 2 || got.States[0].Files[0].Size != 5 || !got.Created.Equal(m.Created) {
		t.Fatalf("read %+v, error %v", got, err)
	}
	for bit := range len(b) * 8 {
		flipped := bytes.Clone(b)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := decode(flipped); err == nil {
			t.Fatalf("bit %d of byte %d is flipped, and the manifest was read", bit%8, bit/8)
		}
	}
	for _, wrong := range []string{"", string(b[:len(b)-1]), string(b) + " ", "{}"} {
		put(t, s, object, wrong)
		var damaged *DamagedError
		if _, err := Read(t.Context(), s, m.Name); !errors.As(err, &damaged) || damaged.Object != object {
			t.Fatalf("read of %d bytes: %v", len(wrong), err)
		}
	}
	put(t, s, "backups/20270102T030405Z.json", string(b))
	if _, err := Read(t.Context(), s, "20270102T030405Z"); err == nil {
		t.Fatal("the manifest of another backup was read")
	}
	var missing *NotFoundError
	if _, err := Read(t.Context(), s, "20280102T030405Z"); !errors.As(err, &missing) {
		t.Fatalf("reading no backup: %v", err)
	}
}

// TestManifestForm gives manifests with a right hash and a wrong content.
func TestManifestForm(t *testing.T) {
	for i, change := range []func(*Manifest){
		func(m *Manifest) { m.Format = 2 },
		func(m *Manifest) { m.Name = "../x" },
		func(m *Manifest) { m.Partitions = 3 },
		func(m *Manifest) { m.Partitions, m.States = 0, nil },
		func(m *Manifest) { m.States[1].Partition = 0 },
		func(m *Manifest) { m.States[0].Files[0].Name = "../x" },
		func(m *Manifest) { m.States[0].Files[0].Name = "a/b" },
		func(m *Manifest) { m.States[0].Files[0].Name = "" },
		func(m *Manifest) { m.States[0].Files[0].Size = -1 },
		func(m *Manifest) { m.States[0].Files[0].SHA256 = "../../etc" },
		func(m *Manifest) { m.States[0].Files[0].SHA256 = strings.Repeat("A", 64) },
		func(m *Manifest) { m.States[0].Files[1].Name = "000001.sst" },
	} {
		m := example()
		change(&m)
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(b); err == nil {
			t.Errorf("change %d was read", i)
		}
	}
}

func ExampleManifest() {
	m := example()
	b, _ := m.encode()
	again, err := decode(b)
	fmt.Println(again.Name, again.Bytes(), err)
	// Output: 20260102T030405Z 5 <nil>
}
