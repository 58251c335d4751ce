package reduction

// AppendOutcome appends the encoding of o to dst: its kind, then the output, the signal or the detail of
// those that have one. o must be one of the eight outcomes, by value, and a signal must have a name; anything
// else cannot be read back.
func AppendOutcome(dst []byte, o Outcome) []byte {
	dst = append(dst, byte(o.Kind()))
	switch o := o.(type) {
	case Succeeded:
		dst = appendBytes(dst, o.Output)
	case SuspendedOn:
		dst = appendBytes(dst, o.Signal)
	case NodeFailed:
		dst = appendBytes(dst, o.Detail)
	}
	return dst
}

// DecodeOutcome is the inverse of [AppendOutcome]; empty payloads come back as nil. The result shares nothing
// with data. The error is a *CorruptError.
func DecodeOutcome(data []byte) (Outcome, error) {
	r := &reader{what: "outcome", data: data}
	o := r.outcome()
	if err := r.end(); err != nil {
		return nil, err
	}
	return o, nil
}

func (r *reader) outcome() Outcome {
	switch kind := OutcomeKind(r.byte()); kind {
	case OutcomeSucceeded:
		return Succeeded{r.bytes()}
	case OutcomeSkipped:
		return Skipped{}
	case OutcomeSuspendedOn:
		o := SuspendedOn{r.text()}
		if o.Signal == "" {
			r.fail(1, "a signal without a name")
		}
		return o
	case OutcomeNodeFailed:
		return NodeFailed{r.bytes()}
	case OutcomeNodeTimedOut:
		return NodeTimedOut{}
	case OutcomeNodeCancelled:
		return NodeCancelled{}
	case OutcomeNodeShutdown:
		return NodeShutdown{}
	case OutcomeNodeRunCancelled:
		return NodeRunCancelled{}
	default:
		r.fail(0, "no outcome: "+kind.String())
		return nil
	}
}
