package durable_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
)

// The code of GUIDE.md, so that it compiles.

type Trip struct{ From, To, Email string }

type Offer struct {
	Carrier string
	Cents   int
}

var quote = durable.NewFunction("quote", func(ctx durable.Context, in Trip) (Offer, error) {
	return durable.Run(ctx, "ask", func(context.Context) (Offer, error) { return Offer{"rail", 4900}, nil })
})

func get(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

var steps = durable.NewFunction("steps", func(ctx durable.Context, url string) (int, error) {
	status, err := durable.Run(ctx, "fetch", func(ctx context.Context) (int, error) {
		status, err := get(ctx, url)
		if status == http.StatusNotFound {
			return 0, durable.Permanent(errors.New("no such page"))
		}
		return status, err
	}, durable.WithRetry(durable.RetryPolicy{MaxAttempts: 10, Initial: time.Second, Max: time.Minute}), durable.WithTimeout(5*time.Second))
	return status, err
})

var survey = durable.NewFunction("survey", func(ctx durable.Context, urls []string) (int, error) {
	var sum int
	for _, url := range urls {
		n, err := durable.Run(ctx, "look", func(ctx context.Context) (int, error) { return get(ctx, url) }, durable.Repeatable())
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
})

var backup = durable.NewFunction("backup", func(ctx durable.Context, files []string) (int, error) {
	return durable.Run(ctx, "copy", func(ctx context.Context) (int, error) {
		done, _, err := durable.HeartbeatDetails[int](ctx)
		for ; err == nil && done < len(files); done++ {
			if err = upload(ctx, files[done]); err == nil {
				err = durable.Heartbeat(ctx, done+1)
			}
		}
		return done, err
	}, durable.WithHeartbeatTimeout(time.Minute))
})

func upload(context.Context, string) error { return nil }

var counter = durable.NewFunction("counter", func(ctx durable.Context, sum int) (int, error) {
	for range 100 {
		n, err := durable.WaitSignal[int](ctx, "add")
		if err != nil || n == 0 {
			return sum, err
		}
		sum += n
	}
	return sum, durable.ContinueAsNew(ctx, sum)
})

var checkout = durable.NewFunction("checkout", func(ctx durable.Context, url string) (int, error) {
	v, err := durable.Version(ctx, "check-first", 0, 1)
	if err != nil {
		return 0, err
	}
	if v >= 1 {
		if _, err := durable.Run(ctx, "check", func(ctx context.Context) (int, error) { return get(ctx, url) }); err != nil {
			return 0, err
		}
	}
	return durable.Run(ctx, "pay", func(ctx context.Context) (int, error) { return get(ctx, url) })
})

var recorded = durable.NewFunction("recorded", func(ctx durable.Context, _ string) (string, error) {
	now, err := durable.Now(ctx)
	if err != nil {
		return "", err
	}
	n, err := durable.Random(ctx)
	if err != nil {
		return "", err
	}
	if err := durable.Sleep(ctx, 24*time.Hour); err != nil {
		return "", err
	}
	return fmt.Sprint(now.Format(time.DateOnly), n%6+1), nil
})

var priced = durable.NewFunction("priced", func(ctx durable.Context, in Trip) (Offer, error) {
	if _, err := durable.StartDetached(ctx, quote, "audit-"+durable.Info(ctx).ID, in); err != nil {
		return Offer{}, err
	}
	return durable.Call(ctx, quote, in, durable.ChildID("quote-"+durable.Info(ctx).ID),
		durable.StartDelay(time.Minute), durable.OnClose(durable.CloseCancel))
})

var fanOut = durable.NewFunction("fan-out", func(ctx durable.Context, trips []Trip) ([]Offer, error) {
	var futures []*durable.Future[Offer]
	for _, trip := range trips {
		f, err := durable.Go(ctx, quote, trip)
		if err != nil {
			return nil, err
		}
		futures = append(futures, f)
	}
	if err := durable.AwaitAll(ctx, durable.Awaitables(futures)...); err != nil {
		return nil, err
	}
	var offers []Offer
	for _, f := range futures {
		offer, err := f.Get(ctx)
		if err != nil {
			return nil, err
		}
		offers = append(offers, offer)
	}
	return offers, nil
})

var bestOffer = durable.NewFunction("best-offer", func(ctx durable.Context, in Trip) (best string, err error) {
	offer, err := durable.Go(ctx, quote, in)
	if err != nil {
		return "", err
	}
	cached, err := durable.GoStep(ctx, "look up", func(ctx context.Context) (string, error) { return lookUp(ctx, in) })
	if err != nil {
		return "", err
	}
	enough, err := durable.After(ctx, time.Minute)
	if err != nil {
		return "", err
	}
	err = durable.Select(ctx,
		durable.On(offer, func(o Offer, err error) error { best = o.Carrier; return err }),
		durable.On(cached, func(carrier string, err error) error { best = carrier; return err }),
		durable.On(enough, func(struct{}, error) error { return &durable.Error{Type: "no_offer", Message: "no carrier answered"} }))
	return best, err
})

var cheapest = durable.NewFunction("cheapest", func(ctx durable.Context, trips []Trip) (Offer, error) {
	offers, err := durable.NewJoinSet[Offer](ctx)
	if err != nil {
		return Offer{}, err
	}
	for _, trip := range trips {
		f, err := durable.Go(ctx, quote, trip)
		if err != nil {
			return Offer{}, err
		}
		if err := offers.Submit(ctx, f); err != nil {
			return Offer{}, err
		}
	}
	var best Offer
	for offers.Len() > 0 {
		f, err := offers.Next(ctx)
		if err != nil {
			return Offer{}, err
		}
		if o, err := f.Get(ctx); err == nil && (best.Cents == 0 || o.Cents < best.Cents) {
			best = o
		}
	}
	return best, nil
})

var decide = durable.NewFunction("decide", func(ctx durable.Context, in Trip) (string, error) {
	decision, err := durable.NewPromise[string](ctx, durable.PromiseTimeout(72*time.Hour))
	if err != nil {
		return "", err
	}
	_, err = durable.Run(ctx, "ask", func(ctx context.Context) (string, error) { return mail(ctx, in.Email, decision.Token()) })
	if err != nil {
		return "", err
	}
	return decision.Get(ctx)
})

func mail(context.Context, string, string) (string, error) { return "sent", nil }

func lookUp(context.Context, Trip) (string, error) { return "rail", nil }

var approval = durable.NewFunction("approval", func(ctx durable.Context, in Trip) (string, error) {
	by, err := durable.WaitSignal[string](ctx, "approved", durable.Timeout(72*time.Hour))
	if errors.Is(err, durable.ErrTimeout) {
		return "", &durable.Error{Type: "not_approved", Message: "no approval within three days"}
	}
	if err != nil {
		return "", err
	}
	return by, nil
})

var notify = durable.NewFunction("notify", func(ctx durable.Context, id string) (bool, error) {
	delivery, err := durable.GoSignal(ctx, id, "approved", "ann")
	if err != nil {
		return false, err
	}
	_, err = delivery.Get(ctx)
	if errors.Is(err, durable.ErrTargetNotFound) || errors.Is(err, durable.ErrTargetFinished) {
		return false, nil
	}
	return err == nil, err
})

var book = durable.NewFunction("book", func(ctx durable.Context, in Trip) (string, error) {
	saga := durable.NewSaga(ctx)
	seat, err := durable.Do(ctx, saga, "reserve", reserve(in), release)
	if err != nil {
		return "", err
	}
	if _, err := durable.Run(ctx, "pay", pay(in)); err != nil {
		return "", err
	}
	return seat, nil
})

func reserve(Trip) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return "12A", nil }
}
func pay(Trip) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { return true, nil }
}
func release(context.Context, durable.Done[string]) error { return nil }

func serve(ctx context.Context, c *client.Client) error {
	w := durable.NewWorker(c, durable.WorkerOptions{Name: "travel", Concurrency: 200, Digest: "v1.4.0"})
	w.Register(quote, steps, recorded, fanOut, approval, notify, book, bestOffer, cheapest, decide, account, transfer)
	return w.Run(ctx)
}

func serveNext(ctx context.Context, c *client.Client) error {
	w := durable.NewWorker(c, durable.WorkerOptions{Name: "travel", Digest: "v1.5.0", CompatibleWith: []string{"v1.4.0"}})
	w.Register(checkout)
	return w.Run(ctx)
}

func start(ctx context.Context, c *client.Client, in Trip) (string, error) {
	h, err := book.Start(ctx, c, "trip-7", in, durable.StartTimeout(time.Hour), durable.StartTags(map[string]string{"email": in.Email}))
	if err != nil {
		return "", err
	}
	seat, err := h.Result(ctx)
	var failed *durable.Error
	if errors.As(err, &failed) && failed.Type == "not_approved" {
		return "", fmt.Errorf("trip-7: %w", err)
	}
	return seat, err
}

var account = durable.NewEntity("account",
	durable.Op("add", func(_ *durable.EntityContext, cents *int, amount int) (int, error) {
		if *cents+amount < 0 {
			return 0, &durable.Error{Type: "overdrawn", Message: fmt.Sprintf("the balance is %d", *cents)}
		}
		*cents += amount
		return *cents, nil
	}))

var transfer = durable.NewFunction("transfer", func(ctx durable.Context, cents int) (int, error) {
	from, to := account.ID("ann"), account.ID("bob")
	unlock, err := durable.Lock(ctx, from, to)
	if err != nil {
		return 0, err
	}
	left, err := durable.CallEntity[int](ctx, from, "add", -cents)
	if err != nil {
		return 0, err
	}
	if _, err := durable.CallEntity[int](ctx, to, "add", cents); err != nil {
		return 0, err
	}
	return left, unlock()
})

var remind = durable.NewFunction("remind", func(ctx durable.Context, in Trip) (answer string, err error) {
	word, err := durable.NextSignal[string](ctx, "confirmed")
	if err != nil {
		return "", err
	}
	enough, err := durable.After(ctx, 24*time.Hour)
	if err != nil {
		return "", err
	}
	err = durable.Select(ctx,
		durable.On(word, func(text string, err error) error { answer = text; return err }),
		durable.On(enough, func(struct{}, error) error { answer = "no answer"; return nil }),
		durable.CancelLosers())
	return answer, err
})

var fetch = durable.NewFunction("fetch", func(ctx durable.Context, in Trip) (string, error) {
	answer, err := durable.HTTP(ctx, durable.HTTPRequest{URL: "https://bookings.example/v1/trips", Body: []byte(in.From + "-" + in.To)},
		durable.WithTimeout(10*time.Second), durable.WithTotalTimeout(time.Minute))
	if err != nil {
		return "", err
	}
	return string(answer.Body), nil
})

func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("GUIDE.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("guide_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = serve, start
	blocks := strings.Split(string(guide), "```go\n")[1:]
	if len(blocks) < 8 {
		t.Fatalf("GUIDE.md has %d Go blocks", len(blocks))
	}
	for _, b := range blocks {
		block, _, _ := strings.Cut(b, "```")
		if !strings.Contains(string(code), block) {
			t.Errorf("guide_test.go lacks this code of GUIDE.md:\n%s", block)
		}
	}
}
