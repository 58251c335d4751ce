package entity

// AppendMessage appends the canonical encoding of m to b: the layout, the kind, the fields. The position of a
// lock request or withdrawal must lie within its set.
func AppendMessage(b []byte, m Message) []byte {
	return appendMessage(append(b, layout), m)
}

// DecodeMessage is the inverse of [AppendMessage]. The result shares nothing with b. The error is a
// [*CorruptError]. The receiver checks the message's rules on delivery.
func DecodeMessage(b []byte) (Message, error) {
	r := newReader("message", b)
	r.layout()
	m := r.message()
	if err := r.End(); err != nil {
		return nil, err
	}
	return m, nil
}

func appendMessage(b []byte, m Message) []byte {
	return m.encode(append(b, byte(m.Kind())))
}

// message returns nil after a fault.
func (r *reader) message() Message {
	start := r.Offset()
	k := Kind(r.Byte())
	if !r.Failed() && !k.Valid() {
		r.Fail(start, "unknown kind of message")
	}
	if r.Failed() {
		return nil
	}
	return kinds[k].decode(r)
}
