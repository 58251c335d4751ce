package workload

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"perdure/bench/sdk"
)

// The workloads of Resonate's protocol: calls of its SDK, and requests without it.
var (
	resonateRun = &Workload{Letter: "K", Name: "resonate-run", Unit: "calls", SDK: true,
		Title: "run of Resonate's SDK: a function without steps, in the client", run: runSDK("run", 0, 1)}
	resonateSteps = &Workload{Letter: "K2", Name: "resonate-steps", Unit: "calls", SDK: true,
		Title: "run of Resonate's SDK: a function of three local steps, in the client", run: runSDK("steps", stepSum, 1+stepCount)}
	resonateRPC = &Workload{Letter: "K3", Name: "resonate-rpc", Unit: "calls", SDK: true,
		Title: "rpc of Resonate's SDK: a function without steps, in a worker", run: runSDK("rpc", 0, 1)}
	resonatePromise = &Workload{Letter: "K4", Name: "resonate-promise", Unit: "promises",
		Title: "create and settle a promise by two requests of Resonate's protocol", run: runResonatePromise}
)

// SDKRequests is the figure of Result.Extra that counts what the client's SDK has sent.
const SDKRequests = "requests of the client's SDK per call"

// runSDK measures calls of one kind, whose result is their number and more. Each call makes so many promises.
func runSDK(kind string, more, promises int64) func(context.Context, *env) (*Result, error) {
	return func(ctx context.Context, e *env) (r *Result, err error) {
		p, err := sdk.Start(ctx, e.SDK, sdk.Client, e.URLs)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		r, err = e.measure(ctx, func(ctx context.Context, n int64) error {
			var got int64
			if err := p.Call(ctx, sdk.Call{Kind: kind, ID: e.id(n), N: n, Text: e.text}, &got); err != nil {
				return err
			}
			return unequal(e.id(n), got, n+more)
		})
		if err != nil {
			return nil, err
		}
		r.Extra = map[string]float64{SDKRequests: float64(p.Requests()) / float64(r.Begun)}
		return r, e.resolved(ctx, newPoster(1), r.Begun*promises)
	}
}

func runResonatePromise(ctx context.Context, e *env) (*Result, error) {
	p := newPoster(e.Load.Concurrency)
	defer p.CloseIdleConnections()
	value := map[string]string{"data": base64.StdEncoding.EncodeToString([]byte(e.text))}
	r, err := e.measure(ctx, func(ctx context.Context, n int64) error {
		url, id := e.URLs[n%int64(len(e.URLs))], e.id(n)
		for _, step := range []struct {
			kind, state string
			data        any
		}{
			{"promise.create", "pending", map[string]any{"id": id, "timeoutAt": time.Now().Add(time.Hour).UnixMilli(), "param": map[string]string{}, "tags": map[string]string{}}},
			{"promise.settle", "resolved", map[string]any{"id": id, "state": "resolved", "value": value}},
		} {
			var got struct{ Promise promiseRecord }
			if err := p.post(ctx, url, step.kind, step.data, &got); err != nil {
				return err
			}
			if err := unequal(id, got.Promise, promiseRecord{id, step.state}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, e.resolved(ctx, p, r.Begun)
}

// promiseRecord is what the workloads read of a promise.
type promiseRecord struct{ ID, State string }

// resolved compares the promises of the job in the cluster with their number: all are resolved.
func (e *env) resolved(ctx context.Context, p *poster, want int64) error {
	defer p.CloseIdleConnections()
	if want > maxListed {
		return nil
	}
	counts := map[string]int64{}
	for cursor, more := e.Prefix+"-", true; more; {
		var page struct {
			Promises []promiseRecord
			Cursor   string
		}
		if err := p.post(ctx, e.URLs[0], "promise.search", map[string]any{"limit": 1000, "cursor": cursor}, &page); err != nil {
			return fmt.Errorf("listing promises: %w", err)
		}
		cursor, more = page.Cursor, page.Cursor != ""
		for _, found := range page.Promises {
			if more = more && strings.HasPrefix(found.ID, e.Prefix); strings.HasPrefix(found.ID, e.Prefix) {
				counts[found.State]++
			}
		}
	}
	if got := counts["resolved"]; got != want || len(counts) > 1 {
		return fmt.Errorf("%d promises were to be resolved, and the cluster has %v", want, counts)
	}
	return nil
}

// poster sends requests of Resonate's protocol.
type poster struct{ http.Client }

// newPoster makes a poster that keeps a connection to each node for each request under way.
func newPoster(underWay int) *poster {
	return &poster{http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: underWay}}}
}

// protocol is the version of Resonate's protocol.
const protocol = "2026-04-01"

// post sends one request and decodes the data of its answer. An answer other than 200 is an error.
func (p *poster) post(ctx context.Context, url, kind string, data, into any) error {
	type head struct {
		CorrID  string `json:"corrId"`
		Version string `json:"version"`
	}
	body, err := json.Marshal(struct {
		Kind string `json:"kind"`
		Head head   `json:"head"`
		Data any    `json:"data"`
	}{kind, head{"bench", protocol}, data})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct{ Data json.RawMessage }
	if err := json.Unmarshal(text, &answer); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", kind, resp.Status, short(string(text)))
	}
	return json.Unmarshal(answer.Data, into)
}
