package clock

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Wait returns after its time, or when its context ends, whichever is first, and says which.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			wait, end, took time.Duration
			passed          bool
		}{
			{time.Second, time.Minute, time.Second, true},
			{time.Minute, time.Second, time.Second, false},
			{0, time.Minute, 0, true},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.end)
			begun := time.Now()
			if passed := Wait(ctx, System{}, c.wait); passed != c.passed || Since(begun) != c.took {
				t.Errorf("a wait of %v in a context of %v returns %t after %v", c.wait, c.end, passed, Since(begun))
			}
			cancel()
		}
	})
}

// A timer sends once, when its time has passed, and never after it was stopped.
func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock Clock = System{}
		begun := clock.Now()
		armed, _ := clock.After(time.Second)
		stopped, stop := clock.After(time.Second)
		stop()
		if at := <-armed; at.Sub(begun) != time.Second {
			t.Errorf("a timer of a second sends after %v", at.Sub(begun))
		}
		end, _ := clock.After(time.Hour)
		select {
		case <-stopped:
			t.Error("a stopped timer sends")
		case <-armed:
			t.Error("a timer sends twice")
		case <-end:
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if left, ok := Left(context.Background()); ok {
			t.Errorf("a context without a deadline has %v left", left)
		}
		ctx, cancel := context.WithDeadline(t.Context(), Deadline(time.Minute))
		defer cancel()
		if left, ok := Left(ctx); !ok || left != time.Minute {
			t.Errorf("%v left, %t", left, ok)
		}
	})
}

// A generator repeats itself from the same entropy, and there is none from too little.
func TestNewRand(t *testing.T) {
	seed := bytes.Repeat([]byte{7}, 32)
	a, err := NewRand(bytes.NewReader(seed))
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewRand(bytes.NewReader(seed))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewRand(Entropy)
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for range 100 {
		n := a.Uint64()
		if m := b.Uint64(); m != n {
			t.Fatalf("%d and %d from one seed", n, m)
		}
		if other.Uint64() == n {
			same++
		}
	}
	if same > 2 {
		t.Errorf("%d of 100 numbers are those of another seed", same)
	}
	if _, err := NewRand(bytes.NewReader(seed[1:])); err == nil {
		t.Error("31 bytes are taken for a seed")
	}
}
