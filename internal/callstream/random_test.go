package callstream

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"perdure/internal/testkit"
)

// checkDecode checks that what a message decodes to is encoded and decoded to the same.
func checkDecode(t *testing.T, b []byte) {
	requests, cancelled, err := decodeRequests(nil, b, 0)
	if err == nil {
		var again []byte
		for _, r := range requests {
			again = appendRequest(again, r.number, string(r.method), r.timeout, r.message)
		}
		for _, n := range cancelled {
			again = appendCancelled(again, n)
		}
		twice, twiceCancelled, err := decodeRequests(nil, again, 0)
		if err != nil || len(twice) != len(requests) || !slices.Equal(twiceCancelled, cancelled) {
			t.Fatalf("%x decoded again: %v, %d requests of %d, %d cancelled of %d", b, err, len(twice), len(requests), len(twiceCancelled), len(cancelled))
		}
		for i, r := range twice {
			if o := requests[i]; r.number != o.number || !bytes.Equal(r.method, o.method) || !bytes.Equal(r.message, o.message) || r.timeout != o.timeout {
				t.Fatalf("%x: request %d changed: %v, %v", b, i, o, r)
			}
		}
	}
	_ = decodeAnswers(b, func(a answer) {
		var got answer
		if err := decodeAnswers(appendFailure(nil, a.number, a.status), func(again answer) { got = again }); err != nil || got.number != a.number || !bytes.Equal(got.status, a.status) {
			t.Fatalf("%x: answer %d decodes to %d, %v", b, a.number, got.number, err)
		}
	})
}

// seeds are messages of both directions, and one that is cut.
func seeds() [][]byte {
	return [][]byte{
		appendCancelled(appendRequest(nil, 3, "/a/B", time.Second, []byte("x")), 2),
		appendRequest(appendRequest(nil, 1, "/a/B", 0, nil), 1<<40, "/grpc.health.v1.Health/Check", time.Hour, bytes.Repeat([]byte("y"), 300)),
		append(appendFailure(nil, 1, []byte("x")), appendFailure(nil, 2, []byte{8, 5})...),
		{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f},
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b)
	}
	f.Fuzz(checkDecode)
}

// mutated is one of the seeds with some bytes changed, removed, repeated or added.
func mutated(random *rand.Rand) []byte {
	all := seeds()
	b := slices.Clone(all[random.IntN(len(all))])
	for range 1 + random.IntN(8) {
		at := random.IntN(len(b) + 1)
		switch to := at + random.IntN(min(len(b)-at, 16)+1); random.IntN(6) {
		case 0:
			b = slices.Delete(b, at, to)
		case 1:
			b = slices.Insert(b, at, b[at:to]...)
		case 2:
			b = slices.Insert(b, at, byte(random.Uint32()))
		case 3:
			b = slices.Insert(b, at, all[random.IntN(len(all))]...)
		default:
			if at < len(b) {
				b[at] ^= 1 << random.IntN(8)
			}
		}
	}
	return b
}

// TestMutatedMessages: no message breaks the decoders, and none sent to a server hurts the calls of others.
func TestMutatedMessages(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range testkit.Choose(20_000, 50_000, 1_000_000) {
		checkDecode(t, mutated(random))
	}
	p := newPair(t, echo, nil)
	_, client := p.client(Options{})
	for range testkit.Choose(20, 50, 1_000) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		stream := p.raw(ctx)
		for range 1 + random.IntN(4) {
			if stream.SendMsg(&frame{mutated(random)}) != nil {
				break // the server has ended the stream
			}
		}
		if err := ask(ctx, client, "x"); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

// valueOf is what a call with a name is answered.
func valueOf(name string) healthv1.HealthCheckResponse_ServingStatus {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	return healthv1.HealthCheckResponse_ServingStatus(h.Sum32() >> 1)
}

// TestRandomCalls: while streams break and callers leave, every call ends with its own answer, its own error or the
// reason why it has none, and none is executed twice.
func TestRandomCalls(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	executed := map[string]int{}
	p := newPair(t, func(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
		mu.Lock()
		executed[in.Service]++
		mu.Unlock()
		value := valueOf(in.Service)
		if value%7 == 0 { // some take a while
			select {
			case <-time.After(time.Duration(value%5000) * time.Microsecond):
			case <-ctx.Done():
				return nil, status.FromContextError(ctx.Err()).Err()
			}
		}
		if value%5 == 0 {
			return nil, status.Error(codes.NotFound, in.Service)
		}
		return &healthv1.HealthCheckResponse{Status: value}, nil
	}, nil)
	const callers = 16
	calls := testkit.Choose(50, 200, 5_000)
	_, client := p.client(Options{})
	ends := make([]map[codes.Code]int, callers)
	var all sync.WaitGroup
	for caller := range callers {
		random := rand.New(rand.NewPCG(seed, uint64(caller)))
		ends[caller] = map[codes.Code]int{}
		all.Go(func() {
			for n := range calls {
				name := fmt.Sprintf("%d-%d", caller, n)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				if random.IntN(8) == 0 {
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Microsecond)
				}
				got, err := client.Check(ctx, &healthv1.HealthCheckRequest{Service: name})
				deadline, _ := ctx.Deadline()
				early := time.Now().Before(deadline) && ctx.Err() == nil
				cancel()
				ends[caller][status.Code(err)]++
				switch value := valueOf(name); status.Code(err) {
				case codes.OK:
					if got.Status != value || value%5 == 0 {
						t.Errorf("%s is answered %d", name, got.Status)
					}
				case codes.NotFound:
					if value%5 != 0 || status.Convert(err).Message() != name {
						t.Errorf("%s is answered %v", name, err)
					}
				case codes.DeadlineExceeded, codes.Canceled:
					if early {
						t.Errorf("%s ended before its time: %v", name, err)
					}
				case codes.Unavailable: // its stream broke
				default:
					t.Errorf("%s ended with %v", name, err)
				}
				mu.Lock()
				times := executed[name]
				mu.Unlock()
				if times > 1 || times == 0 && (err == nil || status.Code(err) == codes.NotFound) {
					t.Errorf("%s was executed %d times and ended with %v", name, times, err)
				}
				if caller == 0 && random.IntN(50) == 0 { // the connection breaks, and with it the stream
					p.mu.Lock()
					p.conns[len(p.conns)-1].Close()
					p.mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	sum := map[codes.Code]int{}
	for _, one := range ends {
		for code, n := range one {
			sum[code] += n
		}
	}
	t.Logf("%d calls ended with %v", callers*calls, sum)
	for _, code := range []codes.Code{codes.OK, codes.NotFound} {
		if sum[code] == 0 {
			t.Errorf("no call ended with %v", code)
		}
	}
}
