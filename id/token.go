package id

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// PromiseSecretBytes is the size of the random part of a token.
const PromiseSecretBytes = 16

// Token returns the text by which the outside names an execution's promise. It also names the incarnation that gave it
// away: the next incarnation's promise of the same id is another one. The secret, PromiseSecretBytes or none, keeps those
// from settling the promise that know its id alone. No id has such a text.
func (p PromiseID) Token(incarnation uint64, secret []byte) string {
	text := string(p) + "~" + strconv.FormatUint(incarnation, 10)
	if len(secret) == 0 {
		return text
	}
	return text + "~" + hex.EncodeToString(secret)
}

// CutToken splits a token into the promise's id, the incarnation that gave it away, and its secret. Any other text is
// returned as it is, with incarnation 0.
func CutToken(text string) (promise string, incarnation uint64, secret []byte) {
	rest, last, ok := cutLast(text)
	if !ok {
		return text, 0, nil
	}
	number := last
	if len(last) == hex.EncodedLen(PromiseSecretBytes) {
		var err error
		if secret, err = hex.DecodeString(last); err != nil {
			return text, 0, nil
		}
		if rest, number, ok = cutLast(rest); !ok {
			return text, 0, nil
		}
	}
	p, err := Parse(rest)
	if _, child := p.Parent(); err != nil || !child {
		return text, 0, nil
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n == 0 || p.Token(n, secret) != text {
		return text, 0, nil
	}
	return string(p), n, secret
}

func cutLast(text string) (before, after string, ok bool) {
	at := strings.LastIndexByte(text, '~')
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}
