package embed_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"perdure/client"
	"perdure/durable"
)

// vault is a codec that encrypts: JSON under AES-GCM.
type vault struct{ cipher.AEAD }

func newVault(t *testing.T) vault {
	block, err := aes.NewCipher(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return vault{gcm}
}

func (v vault) Encode(value any) ([]byte, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, v.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return v.Seal(nonce, nonce, plain, nil), nil
}

func (v vault) Decode(data []byte, into any) error {
	if len(data) < v.NonceSize() {
		return errors.New("too short to be sealed")
	}
	plain, err := v.Open(nil, data[:v.NonceSize()], data[v.NonceSize():], nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, into)
}

// With an encrypting codec nothing of an execution is in clear: inputs, raw bytes, results, signals, messages
// and details of failures, panics. Neither the journals nor the files of the node have a word of it.
func TestNothingInClear(t *testing.T) {
	t.Parallel() // it waits most of the time
	const secret = "swordfish"
	cfg := nodeConfig(t.TempDir())
	w := connect(t, startNode(t, cfg).GRPCAddr())
	codec := durable.WithCodec(newVault(t))
	child := durable.NewFunction("child", func(ctx durable.Context, in []byte) ([]byte, error) {
		if !bytes.Contains(in, []byte(secret)) {
			return nil, errors.New("not the input")
		}
		return nil, &durable.Error{Type: "mine", Message: "a " + secret + " failed", Details: []byte(secret + " details")}
	}, codec)
	panics := 0
	parent := durable.NewFunction("parent", func(ctx durable.Context, in string) (string, error) {
		if _, err := durable.Run(ctx, "raw", func(context.Context) ([]byte, error) { return []byte(secret), nil }); err != nil {
			return "", err
		}
		_, err := durable.Run(ctx, "retried", func(ctx context.Context) (string, error) {
			if durable.StepInfo(ctx).Attempt == 1 {
				return "", errors.New("the " + secret + " did not answer")
			}
			panic("no " + secret)
		}, durable.WithRetry(durable.RetryPolicy{MaxAttempts: 2, Initial: 1}))
		var failed *durable.Error
		if !errors.As(err, &failed) || failed.Type != durable.TypePanic || !strings.Contains(failed.Message, secret) {
			return "", errors.New("the step ended otherwise")
		}
		if panics++; panics == 1 {
			panic("a function without " + secret)
		}
		got, err := durable.WaitSignal[[]byte](ctx, "go on")
		if err != nil || string(got) != secret {
			return "", errors.New("another signal")
		}
		_, err = durable.Call(ctx, child, []byte(secret+" input"))
		if !errors.As(err, &failed) || failed.Message != "a "+secret+" failed" || string(failed.Details) != secret+" details" {
			return "", errors.New("the child failed otherwise")
		}
		return "", err
	}, codec)
	w.work(durable.WorkerOptions{}, child, parent)
	h := begin(w, parent, "e", secret+" in")
	if err := h.Signal(soon(t), "go on", []byte(secret)); err != nil {
		t.Fatal(err)
	}
	_, err := h.Result(soon(t))
	var failed *durable.Error
	if !errors.As(err, &failed) || failed.Type != "mine" || string(failed.Details) != secret+" details" {
		t.Fatalf("ended with %v", err)
	}

	clear := func(where string, data []byte) {
		for _, text := range []string{secret, "c3dvcmRmaXNo"} { // and in base64
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("%s has %q in clear", where, text)
			}
		}
	}
	var entries int
	for e, err := range w.List(soon(t), client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		d, err := w.Describe(soon(t), e.GetId())
		if err != nil {
			t.Fatal(err)
		}
		described, _ := proto.Marshal(d)
		clear("describe "+e.GetId(), described)
		for entry, err := range w.Journal(soon(t), e.GetId()) {
			if err != nil {
				t.Fatal(err)
			}
			raw, _ := proto.Marshal(entry)
			clear("the journal of "+e.GetId(), raw)
			entries++
		}
	}
	if entries < 15 {
		t.Errorf("only %d entries were looked at", entries)
	}
	files := 0
	err = filepath.WalkDir(cfg.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		clear(path, data)
		files++
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) || files < 5 {
		t.Errorf("%d files: %v", files, err)
	}
}
