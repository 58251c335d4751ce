package id

import (
	"strconv"
	"strings"
)

// Token returns the text by which the outside names an execution's promise. It also names the incarnation that gave it
// away: the next incarnation's promise of the same id is another one. No id has such a text.
func (p PromiseID) Token(incarnation uint64) string {
	return string(p) + "~" + strconv.FormatUint(incarnation, 10)
}

// CutToken splits a token into the promise's id and the incarnation that gave it away. Any other text is returned as it
// is, with incarnation 0.
func CutToken(text string) (promise string, incarnation uint64) {
	at := strings.LastIndexByte(text, '~')
	if at < 0 {
		return text, 0
	}
	p, err := Parse(text[:at])
	if _, child := p.Parent(); err != nil || !child {
		return text, 0
	}
	n, err := strconv.ParseUint(text[at+1:], 10, 64)
	if err != nil || n == 0 || p.Token(n) != text {
		return text, 0
	}
	return string(p), n
}
