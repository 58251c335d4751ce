package engine

import "perdure/internal/mutation"

// memoryBugs break what the machine keeps in memory of its state.
var memoryBugs = []mutation.Bug{
	{
		File: "fsm/machine/reads.go", Rule: "read cache: what is removed is absent",
		From: `c.keep(w.key, cachedValue{})`, To: `_ = w.removed`, Tests: "TestReadCacheAnswersAsBelow",
	},
	{
		File: "fsm/machine/reads.go", Rule: "read cache: what is overwritten is not answered",
		From: `c.keep(w.key, cachedValue{value: bytes.Clone(w.content()), present: true, size: len(w.value)})`, To: `_ = bytes.Clone(w.value)`, Tests: "TestReadCacheAnswersAsBelow",
	},
	{
		File: "fsm/machine/reads.go", Rule: "read cache: a value too large for it replaces the cached one",
		From: `delete(c.young, string(key))`, To: `_ = c.young`, Tests: "TestReadCacheAnswersAsBelow",
	},
	{
		File: "fsm/machine/reads.go", Rule: "read cache: its bytes are bounded",
		From: `c.bytes > c.max {`, To: `c.bytes > 2*c.max {`, Tests: "TestReadCacheAnswersAsBelow",
	},
	{
		File: "fsm/machine/layer.go", Rule: "decoded objects: a write replaces the former object",
		From: `w.value, w.object, w.removed = x.value, x.object, x.removed`, To: `w.value, w.removed = x.value, x.removed`, Tests: "TestReplicasAgree",
	},
	{
		File: "fsm/machine/layer.go", Rule: "layer: a header is encoded as it was when it was put",
		From: `*c = *h`, To: `c = h`, Tests: "TestLayerEncodesHeadersLate",
	},
	{
		File: "fsm/machine/layer_index.go", Rule: "layer: a fresh key that was removed is absent",
		From: `s.at != 0 && !t.log[s.at-1].void {`, To: `s.at != 0 {`, Tests: "TestLayerIsTheStateWithItsWrites",
	},
	{
		File: "fsm/machine/layer_index.go", Rule: "layer: a table that grows keeps every write",
		From: `for t.slots[i].at != 0 {`, To: `for false {`, Tests: "TestLayerGrows",
	},
	{
		File: "fsm/machine/layer_index.go", Rule: "layer: two keys with one tag are two keys",
		From: `s.tag == tag && bytes.Equal(t.log[s.at-1].key, key)`, To: `s.tag == tag`, Tests: "TestLayerGrows",
	},
	{
		File: "fsm/machine/layer_index.go", Rule: "layer: a scan sees the writes since the scan before",
		From: `f.writes[at] = w`, To: `_ = at`, Tests: "TestLayerIsTheStateWithItsWrites",
	},
	{
		File: "fsm/machine/machine.go", Rule: "read cache: it learns of each write",
		From: `m.reads.written(w)`, To: `_ = w.value`, Tests: "TestReplicasAgree",
	},
	{
		File: "fsm/view.go", Rule: "ranges: the key behind one is not in it",
		From: "bytes.Compare(it.Key(), r.Upper) < 0; valid = it.Next()", To: "bytes.Compare(it.Key(), r.Upper) <= 0; valid = it.Next()", Tests: "TestScanRanges",
	},
	{
		File: "fsm/view.go", Rule: "ranges: one that is far away is sought",
		From: "valid = it.SeekGE(r.Lower)", To: "valid = it.Next()", Tests: "TestScanRanges",
	},
	{
		File: "fsm/decode.go", Rule: "decoder: no field of a leader's entry is left to proto",
		From: "case 4<<3 | isNumber:\n\t\t\te.ClientRetryMs", To: "case 15<<3 | isNumber:\n\t\t\te.ClientRetryMs", Pkg: "fsm", Tests: "TestDecodeKnowsEveryFieldOfAnEntry",
	},
	{
		File: "fsm/decode.go", Rule: "decoder: a text that is not UTF-8 is left to proto",
		From: "if !utf8.Valid(b) {\n		r.ok = false\n		return", To: "if len(b) == 1 && !utf8.Valid(b) {\n		r.ok = false\n		return", Pkg: "fsm", Tests: "TestDecodeAsProto", Long: true,
	},
	{
		File: "fsm/decode.go", Rule: "decoder: an edge that is not UTF-8 is left to proto",
		From: "if !utf8.Valid(b) {\n		r.ok = false\n	}", To: "if len(b) == 1 && !utf8.Valid(b) {\n		r.ok = false\n	}", Pkg: "fsm", Tests: "TestDecodeSharesTheEdgesOfAGraph",
	},
	{
		File: "fsm/decode.go", Rule: "decoder: messages that occur twice are merged",
		From: "		if m.Kind != nil {\n			return false\n		}", To: "", Pkg: "fsm", Tests: "TestDecodeAsProto", Long: true,
	},
	{
		File: "fsm/decode.go", Rule: "decoder: the next entry overwrites none before it",
		From: `d.texts = d.texts[copy(out, b):]`, To: `copy(out, b)`, Pkg: "fsm", Tests: "TestDecodeKeepsNothingTwice",
	},
	{
		File: "fsm/machine/presence.go", Rule: "presence: a key that is put is counted",
		From: `case !w.removed && !existed:`, To: `case w.removed && !existed:`, Tests: "TestEmptySetsAreEmpty",
	},
	{
		File: "fsm/machine/presence.go", Rule: "presence: a full count stays",
		From: `0 < *n && *n < 255`, To: `0 < *n`, Tests: "TestFullCountStays",
	},
}
