package machine

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"perdure/fsm/state"
)

// A layer answers reads and scans as a state that has its writes, whatever came between them, and lists them in order.
func TestLayerIsTheStateWithItsWrites(t *testing.T) {
	for seed := range int64(40) {
		rng := rand.New(rand.NewSource(seed))
		below, want := state.NewMemReader(), state.NewMemReader()
		key := func() []byte {
			return fmt.Appendf([]byte{byte(rng.Intn(3)) * 2}, "%03d", rng.Intn(4<<rng.Intn(7)))
		}
		for range 50 {
			w := []state.Write{{Key: key(), Value: []byte("below")}}
			below.Apply(w)
			want.Apply(w)
		}
		l := newLayer(below)
		l.base = seed%2 == 0
		for round := range 6 {
			for range rng.Intn(200) {
				k, v := key(), fmt.Append(nil, rng.Int())
				_, there, _ := l.Get(k)
				switch rng.Intn(4) {
				case 0:
					l.remove(k)
					v = nil
				case 1:
					if _, stored, _ := below.Get(k); !there && !stored {
						l.putFresh(k, v)
						break
					}
					fallthrough
				default:
					l.put(k, v)
				}
				want.Apply([]state.Write{{Key: k, Value: v}})
				k = key()
				got, ok, _ := l.Get(k)
				if expected, is, _ := want.Get(k); ok != is || !bytes.Equal(got, expected) {
					t.Fatalf("seed %d: %q is %q, %v; want %q, %v", seed, k, got, ok, expected, is)
				}
				if rng.Intn(8) == 0 {
					lower, upper := key(), key()
					if rng.Intn(4) == 0 {
						upper = nil
					}
					if got, expected := listed(l, lower, upper), listed(want, lower, upper); !slices.Equal(got, expected) {
						t.Fatalf("seed %d: from %q to %q: %v, want %v", seed, lower, upper, got, expected)
					}
				}
			}
			var writes []state.Write
			l.ordered(func(w *write) {
				if len(writes) > 0 && bytes.Compare(writes[len(writes)-1].Key, w.key) >= 0 {
					t.Fatalf("seed %d: %q comes after %q", seed, w.key, writes[len(writes)-1].Key)
				}
				v := w.value
				if w.removed {
					v = nil
				}
				writes = append(writes, state.Write{Key: w.key, Value: v})
			})
			below.Apply(writes)
			if got, expected := listed(below, nil, nil), listed(want, nil, nil); !slices.Equal(got, expected) {
				t.Fatalf("seed %d, round %d: %v, want %v", seed, round, got, expected)
			}
			l.reset()
		}
	}
}

func listed(r state.Reader, lower, upper []byte) (out []string) {
	_ = r.Scan(lower, upper, func(key, value []byte) bool {
		out = append(out, fmt.Sprintf("%q=%s", key, value))
		return true
	})
	return out
}

// A header that is put unencoded reads as it was when it was put, whatever becomes of the original and of headers that were put later, in
// the layer where it was put and in the one below to which it moves.
func TestLayerEncodesHeadersLate(t *testing.T) {
	for seed := range int64(40) {
		rng := rand.New(rand.NewSource(seed))
		want := state.NewMemReader()
		below := newLayer(state.NewMemReader())
		headers := make([]state.Header, 1+rng.Intn(6))
		for n := range headers {
			headers[n] = state.Header{ID: fmt.Sprint("id-", n)}
		}
		for range 30 {
			l := below.above()
			for range rng.Intn(12) {
				n := rng.Intn(len(headers))
				h := &headers[n]
				k := fmt.Appendf(nil, "%s", h.ID)
				switch rng.Intn(8) {
				case 0:
					l.remove(k)
					want.Apply([]state.Write{{Key: k}})
				case 1:
					l.put(k, []byte("short"))
					want.Apply([]state.Write{{Key: k, Value: []byte("short")}})
				default:
					h.Events++
					h.Open = append(h.Open, byte(h.Events))
					w := l.spare.next()
					w.key, w.object = k, l.spare.copyOf(h)
					l.set(w)
					want.Apply([]state.Write{{Key: k, Value: h.Encode()}})
				}
				if rng.Intn(4) == 0 {
					k = fmt.Append(nil, "id-", rng.Intn(len(headers)))
					got, ok, _ := l.Get(k)
					if expected, is, _ := want.Get(k); ok != is || !bytes.Equal(got, expected) {
						t.Fatalf("seed %d: %q is %x, %v; want %x, %v", seed, k, got, ok, expected, is)
					}
				}
			}
			for _, w := range l.table.log {
				below.set(w)
			}
			l.reset()
			if rng.Intn(8) == 0 {
				if got, expected := listed(below, []byte("id"), []byte("ie")), listed(want, []byte("id"), []byte("ie")); !slices.Equal(got, expected) {
					t.Fatalf("seed %d: %v, want %v", seed, got, expected)
				}
			}
		}
		size := 0
		below.ordered(func(w *write) {
			if v := w.asWrite(); v.Value != nil {
				size += len(v.Value)
			}
		})
		if below.bytes < size {
			t.Errorf("seed %d: the layer counts %d bytes of %d", seed, below.bytes, size)
		}
	}
}

// TestLayerGrows puts keys of which pairs have one hash, and all have one tag, into a table that grows.
func TestLayerGrows(t *testing.T) {
	const keys = 3 * leastSlots
	hashOf := func(n int) uint64 { return uint64(1 + n/2) }
	key := func(n int) []byte { return fmt.Appendf(nil, "key-%d", n) }
	l := newLayer(state.NewMemReader())
	for n := range keys {
		w := l.spare.next()
		w.key, w.value, w.hash = key(n), key(n), hashOf(n)
		l.set(w)
		for m := range keys {
			if w := l.table.find(hashOf(m), key(m)); (w != nil) != (m <= n) || w != nil && !bytes.Equal(w.value, key(m)) {
				t.Fatalf("of %d writes, %s is %v", n+1, key(m), w)
			}
		}
	}
	l.reset()
	if w := l.table.find(hashOf(0), key(0)); w != nil {
		t.Errorf("a table after its reset has %v", w)
	}
}
