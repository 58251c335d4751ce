package auth

import (
	"errors"
	"strings"
	"testing"

	"perdure/internal/certs/certstest"
)

func TestTokensOfTheFile(t *testing.T) {
	w := newWorld(t, nil)
	for token, want := range map[string]Principal{
		readerToken: {"reader", "a", Read}, writerToken: {"writer", "a", Write}, otherToken: {"other", "b", Write},
		operatorToken: {"operator", AllNamespaces, Admin},
	} {
		if p, d := w.authenticate(token); d != nil || p != want {
			t.Errorf("%s: %+v, %v", want.Name, p, d)
		}
	}
	for _, token := range []string{"", "reader", readerToken + " ", readerToken[1:], Hash(readerToken), strings.TrimPrefix(Hash(readerToken), "sha256:")} {
		if p, d := w.authenticate(token); d == nil {
			t.Errorf("%q: let in as %+v", token, p)
		}
	}

	// The file changes: one token goes, one comes. A file that makes no sense changes nothing.
	row, err := Row("new", "a-token-that-is-new", "*", Read)
	if err != nil {
		t.Fatal(err)
	}
	certstest.Write(t, w.dir, "tokens.yaml", []byte(row))
	w.Reload()
	if _, d := w.authenticate(readerToken); d == nil || d.reason != reasonUnknownToken {
		t.Errorf("a token that was taken out: %v", d)
	}
	if _, d := w.authenticate("a-token-that-is-new"); d != nil {
		t.Error(d.err)
	}
	for _, bad := range []string{"", "[]", row + "  colour: blue\n"} {
		certstest.Write(t, w.dir, "tokens.yaml", []byte(bad))
		w.Reload()
		if _, d := w.authenticate("a-token-that-is-new"); d != nil {
			t.Errorf("after the file was replaced by %q: %v", bad, d.err)
		}
	}
	if log := w.logged(); strings.Count(log, "event=tokens_reloaded") != 1 || strings.Count(log, "event=tokens_reload_failed") != 3 {
		t.Errorf("log:\n%s", log)
	}
}

func TestTokenFileMistakes(t *testing.T) {
	hash := Hash("x")
	row := func(name, hash, namespace, role string) string {
		return "- {name: '" + name + "', hash: '" + hash + "', namespace: '" + namespace + "', role: '" + role + "'}\n"
	}
	good := row("n", hash, "a", "read")
	secret := "the-token-itself-by-mistake"
	for name, c := range map[string]struct{ content, says string }{
		"empty":             {"", "contains no token"},
		"a comment":         {"# later\n", "contains no token"},
		"a mapping":         {"name: n\n", "not a list"},
		"an unknown key":    {"- {name: n, hash: '" + hash + "', namespace: a, role: read, scope: all}\n", "scope"},
		"two lists":         {good + "---\n" + good, "more than one list"},
		"no name":           {row("", hash, "a", "read"), "name"},
		"the token":         {row("n", secret, "a", "read"), "perdure token hash"},
		"a short hash":      {row("n", hash[:20], "a", "read"), "64 hexadecimal digits"},
		"no hexadecimal":    {row("n", "sha256:"+strings.Repeat("g", 64), "a", "read"), "64 hexadecimal digits"},
		"no namespace":      {row("n", hash, "", "read"), "namespace"},
		"an unknown role":   {row("n", hash, "a", "root"), "none of read, write, admin"},
		"a name twice":      {good + row("n", Hash("y"), "a", "read"), "is used twice"},
		"a hash twice":      {good + row("m", hash, "a", "read"), `that of token "n"`},
		"the second is bad": {good + row("m", "", "a", "read"), "token 2"},
	} {
		_, err := parseTokens([]byte(c.content))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the message shows the token: %v", name, err)
		}
	}
	// Hexadecimal digits in capitals are the same hash.
	list, err := parseTokens([]byte(row("n", "sha256:"+strings.ToUpper(strings.TrimPrefix(hash, "sha256:")), "a", "read")))
	if err != nil || list.hashes[0] != (tokenRow{Hash: hash}).sum() {
		t.Errorf("capitals: %v", err)
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	good := certstest.Write(t, dir, "tokens.yaml", []byte(tokensFile(t)))
	bad := certstest.Write(t, dir, "bad", []byte("?"))
	for name, c := range map[string]struct {
		opts Options
		file string
	}{
		"missing tokens": {Options{TokensFile: dir + "/none"}, dir + "/none"},
		"bad tokens":     {Options{TokensFile: bad}, bad},
		"bad keys":       {Options{TokensFile: good, JWTKeyFile: bad}, bad},
		"missing keys":   {Options{JWTKeyFile: dir + "/none"}, dir + "/none"},
	} {
		_, err := Open(c.opts)
		var at *FileError
		if !errors.As(err, &at) || at.Path != c.file {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(Options{}); err == nil {
		t.Error("a guard without tokens and keys")
	}
}

func TestNewToken(t *testing.T) {
	one, err := NewToken(nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := NewToken(nil)
	if err != nil || one == two || len(one) < MinTokenBytes || !strings.HasPrefix(one, "prd_") || strings.Contains(one, ".") {
		t.Errorf("%q and %q, %v", one, two, err)
	}
	if _, err := NewToken(strings.NewReader("dry")); err == nil {
		t.Error("a token of too little randomness")
	}
}
