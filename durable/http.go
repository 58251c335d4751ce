package durable

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// HTTPRequest is a request of HTTP.
type HTTPRequest struct {
	// Method is GET if it is empty, or POST with a body.
	Method string
	URL    string
	Header http.Header
	Body   []byte
}

// HTTPResponse is the answer to a request: one with a status from 200 to 299.
type HTTPResponse struct {
	Status int
	Header http.Header
	Body   []byte
}

// TypeHTTP is the failure type of an answer with another status. The failure's details are the answer's body, up to
// 64 KiB.
const TypeHTTP = "http"

const (
	maxHTTPBody    = 2 << 20
	maxHTTPDetails = 64 << 10
)

// HTTP makes a request as a step, which the journal has as one of kind HTTP under the method and the URL
// without its query. Options, retries and replay are those of Run. The header Idempotency-Key is the step's
// promise id, the same for every attempt, unless the request has another. Errors of the transport, the
// statuses 408, 425, 429 and those from 500 on are tried again; another status outside 200 to 299, and a body
// of more than 2 MiB, are final. The request is made by WorkerOptions.HTTPClient. The journal records the URL
// and the answer through the codec, and neither the request's headers nor its body.
func HTTP(ctx Context, req HTTPRequest, opts ...StepOption) (HTTPResponse, error) {
	var out HTTPResponse
	t, err := enterNamed(ctx, "HTTP", req.URL)
	if err != nil {
		return out, err
	}
	if req.Method == "" {
		req.Method = http.MethodGet
		if len(req.Body) > 0 {
			req.Method = http.MethodPost
		}
	}
	where, err := url.Parse(req.URL)
	if err != nil || where.Host == "" || where.Scheme != "http" && where.Scheme != "https" {
		return out, &Error{Type: TypeBadRequest, Message: "a request to " + strconv.Quote(req.URL) + ", which is no URL of HTTP", NonRetryable: true}
	}
	name := httpName(req.Method + " " + where.Scheme + "://" + where.Host + where.EscapedPath())
	o := stepOptions{kind: opHTTP}
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.retry.check(); err != nil {
		return out, err
	}
	o.retry = o.retry.withDefaults()
	if o.input, err = encode(t.codec, "the URL of", name, req.URL); err != nil {
		return out, err
	}
	data, err := t.runStep(name, o, func(ctx context.Context) ([]byte, error) {
		response, err := t.w.request(ctx, name, req)
		if err != nil {
			return nil, err
		}
		return encode(t.codec, "the answer to", name, response)
	})
	if err != nil {
		return out, err
	}
	if err := decode(t.codec, "the answer to", name, data, &out); err != nil {
		t.failTask(fmt.Errorf("durable: %s: %w", t.child(t.next-1), err)) // it was encoded once: the code changed
	}
	return out, nil
}

// httpName shortens a name that the server would refuse. A digest keeps the names of different URLs apart.
func httpName(name string) string {
	if len(name) <= maxName {
		return name
	}
	digest := sha256.Sum256([]byte(name))
	return cut(name, maxName-17) + " " + hex.EncodeToString(digest[:8])
}

// request makes one attempt of a request.
func (w *Worker) request(ctx context.Context, name string, req HTTPRequest) (*HTTPResponse, error) {
	r, err := http.NewRequestWithContext(ctx, req.Method, req.URL, bytes.NewReader(req.Body))
	if err != nil {
		return nil, &Error{Type: TypeBadRequest, Message: err.Error(), NonRetryable: true}
	}
	for k, values := range req.Header {
		r.Header[k] = append([]string(nil), values...)
	}
	if r.Header.Get("Idempotency-Key") == "" {
		r.Header.Set("Idempotency-Key", StepInfo(ctx).PromiseID)
	}
	client := w.opts.HTTPClient
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxHTTPBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxHTTPBody:
		return nil, &Error{Type: TypeTooLarge, Message: fmt.Sprintf("%s: answer of more than %d bytes", name, maxHTTPBody), NonRetryable: true}
	case answer.StatusCode < 200 || answer.StatusCode > 299:
		return nil, &Error{Type: TypeHTTP, Message: name + ": " + answer.Status, Details: body[:min(len(body), maxHTTPDetails)],
			NonRetryable: !passingStatus(answer.StatusCode)}
	}
	return &HTTPResponse{Status: answer.StatusCode, Header: answer.Header, Body: body}, nil
}

// passingStatus reports whether a later attempt may get another status.
func passingStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}
