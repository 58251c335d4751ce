package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// RuleResult is the rule that a result has broken which is too large: it has at most MaxResultBytes.
const RuleResult = "result_limit"

// tooLarge is the only member of the object that replaces a result which is too large. It is no node's id:
// ids have no '$'.
const tooLarge = "$too_large"

// TooLarge says that a run has completed with a result of more than MaxResultBytes, whose outputs the caller
// reads node by node. The result is replaced by
//
//	{"$too_large":{"rule":"result_limit","bytes":N,"limit":1048576,"message":"…"}}
type TooLarge struct {
	// Bytes is the size of the result as it would have been.
	Bytes int64
}

// Error names the rule, the size and the way to the outputs.
func (e *TooLarge) Error() string {
	return fmt.Sprintf("graph: %s: the result has %d bytes, at most %d are answered: read the output of each node by itself",
		RuleResult, e.Bytes, MaxResultBytes)
}

type tooLargeObject struct {
	Rule    string `json:"rule"`
	Bytes   int64  `json:"bytes"`
	Limit   int64  `json:"limit"`
	Message string `json:"message"`
}

func (e *TooLarge) encode() []byte {
	var o object
	// A struct of numbers and text always has a form in JSON.
	b, _ := json.Marshal(tooLargeObject{RuleResult, e.Bytes, MaxResultBytes, e.Error()})
	o.add(tooLarge, b)
	return o.close()
}

// ParseTooLarge reports whether the result of a run, or of a node that is a subgraph, is the replacement of a
// result that was too large.
func ParseTooLarge(result []byte) (*TooLarge, bool) {
	// The prefix is as SinkOutputs writes it, and rare: what else nodes have answered is not read through.
	if !bytes.HasPrefix(result, []byte(`{"`+tooLarge+`":`)) {
		return nil, false
	}
	var read map[string]tooLargeObject
	isOne := json.Unmarshal(result, &read) == nil && len(read) == 1 &&
		read[tooLarge].Rule == RuleResult && read[tooLarge].Bytes > read[tooLarge].Limit
	if !isOne {
		return nil, false
	}
	return &TooLarge{Bytes: read[tooLarge].Bytes}, true
}
