package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The environment's --codec-server, and the Authorization header for it.
const (
	envCodecServer = "PERDURE_CODEC_SERVER"
	envCodecAuth   = "PERDURE_CODEC_AUTH"
)

// serverCodec converts payloads by POST requests to a codec server, as Temporal's remote codecs do:
// URL/decode and URL/encode take and give {"payloads": [{"metadata": {…}, "data": BASE64}]}. After a failure
// of the server itself every conversion fails at once.
type serverCodec struct {
	url, authorization string
	http               *http.Client
	// broken is the first failure of the server itself.
	broken error
}

// newServerCodec checks the URL of a codec server.
func newServerCodec(text, authorization string, within time.Duration) (*serverCodec, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("--codec-server %q: not a URL that begins with http:// or https://", text)
	}
	return &serverCodec{url: strings.TrimSuffix(text, "/"), authorization: authorization, http: &http.Client{
		Timeout:       within,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// codecPayloads is the body of a request to a codec server, and of its answer.
type codecPayloads struct {
	Payloads []codecPayload `json:"payloads"`
}

// codecPayload is a payload; its metadata says whose it is.
type codecPayload struct {
	Metadata map[string][]byte `json:"metadata,omitempty"`
	Data     *[]byte           `json:"data"`
}

// convert asks the server to convert one payload.
func (c *serverCodec) convert(ctx context.Context, r codecRequest) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	body, err := json.Marshal(codecPayloads{[]codecPayload{{map[string][]byte{
		"id": []byte(r.Context.ID), "what": []byte(r.Context.What)}, &r.Data}}})
	if err != nil {
		return nil, err
	}
	data, err := c.exchange(ctx, r, body)
	var refused *codecError
	switch {
	case err == nil || errors.As(err, &refused):
		return data, err
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	c.broken = &codecError{fmt.Sprintf("codec server %s: %v", printable(c.url), err)}
	return nil, c.broken
}

// exchange sends a request. The error is a *codecError if the server has refused the payload; else it is of
// no more use.
func (c *serverCodec) exchange(ctx context.Context, r codecRequest, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/"+string(r.Direction), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Namespace", url.PathEscape(r.Context.Namespace))
	if c.authorization != "" {
		req.Header.Set("Authorization", c.authorization)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, errors.Unwrap(err) // without the URL
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxCodecLine+1))
	if closed := resp.Body.Close(); err == nil {
		err = closed
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read its answer: %w", err)
	case len(answer) > maxCodecLine:
		return nil, fmt.Errorf("answer exceeds %d bytes", maxCodecLine)
	case resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnprocessableEntity:
		line, _, _ := strings.Cut(strings.TrimSpace(string(answer)), "\n")
		return nil, &codecError{strings.ToValidUTF8(orElse(line, resp.Status), "?")}
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("answered %s", resp.Status)
	}
	var out codecPayloads
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, fmt.Errorf("answer of %d bytes is not {\"payloads\": [{\"data\": BASE64}]}: %w", len(answer), err)
	}
	if len(out.Payloads) != 1 || out.Payloads[0].Data == nil {
		return nil, fmt.Errorf("answer has %d payloads, must be one with data", len(out.Payloads))
	}
	return *out.Payloads[0].Data, nil
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Close closes the idle connections and returns the server's failure, if it had one.
func (c *serverCodec) Close() error {
	c.http.CloseIdleConnections()
	return c.broken
}
