package resonate

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// What an answer is named after if the request does not say.
const (
	unknownKind   = "unknown"
	unknownCorrID = "0"
)

// envelope is a request whose form is checked: its data is an object, whose fields the operation checks.
type envelope struct {
	kind   string
	corrID string
	auth   string
	data   members
	// debugTime is the time at which a server in debug mode performs the request, in Unix milliseconds; nil: not given.
	debugTime *int64
}

// response is an answer: data is an object for 200 and 300, a sentence otherwise.
type response struct {
	Kind string       `json:"kind"`
	Head responseHead `json:"head"`
	Data any          `json:"data"`
}

type responseHead struct {
	CorrID  string `json:"corrId"`
	Status  int    `json:"status"`
	Version string `json:"version"`
}

// empty is the data of an answer that says nothing but its status.
type empty struct{}

func answer(e envelope, status int, data any) response {
	return response{Kind: e.kind, Head: responseHead{CorrID: e.corrID, Status: status, Version: Version}, Data: data}
}

func refused(e envelope, r *Refusal) response { return answer(e, r.Status, r.Message) }

// encode is the answer's JSON, without the escapes that HTML needs.
func (r response) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("cannot encode an answer to %s: %w", r.Kind, err)
	}
	return b.Bytes(), nil
}

// readEnvelope checks the form of a request. The envelope that it returns with a refusal has the kind and the corrId
// that could be read.
func readEnvelope(body []byte) (envelope, *Refusal) {
	e := envelope{kind: unknownKind, corrID: unknownCorrID}
	if err := checkText(body); err != nil {
		return e, bad("%s", err.Error())
	}
	top := newObject("request", bytes.TrimSpace(body))
	if top.err != nil {
		return e, top.err
	}
	var kind, corrID string
	if json.Unmarshal(top.fields.get("kind"), &kind) == nil && kind != "" {
		e.kind = kind
	}
	head := newObject("head", top.fields.get("head"))
	if json.Unmarshal(head.fields.get("corrId"), &corrID) == nil && head.has("corrId") {
		e.corrID = corrID
	}
	if top.text("kind"); top.err == nil && kind == "" {
		top.fail("kind", "a non-empty string")
	}
	if top.err != nil {
		return e, top.err
	}
	head.text("corrId")
	version := head.text("version")
	e.auth = head.optionalText("auth")
	head.optionalText("resonate:origin")
	if head.has("resonate:debug_time") {
		at := head.number("resonate:debug_time", 0, false)
		e.debugTime = &at
	}
	switch {
	case head.err != nil:
		return e, head.err
	case version != Version:
		return e, bad("version %q is not supported, must be %s", cut(version), Version)
	}
	data := newObject("data", top.fields.get("data"))
	e.data = data.fields
	return e, data.err
}

// nested reads an envelope within a request's data: its head needs no more than to be an object, and only its kind and
// its data matter. Without a corrId of its own it has the outer one's.
func nested(outer envelope, what string, raw json.RawMessage) (envelope, *Refusal) {
	e := envelope{corrID: outer.corrID}
	o := newObject(what, raw)
	e.kind = o.text("kind")
	if o.has("head") {
		head := newObject(what+".head", o.fields.get("head"))
		if head.has("corrId") {
			e.corrID = head.text("corrId")
		}
		if o.err == nil {
			o.err = head.err
		}
	}
	data := newObject(what+".data", o.fields.get("data"))
	if e.data = data.fields; o.err == nil {
		o.err = data.err
	}
	return e, o.err
}

// cut bounds a caller's text in an answer.
func cut(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
