package recovery

import (
	"slices"

	"perdure/internal/canonical"
)

// Outcome is how a finished operation ended: with a value, or with a failure.
type Outcome struct {
	// Data is the value, opaque; it means something only if Failure is nil. Empty and nil are the same
	// value.
	Data []byte
	// Failure is what went wrong, nil if nothing did.
	Failure *Failure
	// Form and Headers are how a client of the protocol gave Data. An outcome with a failure has neither.
	Form DataForm
	// Headers are sorted by key, each key once.
	Headers []Tag
}

// DataForm says what data is to the clients of the protocol, whose data is text: by convention bytes in base64. The
// numbers are part of the stored encoding and never change.
type DataForm uint8

// The forms of data.
const (
	// DataBytes: bytes; none if empty.
	DataBytes DataForm = 0
	// DataText: text that is not bytes in base64.
	DataText DataForm = 1
	// DataEmpty: data that is there, and empty.
	DataEmpty DataForm = 2
)

// Fits reports whether data may have the form: it is known, and only DataEmpty's data is empty besides that of DataBytes.
func (f DataForm) Fits(data []byte) bool {
	return f == DataBytes || f == DataText && len(data) > 0 || f == DataEmpty && len(data) == 0
}

// Failure is an error that crosses processes and languages.
type Failure struct {
	// Type is a name that programs compare, Message is for people.
	Type, Message string
	// Details is opaque, often a cause in the form of the language that raised it.
	Details []byte
	// NonRetryable says that trying again cannot help.
	NonRetryable bool
}

// The first byte of an encoded outcome. A later layout gets a new number.
const (
	outcomeValue   byte = 0
	outcomeFailure byte = 1
	// outcomeFormed is a value with a form or headers.
	outcomeFormed byte = 2
)

// AppendOutcome appends the canonical encoding of o to b: 0 and the value, 1 and the failure, or 2, form, headers and the
// value.
func AppendOutcome(b []byte, o Outcome) []byte {
	if o.Failure == nil && (o.Form != DataBytes || len(o.Headers) > 0) {
		b = append(b, outcomeFormed, byte(o.Form))
		return append(AppendTags(b, o.Headers), o.Data...)
	}
	if o.Failure == nil {
		return append(append(slices.Grow(b, 1+len(o.Data)), outcomeValue), o.Data...)
	}
	b = append(b, outcomeFailure)
	b = canonical.AppendBytes(b, o.Failure.Type)
	b = canonical.AppendBytes(b, o.Failure.Message)
	b = canonical.AppendBytes(b, o.Failure.Details)
	if o.Failure.NonRetryable {
		return append(b, 1)
	}
	return append(b, 0)
}

// DecodeOutcome is the inverse of [AppendOutcome]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodeOutcome(b []byte) (Outcome, error) {
	r := canonical.NewReader("recovery", "outcome", b)
	switch r.Byte() {
	case outcomeValue:
		if !r.Failed() {
			return Outcome{Data: append([]byte(nil), b[1:]...)}, nil
		}
	case outcomeFailure:
		f := &Failure{Type: r.Text(), Message: r.Text(), Details: r.Bytes()}
		at := r.Offset()
		last := r.Byte()
		if last > 1 {
			r.Fail(at, "a boolean is neither 0 nor 1")
		}
		f.NonRetryable = last == 1
		if err := r.End(); err != nil {
			return Outcome{}, err
		}
		return Outcome{Failure: f}, nil
	case outcomeFormed:
		o := Outcome{Form: DataForm(r.Byte())}
		o.Headers = readTags(&r)
		if at := r.Offset(); !r.Failed() {
			o.Data = append([]byte(nil), b[at:]...)
			if o.Form.Fits(o.Data) && (o.Form != DataBytes || len(o.Headers) > 0) {
				return o, nil
			}
		}
		r.Fail(1, "the form does not fit the data")
	default:
		r.Fail(0, "unknown kind")
	}
	return Outcome{}, r.End()
}
