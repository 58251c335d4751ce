package state

// HeaderMore holds the fields of a header from LevelFunctions on. They are stored as pairs of a tag and a value, in the
// order of the tags; a field without a value is left out. Tags are never reused.
type HeaderMore struct {
	// CancelReason is the reason that the caller of the cancel gave.
	CancelReason string
	// CleanupMS is the timeout of the clean-up of a cancelled execution, in milliseconds; 0: no clean-up.
	CleanupMS int64
	// CleanupChild is the child number of the started clean-up; 0: none has started.
	CleanupChild uint32
	// ClosePolicy is what becomes of a child in its parent's partition when its parent ends first.
	ClosePolicy ClosePolicy
	// ChildrenAt is the deadline to reach the next open children of a cancelled or ended execution,
	// ChildrenFrom the child number to go on with; 0 when there are none.
	ChildrenAt   int64
	ChildrenFrom uint32
	// Terminated: the execution was terminated, not cancelled.
	Terminated bool
	// Retry says how a failed attempt of a child is repeated. FailedAttempts counts those that were, RetryAt
	// is when the present one begins; 0 for the first.
	Retry          Retry
	FailedAttempts uint32
	RetryAt        int64
	// BegunAttempt is the attempt that the caller in another partition knows to have begun; 0: none.
	BegunAttempt uint32
	// HeartbeatAt is the time of the last stored heartbeat of a step; 0: none is stored.
	HeartbeatAt int64
	// PurgeAt is the deadline to delete the next part of what is below a purged execution, Purge where that part begins; 0
	// and empty for an execution that is not being purged.
	PurgeAt int64
	Purge   string
	// Leaf: each event of the journal is a record, which has no rows beside its entry, and the journal has all of them. Of an
	// execution that began below LevelLeaves, or again, that is not known.
	Leaf bool
	// Inline has the task, the journal and perhaps the promise of an ended execution that have no rows of their own; see InlineTask,
	// InlineEntries and InlinePromise.
	Inline string
}

// Retry is how a failed attempt is repeated. The zero Retry: never.
type Retry struct {
	// Attempts counts the first attempt, too.
	Attempts uint32
	// The pause after the first attempt is InitialMS; each later one is FactorPercent of the one before, up to MaxMS.
	InitialMS, MaxMS int64
	FactorPercent    uint32
	// JitterPercent is the part of each pause that is drawn.
	JitterPercent uint32
}

// Pause is the pause after the n-th attempt (from 1), in milliseconds, without its jitter: at least 1.
func (r Retry) Pause(n uint32) int64 {
	orElse := func(given, otherwise int64) int64 {
		if given <= 0 {
			return otherwise
		}
		return min(given, 1<<40)
	}
	most := orElse(r.MaxMS, 60_000)
	pause := min(orElse(r.InitialMS, 1000), most)
	factor := min(orElse(int64(r.FactorPercent), 200), 100_000)
	for i := uint32(1); i < n && pause < most; i++ {
		next := min(pause*factor/100, most)
		if next == pause {
			break
		}
		pause = next
	}
	return max(pause, 1)
}

// The tags of HeaderMore's fields.
const (
	tagCancelReason = 1 + iota
	tagCleanupMS
	tagCleanupChild
	tagClosePolicy
	tagChildrenAt
	tagChildrenFrom
	tagTerminated

	tagRetry          = 20
	tagFailedAttempts = 21
	tagRetryAt        = 22
	tagBegunAttempt   = 23
	tagHeartbeatAt    = 24

	tagPurgeAt = 40
	tagPurge   = 41
	tagLeaf    = 42
	tagInline  = 43
	tagOpen    = 44
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
	if m.ClosePolicy != 0 {
		e.u64(tagClosePolicy)
		e.u64(uint64(m.ClosePolicy))
	}
	if m.ChildrenAt != 0 {
		e.u64(tagChildrenAt)
		e.i64(m.ChildrenAt)
	}
	if m.ChildrenFrom != 0 {
		e.u64(tagChildrenFrom)
		e.u64(uint64(m.ChildrenFrom))
	}
	if m.Terminated {
		e.u64(tagTerminated)
		e.u64(1)
	}
	if r := m.Retry; r != (Retry{}) {
		e.u64(tagRetry)
		e.u64(uint64(r.Attempts))
		e.i64(r.InitialMS)
		e.i64(r.MaxMS)
		e.u64(uint64(r.FactorPercent))
		e.u64(uint64(r.JitterPercent))
	}
	if m.FailedAttempts != 0 {
		e.u64(tagFailedAttempts)
		e.u64(uint64(m.FailedAttempts))
	}
	if m.RetryAt != 0 {
		e.u64(tagRetryAt)
		e.i64(m.RetryAt)
	}
	if m.BegunAttempt != 0 {
		e.u64(tagBegunAttempt)
		e.u64(uint64(m.BegunAttempt))
	}
	if m.HeartbeatAt != 0 {
		e.u64(tagHeartbeatAt)
		e.i64(m.HeartbeatAt)
	}
	if m.PurgeAt != 0 {
		e.u64(tagPurgeAt)
		e.i64(m.PurgeAt)
	}
	if m.Purge != "" {
		e.u64(tagPurge)
		e.str(m.Purge)
	}
	if m.Leaf {
		e.u64(tagLeaf)
		e.u64(1)
	}
	if m.Inline != "" {
		e.u64(tagInline)
		e.str(m.Inline)
	}
}

// decode reads the fields, and the header's Open, which follows them.
func (m *HeaderMore) decode(d *decoder, open *[]byte) {
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
		case tagClosePolicy:
			m.ClosePolicy = ClosePolicy(d.u8())
			empty = m.ClosePolicy == 0
		case tagChildrenAt:
			m.ChildrenAt = d.i64()
			empty = m.ChildrenAt == 0
		case tagChildrenFrom:
			m.ChildrenFrom = d.u32()
			empty = m.ChildrenFrom == 0
		case tagTerminated:
			m.Terminated = true
			if d.u64() != 1 && d.err == nil {
				d.fail("a termination that is neither true nor false")
			}
		case tagRetry:
			m.Retry = Retry{Attempts: d.u32(), InitialMS: d.i64(), MaxMS: d.i64(), FactorPercent: d.u32(), JitterPercent: d.u32()}
			empty = m.Retry == (Retry{})
		case tagFailedAttempts:
			m.FailedAttempts = d.u32()
			empty = m.FailedAttempts == 0
		case tagRetryAt:
			m.RetryAt = d.i64()
			empty = m.RetryAt == 0
		case tagBegunAttempt:
			m.BegunAttempt = d.u32()
			empty = m.BegunAttempt == 0
		case tagHeartbeatAt:
			m.HeartbeatAt = d.i64()
			empty = m.HeartbeatAt == 0
		case tagPurgeAt:
			m.PurgeAt = d.i64()
			empty = m.PurgeAt == 0
		case tagPurge:
			m.Purge = d.str()
			empty = m.Purge == ""
		case tagLeaf:
			m.Leaf = true
			if d.u64() != 1 && d.err == nil {
				d.fail("a leaf that is neither true nor false")
			}
		case tagInline:
			m.Inline = d.str()
			empty = m.Inline == ""
		case tagOpen:
			*open = d.bytes()
			empty = len(*open) == 0
		default:
			d.fail("a field of a header that this program does not know")
		}
		if empty && d.err == nil {
			d.fail("a field of a header without a value")
		}
	}
}
