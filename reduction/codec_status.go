package reduction

// AppendStatus appends the encoding of s to dst: its kind and, if it waits, its signal. s must be valid;
// anything else cannot be read back.
func AppendStatus(dst []byte, s Status) []byte {
	dst = append(dst, byte(s.Kind))
	if s.Kind == StatusWaiting {
		dst = appendBytes(dst, s.Signal)
	}
	return dst
}

// DecodeStatus is the inverse of [AppendStatus]. The error is a *CorruptError.
func DecodeStatus(data []byte) (Status, error) {
	r := &reader{what: "status", data: data}
	s := r.status()
	if err := r.end(); err != nil {
		return Status{}, err
	}
	return s, nil
}

func (r *reader) status() Status {
	start := r.off
	s := Status{Kind: StatusKind(r.byte())}
	if s.Kind == StatusWaiting {
		s.Signal = r.text()
	}
	if !s.Valid() {
		r.fail(start, "no status: "+s.String())
	}
	return s
}
