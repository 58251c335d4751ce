package state

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A MemReader holds what a map does, and scans it in order. Its clones do not share later writes.
func TestMemReader(t *testing.T) {
	key := rapid.SliceOfN(rapid.Byte(), 0, 2)
	rapid.Check(t, func(t *rapid.T) {
		r, want := NewMemReader(), map[string]string{}
		clone, cloned := r, want
		at := rapid.IntRange(0, 30).Draw(t, "clone at")
		for i := range 30 {
			if i == at {
				clone, cloned = r.Clone(), maps.Clone(want)
			}
			w := Write{Key: key.Draw(t, "key")}
			if rapid.Bool().Draw(t, "set") {
				w.Value = rapid.SliceOfN(rapid.Byte(), 1, 3).Draw(t, "value")
				want[string(w.Key)] = string(w.Value)
			} else {
				delete(want, string(w.Key))
			}
			r.Apply([]Write{w})
		}
		lower, upper := key.Draw(t, "lower"), key.Draw(t, "upper")
		if rapid.Bool().Draw(t, "no upper bound") {
			upper = nil
		}
		checkReader(t, r, want, lower, upper)
		if at < 30 {
			checkReader(t, clone, cloned, lower, upper)
		}
	})
}

func checkReader(t *rapid.T, r Reader, want map[string]string, lower, upper []byte) {
	for k, v := range want {
		if got, ok, err := r.Get([]byte(k)); err != nil || !ok || string(got) != v {
			t.Fatalf("%x is %x (%t, %v), must be %x", k, got, ok, err, v)
		}
	}
	in := slices.DeleteFunc(slices.Sorted(maps.Keys(want)), func(k string) bool {
		return k < string(lower) || upper != nil && k >= string(upper)
	})
	for limit := range len(in) + 1 {
		var got []string
		if err := r.Scan(lower, upper, func(k, v []byte) bool {
			got = append(got, string(k))
			return want[string(k)] == string(v) && len(got) <= limit
		}); err != nil || !slices.Equal(got, in[:min(limit+1, len(in))]) {
			t.Fatalf("between %x and %x are %x, %v, must be %x", lower, upper, got, err, in)
		}
	}
}

// faultyReader fails every read, and counts the scans that have returned.
type faultyReader struct {
	err     error
	returns int
}

func (r *faultyReader) Get([]byte) ([]byte, bool, error) { return nil, false, r.err }

func (r *faultyReader) Scan(_, _ []byte, fn func(k, v []byte) bool) error {
	fn(nil, nil)
	r.returns++
	return r.err
}

// An error of the storage comes out of rules that have none, as the error itself.
func TestFaults(t *testing.T) {
	broken := errors.New("broken")
	more := func(_, _ []byte) bool { return true }
	for what, read := range map[string]func(m Must){
		"a value":   func(m Must) { m.Get(nil) },
		"a key":     func(m Must) { m.Has(nil) },
		"a scan":    func(m Must) { m.Scan(nil, nil, more) },
		"a header":  func(m Must) { m.Header("ns", "e") },
		"a promise": func(m Must) { m.Promise("ns", "e") },
		"a task":    func(m Must) { m.Task("ns", "e") },
	} {
		caught := func() (err error) {
			defer Catch(&err)
			read(Must{From: &faultyReader{err: broken}})
			return nil
		}()
		if caught != broken {
			t.Errorf("%s: %v", what, caught)
		}
	}
}

// A callback of a scan may panic: the scan returns first, so that the Reader closes what it has opened.
func TestScanReturnsBeforeTheFault(t *testing.T) {
	r := &faultyReader{}
	err := func() (err error) {
		defer Catch(&err)
		Must{From: r}.Scan(nil, nil, func(_, _ []byte) bool {
			PanicCorrupt("value", []byte{7}, errors.New("torn"))
			return true
		})
		return nil
	}()
	var damage *CorruptError
	if !errors.As(err, &damage) || damage.What != "value" || !bytes.Equal(damage.Key, []byte{7}) || r.returns != 1 {
		t.Errorf("%v after %d returns", err, r.returns)
	}
}

func TestForeignPanicsPass(t *testing.T) {
	defer func() {
		if p := recover(); p != "foreign" {
			t.Errorf("recovered %v", p)
		}
	}()
	var err error
	defer Catch(&err)
	panic("foreign")
}
