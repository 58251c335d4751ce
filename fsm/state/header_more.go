package state

// HeaderMore holds the fields of a header from LevelFunctions on. They are stored as pairs of a tag and a value, in the
// order of the tags; a field without a value is left out. Tags are never reused.
type HeaderMore struct {
	// CancelReason is the reason that the caller of the cancel gave.
	CancelReason string
	// CleanupMS is how long the clean-up of the execution may take, if it is cancelled; 0: it gets no clean-up.
	CleanupMS int64
	// CleanupChild is the child number of the clean-up that was started; 0: none was.
	CleanupChild uint32
}

// The tags of HeaderMore's fields.
const (
	tagCancelReason = 1 + iota
	tagCleanupMS
	tagCleanupChild
)

func (m *HeaderMore) encode(e *encoder) {
	if m.CancelReason != "" {
		e.u64(tagCancelReason)
		e.str(m.CancelReason)
	}
	if m.CleanupMS != 0 {
		e.u64(tagCleanupMS)
		e.i64(m.CleanupMS)
	}
	if m.CleanupChild != 0 {
		e.u64(tagCleanupChild)
		e.u64(uint64(m.CleanupChild))
	}
}

func (m *HeaderMore) decode(d *decoder) {
	last := uint64(0)
	for len(d.b) > 0 && d.err == nil {
		tag := d.u64()
		if tag <= last {
			d.fail("the fields of a header are not in order")
			return
		}
		last = tag
		empty := false
		switch tag {
		case tagCancelReason:
			m.CancelReason = d.str()
			empty = m.CancelReason == ""
		case tagCleanupMS:
			m.CleanupMS = d.i64()
			empty = m.CleanupMS == 0
		case tagCleanupChild:
			m.CleanupChild = d.u32()
			empty = m.CleanupChild == 0
		default:
			d.fail("a field of a header that this program does not know")
		}
		if empty && d.err == nil {
			d.fail("a field of a header without a value")
		}
	}
}
