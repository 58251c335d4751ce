package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
	"perdure/embed"
)

// vault is a codec that encrypts: JSON under AES-GCM.
type vault struct{ cipher.AEAD }

func newVault() vault {
	block, err := aes.NewCipher(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return vault{gcm}
}

func (v vault) Encode(value any) ([]byte, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return v.encrypt(plain)
}

func (v vault) Decode(data []byte, into any) error {
	plain, err := v.decrypt(data)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, into)
}

func (v vault) encrypt(plain []byte) ([]byte, error) {
	nonce := make([]byte, v.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return v.Seal(nonce, nonce, plain, nil), nil
}

func (v vault) decrypt(data []byte) ([]byte, error) {
	if len(data) < v.NonceSize() {
		return nil, errors.New("too short")
	}
	return v.Open(nil, data[:v.NonceSize()], data[v.NonceSize():], nil)
}

// codecToRun is the codec command of these tests: this very program with an argument that names its behaviour.
func codecToRun() (code int, is bool) {
	if len(os.Args) != 2 || !strings.HasPrefix(os.Args[1], "codec-") {
		return 0, false
	}
	in := bufio.NewReader(os.Stdin)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0, true
		}
		var r codecRequest
		if err := json.Unmarshal(line, &r); err != nil {
			return 1, true
		}
		switch os.Args[1] {
		case "codec-vault":
			convert := newVault().decrypt
			if r.Direction == encoding {
				convert = newVault().encrypt
			}
			answer := object{}
			if data, err := convert(r.Data); err != nil {
				answer = append(answer, member{"error", err.Error()})
			} else {
				quoted, _ := json.Marshal(data)
				answer = append(answer, member{"data", json.RawMessage(quoted)})
			}
			fmt.Printf("%s\n", appendJSON(nil, answer))
		case "codec-echo": // shows what it was asked
			quoted, _ := json.Marshal(fmt.Appendf(nil, "%d %s %s/%s %s %q", number, r.Direction, r.Context.Namespace, r.Context.ID, r.Context.What, r.Data))
			fmt.Printf("{\"data\":%s}\n", quoted)
		case "codec-exits":
			return 7, true
		case "codec-text":
			fmt.Println("hello")
		case "codec-empty":
			fmt.Println("{}")
		case "codec-both":
			fmt.Println(`{"data":"","error":"no"}`)
		case "codec-long":
			for range maxCodecLine >> 10 {
				fmt.Print(strings.Repeat(" ", 1<<10))
			}
			fmt.Println("{}")
		case "codec-silent":
			_, _ = io.Copy(io.Discard, in)
		}
	}
}

// codecCommand is the command line of codecToRun.
func codecCommand(t *testing.T, behaviour string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program + " codec-" + behaviour
}

// sealed is a sealedShop's command line, with the tokens of the promises that its functions have made.
type sealed struct {
	shell
	tokens chan string
}

// sealedShop is a node with a worker whose functions and entity encrypt.
func sealedShop(t *testing.T) *sealed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	node, err := embed.Start(ctx, embed.Config{
		DataDir: filepath.Join(t.TempDir(), "data"), Partitions: 3, Logger: slog.New(slog.DiscardHandler),
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	c, err := client.Dial(client.Options{Addrs: []string{node.GRPCAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	codec := durable.WithCodec(newVault())
	buy := durable.NewFunction("buy", func(ctx durable.Context, what string) (string, error) {
		price, err := durable.Run(ctx, "price", func(context.Context) (string, error) { return "price of " + what, nil })
		if err != nil {
			return "", err
		}
		by, err := durable.WaitSignal[string](ctx, "approved")
		return price + " approved by " + by, err
	}, codec)
	fail := durable.NewFunction("fail", func(_ durable.Context, what string) (string, error) {
		return "", &durable.Error{Type: "refused", Message: "no " + what, Details: []byte(`{"what":"` + what + `"}`), NonRetryable: true}
	}, codec)
	tokens := make(chan string, 8)
	ask := durable.NewFunction("ask", func(ctx durable.Context, _ string) (string, error) {
		answer, err := durable.NewPromise[string](ctx)
		if err != nil {
			return "", err
		}
		if _, err := durable.Run(ctx, "give away", func(context.Context) (bool, error) { tokens <- answer.Token(); return true, nil }); err != nil {
			return "", err
		}
		return answer.Get(ctx)
	}, codec)
	cart := durable.NewEntity("cart",
		durable.Op("add", func(_ *durable.EntityContext, state *[]string, what string) (int, error) {
			*state = append(*state, what)
			return len(*state), nil
		}),
		durable.Op("refuse", func(_ *durable.EntityContext, _ *[]string, what string) (int, error) {
			return 0, &durable.Error{Type: "refused", Message: "no " + what, NonRetryable: true}
		})).WithCodec(newVault())
	w := durable.NewWorker(c, durable.WorkerOptions{})
	w.Register(buy, fail, ask, cart)
	working, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &sealed{shell{addr: node.GRPCAddr()}, tokens}
}

// With the codec command of an encrypting codec the commands take and show clear text. Without it they show none, nor
// does the node have any.
func TestCodecCommand(t *testing.T) {
	t.Parallel() // it waits most of the time
	const secret = "swordfish"
	plain := sealedShop(t)
	with := &shell{addr: plain.addr, env: map[string]string{envCodec: codecCommand(t, "vault")}}
	run := func(want int, args ...string) string {
		t.Helper()
		stdout, stderr, code := with.run(args...)
		if code != want {
			t.Fatalf("%q: exit %d: %s%s", args, code, stdout, stderr)
		}
		return stdout + stderr
	}
	shows := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in:\n%s", part, text)
			}
		}
	}
	input := `"` + secret + `"`
	run(exitDone, "start", "buy", "--id", "b", "--input", input, "--allow-unknown-function")
	run(exitDone, "signal", "b", "approved", "--payload", `"ann `+secret+`"`)
	result := "price of " + secret + " approved by ann " + secret
	shows(run(exitDone, "result", "b"), `"`+result+`"`)
	shows(run(exitDone, "result", "b", "--json"), `"value":"`+result+`"`)
	shows(run(exitDone, "describe", "b"), result)
	shows(run(exitDone, "describe", "b", "--json"), `"outcome":{"value":"`+result+`"}`)
	shows(run(exitDone, "journal", "b"), `input "`+secret+`"`, `"price of `+secret+`"`, `"ann `+secret+`"`, `result "`+result)
	shows(run(exitDone, "journal", "b", "--json"), `"input":"`+secret+`"`, `"result":{"value":"price of `+secret)

	shows(run(exitFailed, "start", "fail", "--id", "f", "--input", input, "--allow-unknown-function", "--wait"), `execution "f" failed: refused: no `+secret)
	shows(run(exitFailed, "result", "f", "--json"), `"message":"no `+secret+`","details":{"what":"`+secret+`"}`, `execution \"f\" failed: refused: no `+secret)
	shows(run(exitDone, "describe", "f"), "refused: no "+secret)
	shows(run(exitDone, "journal", "f"), "refused: no "+secret)
	shows(run(exitDone, "promise", "get", "f"), "refused: no "+secret)
	shows(run(exitDone, "list", "--prefix", "f", "--json"), `"id":"f"`)

	shows(run(exitDone, "entity", "call", "cart@x", "add", "--input", input), "1")
	run(exitDone, "entity", "signal", "cart@x", "add", "--input", `"second `+secret+`"`)
	shows(run(exitDone, "entity", "call", "cart@x", "add", "--input", input, "--json"), `"value":3`)
	shows(run(exitFailed, "entity", "call", "cart@x", "refuse", "--input", input), "refused: no "+secret)
	cart := `["` + secret + `","second ` + secret + `","` + secret + `"]`
	shows(run(exitDone, "entity", "get", "cart@x"), cart)
	shows(run(exitDone, "entity", "get", "cart@x", "--json"), `"value":`+cart)

	run(exitDone, "start", "ask", "--id", "a", "--input", input, "--allow-unknown-function")
	run(exitDone, "promise", "create", "p", "--timeout", "1h", "--param", input)
	shows(run(exitDone, "promise", "resolve", "p", "--value", input), `"`+secret+`"`)
	shows(run(exitDone, "promise", "resolve", "p", "--value", input), `"`+secret+`"`) // repeated, and encrypted otherwise
	run(exitConflict, "promise", "resolve", "p", "--value", `"other"`)
	token := ""
	select {
	case token = <-plain.tokens:
	case <-time.After(deadline):
		t.Fatal("the function has made no promise")
	}
	shows(run(exitDone, "promise", "resolve", token, "--value", input), `"`+secret+`"`)
	shows(run(exitDone, "result", "a"), `"`+secret+`"`)

	for _, args := range [][]string{
		{"describe", "b"}, {"describe", "b", "--json"}, {"journal", "b"}, {"journal", "b", "--json"}, {"result", "b", "--json"}, {"describe", "f"},
		{"result", "f", "--json"}, {"journal", "f", "--json"}, {"list", "--json"}, {"entity", "get", "cart@x", "--json"}, {"promise", "get", "p", "--json"},
		{"promise", "get", "f"}, {"journal", "a", "--json"},
	} {
		stdout, stderr, _ := plain.run(args...)
		for _, text := range []string{secret, "c3dvcmRmaXNo"} { // and in base64
			if strings.Contains(stdout+stderr, text) {
				t.Errorf("%q without the codec command shows %q:\n%s%s", args, text, stdout, stderr)
			}
		}
	}

	// A payload that the codec refuses does not hide the rest.
	if _, stderr, code := plain.run("signal", "b2", "approved", "--payload", input, "--start", "buy", "--input", "1", "--json"); code != exitDone {
		t.Fatal(stderr)
	}
	shows(run(exitDone, "journal", "b2"), "SignalDelivered", `<cannot decode: too short> (11 bytes)`, `<cannot decode: too short> (1 bytes)`)
	shows(run(exitDone, "journal", "b2", "--json"), `"input":{"cannot_decode":"too short","bytes":1}`)
	if _, stderr, code := plain.run("promise", "create", "q", "--timeout", "1h", "--param", input); code != exitDone {
		t.Fatal(stderr)
	}
	shows(run(exitDone, "promise", "get", "q"), `<cannot decode: too short> (11 bytes)`, "pending")
}

// The command is started once, gets what it has to know, and its failures are bounded and clear.
func TestCodecProtocol(t *testing.T) {
	t.Parallel() // it waits most of the time
	server := shop()
	sh := &shell{addr: server.serve(t)}
	story := func(behaviour string, args ...string) (stdout, stderr string, code int) {
		return sh.run(append([]string{"--codec-command", codecCommand(t, behaviour)}, args...)...)
	}
	if stdout, stderr, code := story("echo", "start", "echo", "--id", "x", "--input", "5", "--wait"); code != exitDone ||
		stdout != `2 decode default/x result "1 encode default/x input \"5\""` {
		t.Errorf("exit %d: %s %s", code, stdout, stderr)
	}
	if stdout, stderr, code := story("echo", "describe", "order-40"); code != exitDone || !strings.Contains(stdout, "1 decode default/order-40 outcome ") {
		t.Errorf("exit %d: %s %s", code, stdout, stderr)
	}
	for behaviour, says := range map[string]string{
		"exits": "ended without an answer: exit status 7",
		"text":  `answer of 5 bytes is not {"data": BASE64} or {"error": TEXT}`,
		"empty": `answer needs "data" or "error", and not both`,
		"both":  `answer needs "data" or "error", and not both`,
		"long":  "read its answer: bufio.Scanner: token too long",
	} {
		stdout, stderr, code := story(behaviour, "describe", "order-40")
		if code != exitFailed || !strings.Contains(stderr, says) || !strings.Contains(stderr, "reason: CODEC") ||
			!strings.Contains(stdout, cannotDecode) || !strings.Contains(stdout, "Partition") {
			t.Errorf("%s: exit %d\n%s%s", behaviour, code, stdout, stderr)
		}
		if stdout, _, code := story(behaviour, "result", "order-40"); code != exitFailed || stdout != "" {
			t.Errorf("%s: exit %d, a result %q", behaviour, code, stdout)
		}
		if _, _, code := story(behaviour, "start", "echo", "--id", "never-"+behaviour, "--input", "5"); code != exitFailed {
			t.Errorf("%s: a start exits with %d", behaviour, code)
		}
		if _, _, code := sh.run("describe", "never-"+behaviour); code != exitNotFound {
			t.Errorf("%s: an input was sent that is not encoded: exit %d", behaviour, code)
		}
	}
	if _, stderr, code := sh.run("--codec-command", "/no/such/program", "describe", "order-40"); code != exitFailed || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := sh.run("--codec-command", " ", "describe", "order-40"); code != exitUsage || !strings.Contains(stderr, "the program is missing") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := sh.run("--codec-command", "/no/such/program", "list"); code != exitDone {
		t.Errorf("a command that shows no payload starts the codec: exit %d: %s", code, stderr)
	}

	// A command that does not answer is killed, also when the request does not fit into its pipe.
	for _, size := range []int{1, 4 << 20} {
		c := &commandCodec{command: codecCommand(t, "silent"), within: 100 * time.Millisecond, stderr: io.Discard}
		_, err := c.convert(t.Context(), codecRequest{Direction: decoding, Data: make([]byte, size)})
		if err == nil || !strings.Contains(err.Error(), "no answer within 100ms") {
			t.Errorf("%v", err)
		}
		if _, again := c.convert(t.Context(), codecRequest{}); again != err || c.Close() != err {
			t.Errorf("then %v, and not the first error", again)
		}
	}
}
