package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// codecAt serves a codec server, whose conversion says what it was asked unless behave answers.
func codecAt(t *testing.T, behave func(w http.ResponseWriter, r *http.Request, in []byte) bool) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in codecPayloads
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil || len(in.Payloads) != 1 || in.Payloads[0].Data == nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, fmt.Sprintf("%s %s: %v", r.Method, body, err), http.StatusTeapot)
			return
		}
		p := in.Payloads[0]
		if behave != nil && behave(w, r, *p.Data) {
			return
		}
		out := fmt.Appendf(nil, "%s %s/%s %s %q %s", r.URL.Path, r.Header.Get("X-Namespace"), p.Metadata["id"], p.Metadata["what"], *p.Data, r.Header.Get("Authorization"))
		_ = json.NewEncoder(w).Encode(codecPayloads{[]codecPayload{{Data: &out}}})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A codec server gets what it has to know, and its failures are bounded and clear.
func TestCodecServer(t *testing.T) {
	t.Parallel()
	shop := shop()
	sh := &shell{addr: shop.serve(t)}
	server := codecAt(t, nil)
	if stdout, stderr, code := sh.run("--codec-server", server+"/", "start", "echo", "--id", "x", "--input", "5", "--wait"); code != exitDone ||
		stdout != `/decode default/x result "/encode default/x input \"5\" " ` {
		t.Errorf("exit %d: %s %s", code, stdout, stderr)
	}
	with := &shell{addr: sh.addr, env: map[string]string{envCodecServer: server + "/v1", envCodecAuth: "Bearer k"}}
	if stdout, stderr, code := with.run("result", "order-40"); code != exitDone || !strings.HasPrefix(stdout, "/v1/decode default/order-40 result ") || !strings.HasSuffix(stdout, " Bearer k") {
		t.Errorf("exit %d: %s %s", code, stdout, stderr)
	}
	if stdout, stderr, code := sh.run("--codec-server", server, "describe", "order-42"); code != exitDone ||
		!strings.Contains(stdout, `/decode default/order-42 details "{\"files\": 7}"`) {
		t.Errorf("the details of a heartbeat: exit %d: %s %s", code, stdout, stderr)
	}

	for says, behave := range map[string]func(w http.ResponseWriter, r *http.Request, in []byte) bool{
		"answered 418 I'm a teapot": func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.WriteHeader(http.StatusTeapot)
			return true
		},
		"answered 307 Temporary Redirect": func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return true
		},
		"answer has 0 payloads": func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			_, _ = io.WriteString(w, `{"payloads":[]}`)
			return true
		},
		"answer has 1 payloads, must be one with data": func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			_, _ = io.WriteString(w, `{"payloads":[{}]}`)
			return true
		},
		"answer of 5 bytes is not": func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			_, _ = io.WriteString(w, "hello")
			return true
		},
		"answer exceeds 16777216 bytes": func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			for range maxCodecLine>>10 + 1 {
				_, _ = io.WriteString(w, strings.Repeat(" ", 1<<10))
			}
			return true
		},
	} {
		at := codecAt(t, behave)
		stdout, stderr, code := sh.run("--codec-server", at, "describe", "order-40")
		if code != exitFailed || !strings.Contains(stderr, says) || !strings.Contains(stderr, "reason: CODEC") ||
			!strings.Contains(stdout, cannotDecode) || !strings.Contains(stdout, "Partition") {
			t.Errorf("%s: exit %d\n%s%s", says, code, stdout, stderr)
		}
		if _, _, code := sh.run("--codec-server", at, "start", "echo", "--id", "never", "--input", "5"); code != exitFailed {
			t.Errorf("%s: a start exits with %d", says, code)
		}
	}
	if _, _, code := sh.run("describe", "never"); code != exitNotFound {
		t.Errorf("an input was sent that is not encoded: exit %d", code)
	}

	// A refused payload does not hide the rest, and is no failure of the server.
	refusing := codecAt(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		http.Error(w, "no such key\nmore", http.StatusBadRequest)
		return true
	})
	if stdout, stderr, code := sh.run("--codec-server", refusing, "describe", "order-40"); code != exitDone || !strings.Contains(stdout, "<cannot decode: no such key>") {
		t.Errorf("exit %d: %s %s", code, stdout, stderr)
	}
	for _, args := range [][]string{
		{"--codec-server", server, "--codec-command", "x"}, {"--codec-server", "localhost:8081"}, {"--codec-server", "ftp://x"}, {"--codec-server", "http://"},
	} {
		if _, stderr, code := sh.run(append(args, "describe", "order-40")...); code != exitUsage {
			t.Errorf("%q: exit %d: %s", args, code, stderr)
		}
	}
	if _, stderr, code := sh.run("--codec-server", "http://127.0.0.1:1", "describe", "order-40"); code != exitFailed || !strings.Contains(stderr, "refused") {
		t.Errorf("exit %d: %s", code, stderr)
	}

	// One that does not answer is given up.
	hang := make(chan struct{})
	silent := codecAt(t, func(http.ResponseWriter, *http.Request, []byte) bool { <-hang; return true })
	defer close(hang)
	c, err := newServerCodec(silent, "", 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.convert(t.Context(), codecRequest{Direction: decoding, Data: []byte("x")})
	if err == nil || !strings.Contains(err.Error(), "codec server") {
		t.Errorf("%v", err)
	}
	if _, again := c.convert(t.Context(), codecRequest{}); again != err || c.Close() != err {
		t.Errorf("then %v, and not the first error", again)
	}
}
