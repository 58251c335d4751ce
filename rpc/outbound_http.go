package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// Bounds of one call to a service.
const (
	outboundTimeout      = 60 * time.Second // of a call that names none
	maxRedirects         = 5
	maxResponseBytes     = id.MaxPayloadBytes
	maxResponseHeader    = 256 << 10
	maxFailureBytes      = 1 << 10 // of a body or an error, in a failure's message
	outboundDialTimeout  = 10 * time.Second
	outboundIdleTimeout  = 30 * time.Second
	outboundIdleConns    = 64
	outboundIdlePerHost  = 8
	idempotencyKeyHeader = "idempotency-key"
)

// Types of the failures of HTTP nodes, besides "http_" with a status: "http_503".
const (
	failureTimeout   = "http_timeout"   // no whole answer came in time
	failureConnect   = "http_connect"   // no connection, or the name does not resolve
	failureTLS       = "http_tls"       // the server is not who it should be
	failureRedirects = "http_redirects" // too many of them, or one that leads nowhere
	failureTooLarge  = "http_too_large" // the answer, or what its result would be
	failureBroken    = "http_broken"    // the connection broke, or what came is no HTTP
	failureForbidden = "http_forbidden" // the node's OutboundPolicy: no other attempt will help
	failureRequest   = "http_request"   // no request can be made of what was given: no other attempt will help
)

// outboundRequest is the input of the function $http, as the state machine writes it.
type outboundRequest struct {
	URL            string            `json:"url"`
	Method         string            `json:"method"`
	Headers        map[string]string `json:"headers,omitempty"`
	Body           json.RawMessage   `json:"body,omitempty"`
	IdempotencyKey string            `json:"idempotency_key"`
	TimeoutMS      int64             `json:"timeout_ms,omitempty"`
}

var (
	errRedirects    = fmt.Errorf("more than %d redirects", maxRedirects)
	errCallTimeout  = errors.New("no answer in time")
	errScheme       = errors.New("a redirect to what is neither http nor https")
	errBodyTooLarge = fmt.Errorf("the answer has more than %d bytes", maxResponseBytes)
)

// newOutboundClient is the client of all calls under a policy. It does not send a graph's credentials for one
// server to another that the first redirects to. It ignores the environment's proxies: they would connect to
// addresses that the policy does not check.
func newOutboundClient(policy *OutboundPolicy) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: outboundDialTimeout, Control: policy.control}).DialContext,
			TLSHandshakeTimeout:    outboundDialTimeout,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           outboundIdleConns,
			MaxIdleConnsPerHost:    outboundIdlePerHost,
			IdleConnTimeout:        outboundIdleTimeout,
			MaxResponseHeaderBytes: maxResponseHeader,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errRedirects
			}
			if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
				return errScheme
			}
			if err := policy.checkRequest(req); err != nil {
				return err
			}
			for _, former := range append(via[1:len(via):len(via)], req) {
				if former.URL.Scheme != via[0].URL.Scheme || former.URL.Host != via[0].URL.Host {
					keepOwnHeaders(req.Header)
					break
				}
			}
			return nil
		},
	}
}

// keepOwnHeaders drops the headers that a graph has set.
func keepOwnHeaders(h http.Header) {
	for name := range h {
		switch strings.ToLower(name) {
		case "content-type", "user-agent", "accept", "referer", idempotencyKeyHeader:
		default:
			delete(h, name)
		}
	}
}

// request makes the HTTP request.
func (r *outboundRequest) request(ctx context.Context, agent string) (*http.Request, error) {
	var body io.Reader
	if len(r.Body) > 0 {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return nil, err
	}
	if (req.URL.Scheme != "http" && req.URL.Scheme != "https") || req.URL.Host == "" {
		return nil, fmt.Errorf("%q is no address of an HTTP service", short(r.URL))
	}
	req.Header.Set("User-Agent", agent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.Headers {
		if strings.EqualFold(name, "host") {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	// By its canonical name, net/http would take the key as permission to send a request again over another
	// connection. One attempt is one request; names of header fields have no case.
	req.Header.Del(idempotencyKeyHeader)
	req.Header[idempotencyKeyHeader] = []string{r.IdempotencyKey}
	return req, nil
}

// callService makes one call. Both answers are nil when ctx has ended the call.
func callService(ctx context.Context, client *http.Client, policy *OutboundPolicy, agent string, input []byte) (result []byte, failed *perdurev1.Failure) {
	var in outboundRequest
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, requestFailure(err)
	}
	timeout := outboundTimeout
	if in.TimeoutMS > 0 {
		timeout = time.Duration(in.TimeoutMS) * time.Millisecond
	}
	bounded, cancel := context.WithTimeoutCause(ctx, timeout, errCallTimeout)
	defer cancel()
	req, err := in.request(bounded, agent)
	if err != nil {
		return nil, requestFailure(err)
	}
	if err := policy.checkRequest(req); err != nil {
		return nil, forbiddenFailure(err)
	}
	resp, err := client.Do(req)
	if resp != nil {
		defer resp.Body.Close()
	}
	var body []byte
	if err == nil {
		body, err = readBody(resp)
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, nil
	case err == nil && resp.StatusCode/100 == 2:
		return resultOf(body)
	case resp != nil && resp.StatusCode/100 != 2 && (err == nil || resp.StatusCode/100 != 3):
		// The status says more than a missing or large body.
		return nil, statusFailure(resp, body)
	case errors.Is(context.Cause(bounded), errCallTimeout):
		return nil, &perdurev1.Failure{Type: failureTimeout, Message: fmt.Sprintf("no whole answer came within %s", timeout)}
	default:
		var no *forbiddenError
		if errors.As(err, &no) {
			return nil, forbiddenFailure(no)
		}
		return nil, &perdurev1.Failure{Type: failureType(err), Message: excerpt([]byte(innermost(err)))}
	}
}

// readBody reads an answer within its bound; of a refusal, as much as is shown.
func readBody(resp *http.Response) ([]byte, error) {
	if resp.StatusCode/100 != 2 {
		return io.ReadAll(io.LimitReader(resp.Body, maxFailureBytes+1))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	if err == nil && len(body) > maxResponseBytes {
		err = errBodyTooLarge
	}
	return body, err
}

// resultOf is the body as JSON: itself if it is, or else a string of it, in base64 if it is no text. An empty
// body is null.
func resultOf(body []byte) ([]byte, *perdurev1.Failure) {
	var result []byte
	switch {
	case len(body) == 0:
		return []byte("null"), nil
	case !utf8.Valid(body):
		result, _ = json.Marshal(body) // bytes have a form
	case json.Valid(body):
		return body, nil
	default:
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		_ = e.Encode(string(body)) // a string has a form
		result = bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	}
	if len(result) > maxResponseBytes {
		return nil, &perdurev1.Failure{Type: failureTooLarge,
			Message: fmt.Sprintf("the answer, as a JSON string, has %d bytes, at most %d are allowed", len(result), maxResponseBytes)}
	}
	return result, nil
}

// forbiddenFailure is not retryable: the policy will be the same at the next attempt.
func forbiddenFailure(err *forbiddenError) *perdurev1.Failure {
	return &perdurev1.Failure{Type: failureForbidden, Message: excerpt([]byte(err.Error())), NonRetryable: true}
}

func requestFailure(err error) *perdurev1.Failure {
	return &perdurev1.Failure{Type: failureRequest, Message: excerpt([]byte(innermost(err))), NonRetryable: true}
}

// statusFailure is the failure for a status line, with the beginning of the body.
func statusFailure(resp *http.Response, body []byte) *perdurev1.Failure {
	message := excerpt([]byte(resp.Status))
	if text := excerpt(body); text != "" {
		message += "\n" + text
	}
	return &perdurev1.Failure{Type: "http_" + strconv.Itoa(resp.StatusCode), Message: message}
}

// failureType classifies the error of a call without an answer.
func failureType(err error) string {
	var unverified *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var name *net.DNSError
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.Is(err, errBodyTooLarge):
		return failureTooLarge
	case errors.Is(err, errRedirects), errors.Is(err, errScheme):
		return failureRedirects
	case errors.As(err, &unverified), errors.As(err, &alert), errors.As(err, &record):
		return failureTLS
	case errors.As(err, &name), errors.As(err, &op) && op.Op == "dial":
		return failureConnect
	case errors.As(err, &timeout) && timeout.Timeout():
		return failureTimeout
	}
	return failureBroken
}

// innermost is an error without the address, which may have secrets in its query.
func innermost(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// excerpt is the beginning of a text, for a message.
func excerpt(b []byte) string {
	if len(b) > maxFailureBytes {
		b = append(b[:maxFailureBytes:maxFailureBytes], "…"...)
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(b)), "�")
}
