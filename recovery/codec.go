package recovery

import (
	"encoding/binary"
	"strings"

	"perdure/internal/canonical"
)

// The encodings are those of package canonical. The first byte is the version of the layout.
const (
	promiseLayout byte = 1
	taskLayout    byte = 1
)

const (
	flagTimer    byte = 1
	flagExternal byte = 2
)

// CorruptError reports that bytes are not the encoding of any value.
type CorruptError = canonical.CorruptError

// AppendPromise appends the canonical encoding of p to b. p.Tags must be sorted by key, each key once.
func AppendPromise(b []byte, p Promise) []byte {
	b = append(b, promiseLayout, byte(p.State))
	var flags byte
	if p.Timer {
		flags |= flagTimer
	}
	if p.External {
		flags |= flagExternal
	}
	b = append(b, flags)
	b = canonical.AppendBytes(b, p.ID)
	b = binary.AppendUvarint(b, p.Incarnation)
	b = canonical.AppendBytes(b, p.Target)
	b = binary.AppendVarint(b, p.TimeoutAt)
	b = binary.AppendVarint(b, p.CreatedAt)
	b = binary.AppendVarint(b, p.SettledAt)
	b = binary.AppendVarint(b, p.DelayUntil)
	b = binary.AppendUvarint(b, uint64(len(p.Tags)))
	for _, t := range p.Tags {
		b = canonical.AppendBytes(b, t.Key)
		b = canonical.AppendBytes(b, t.Value)
	}
	b = canonical.AppendBytes(b, p.Param)
	return canonical.AppendBytes(b, p.Value)
}

// DecodePromise is the inverse of [AppendPromise]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodePromise(b []byte) (Promise, error) {
	r := canonical.NewReader("recovery", "promise", b)
	if r.Byte() != promiseLayout {
		r.Fail(0, "unknown layout")
	}
	var p Promise
	if p.State = PromiseState(r.Byte()); !p.State.Valid() {
		r.Fail(1, "unknown state")
	}
	flags := r.Byte()
	if flags&^(flagTimer|flagExternal) != 0 {
		r.Fail(2, "unknown flags")
	}
	p.Timer, p.External = flags&flagTimer != 0, flags&flagExternal != 0
	p.ID = r.Text()
	p.Incarnation = r.Uvarint()
	p.Target = r.Text()
	p.TimeoutAt = r.Varint()
	p.CreatedAt = r.Varint()
	p.SettledAt = r.Varint()
	p.DelayUntil = r.Varint()
	if n := r.Count(2); n > 0 {
		p.Tags = make([]Tag, n)
		for i := range p.Tags {
			start := r.Offset()
			p.Tags[i] = Tag{Key: r.Text(), Value: r.Text()}
			if i > 0 && strings.Compare(p.Tags[i-1].Key, p.Tags[i].Key) >= 0 {
				r.Fail(start, "the tags are not in ascending order")
			}
		}
	}
	p.Param = r.Bytes()
	p.Value = r.Bytes()
	if err := r.End(); err != nil {
		return Promise{}, err
	}
	return p, nil
}

// AppendTask appends the canonical encoding of t to b. t.Resumes must be sorted, each id once.
func AppendTask(b []byte, t Task) []byte {
	b = append(b, taskLayout, byte(t.State))
	b = canonical.AppendBytes(b, t.ID)
	b = binary.AppendUvarint(b, t.Incarnation)
	b = binary.AppendUvarint(b, t.Version)
	b = canonical.AppendBytes(b, t.PID)
	b = binary.AppendVarint(b, t.TTL)
	b = binary.AppendVarint(b, t.LeaseAt)
	b = binary.AppendVarint(b, t.RetryAt)
	b = canonical.AppendBytes(b, t.Target)
	b = binary.AppendUvarint(b, uint64(len(t.Resumes)))
	for _, id := range t.Resumes {
		b = canonical.AppendBytes(b, id)
	}
	return b
}

// DecodeTask is the inverse of [AppendTask]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodeTask(b []byte) (Task, error) {
	r := canonical.NewReader("recovery", "task", b)
	if r.Byte() != taskLayout {
		r.Fail(0, "unknown layout")
	}
	var t Task
	if t.State = TaskState(r.Byte()); !t.State.Valid() {
		r.Fail(1, "unknown state")
	}
	t.ID = r.Text()
	t.Incarnation = r.Uvarint()
	t.Version = r.Uvarint()
	t.PID = r.Text()
	t.TTL = r.Varint()
	t.LeaseAt = r.Varint()
	t.RetryAt = r.Varint()
	t.Target = r.Text()
	if n := r.Count(1); n > 0 {
		t.Resumes = make([]string, n)
		for i := range t.Resumes {
			start := r.Offset()
			t.Resumes[i] = r.Text()
			if i > 0 && t.Resumes[i-1] >= t.Resumes[i] {
				r.Fail(start, "the resumes are not in ascending order")
			}
		}
	}
	if err := r.End(); err != nil {
		return Task{}, err
	}
	return t, nil
}
