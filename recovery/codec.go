package recovery

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// The encodings are canonical: a value has one encoding, and decoding accepts nothing else, so two
// replicas that hold equal values hold equal bytes. Integers are varints of minimal length (signed
// ones zigzag), strings and bytes are preceded by their length. The first byte is the version of the
// layout.
const (
	promiseLayout byte = 1
	taskLayout    byte = 1
)

const (
	flagTimer    byte = 1
	flagExternal byte = 2
)

// CorruptError reports that bytes are not the encoding of any value.
type CorruptError struct {
	// The kind of the decoded value: "promise", "task" or "outcome".
	What string
	// Offset is where the first wrong byte, or the end of the input, was met.
	Offset int
	// Detail says what is wrong there.
	Detail string
}

// Error returns the corruption in one line.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("recovery: corrupt %s at byte %d: %s", e.What, e.Offset, e.Detail)
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// reader takes an encoding apart. After the first fault every read returns a zero value.
type reader struct {
	what string
	b    []byte
	off  int
	err  *CorruptError
}

func (r *reader) fail(offset int, detail string) {
	if r.err == nil {
		r.err = &CorruptError{What: r.what, Offset: offset, Detail: detail}
		r.b, r.off = nil, 0
	}
}

func (r *reader) byte() byte {
	if r.off >= len(r.b) {
		r.fail(r.off, "it ends too early")
		return 0
	}
	r.off++
	return r.b[r.off-1]
}

func (r *reader) uvarint() uint64 {
	start := r.off
	v, n := binary.Uvarint(r.b[start:])
	switch {
	case n == 0:
		r.fail(len(r.b), "it ends too early")
		return 0
	case n < 0:
		r.fail(start, "an integer is longer than 64 bits")
		return 0
	case n > 1 && r.b[start+n-1] == 0:
		r.fail(start, "an integer is longer than needed")
		return 0
	}
	r.off += n
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// take returns the next length-preceded bytes, not copied.
func (r *reader) take() []byte {
	start := r.off
	n := r.uvarint()
	if n > uint64(len(r.b)-r.off) {
		r.fail(start, "a length points past the end")
		return nil
	}
	v := r.b[r.off : r.off+int(n)]
	r.off += int(n)
	return v
}

func (r *reader) str() string { return string(r.take()) }

func (r *reader) bytes() []byte { return append([]byte(nil), r.take()...) }

// count returns the length of a list whose elements take at least size bytes each.
func (r *reader) count(size int) int {
	start := r.off
	n := r.uvarint()
	if n > uint64((len(r.b)-r.off)/size) {
		r.fail(start, "a count is larger than what follows")
		return 0
	}
	return int(n)
}

func (r *reader) end() error {
	if r.err == nil && r.off != len(r.b) {
		r.fail(r.off, "there are bytes after the end")
	}
	if r.err != nil {
		return r.err
	}
	return nil
}

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
	b = appendBytes(b, p.ID)
	b = binary.AppendUvarint(b, p.Incarnation)
	b = appendBytes(b, p.Target)
	b = binary.AppendVarint(b, p.TimeoutAt)
	b = binary.AppendVarint(b, p.CreatedAt)
	b = binary.AppendVarint(b, p.SettledAt)
	b = binary.AppendVarint(b, p.DelayUntil)
	b = binary.AppendUvarint(b, uint64(len(p.Tags)))
	for _, t := range p.Tags {
		b = appendBytes(b, t.Key)
		b = appendBytes(b, t.Value)
	}
	b = appendBytes(b, p.Param)
	return appendBytes(b, p.Value)
}

// DecodePromise is the inverse of [AppendPromise]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodePromise(b []byte) (Promise, error) {
	r := &reader{what: "promise", b: b}
	if r.byte() != promiseLayout {
		r.fail(0, "unknown layout")
	}
	var p Promise
	if p.State = PromiseState(r.byte()); !p.State.Valid() {
		r.fail(1, "unknown state")
	}
	flags := r.byte()
	if flags&^(flagTimer|flagExternal) != 0 {
		r.fail(2, "unknown flags")
	}
	p.Timer, p.External = flags&flagTimer != 0, flags&flagExternal != 0
	p.ID = r.str()
	p.Incarnation = r.uvarint()
	p.Target = r.str()
	p.TimeoutAt = r.varint()
	p.CreatedAt = r.varint()
	p.SettledAt = r.varint()
	p.DelayUntil = r.varint()
	if n := r.count(2); n > 0 {
		p.Tags = make([]Tag, n)
		for i := range p.Tags {
			start := r.off
			p.Tags[i] = Tag{Key: r.str(), Value: r.str()}
			if i > 0 && strings.Compare(p.Tags[i-1].Key, p.Tags[i].Key) >= 0 {
				r.fail(start, "the tags are not in ascending order")
			}
		}
	}
	p.Param = r.bytes()
	p.Value = r.bytes()
	if err := r.end(); err != nil {
		return Promise{}, err
	}
	return p, nil
}

// AppendTask appends the canonical encoding of t to b. t.Resumes must be sorted, each id once.
func AppendTask(b []byte, t Task) []byte {
	b = append(b, taskLayout, byte(t.State))
	b = appendBytes(b, t.ID)
	b = binary.AppendUvarint(b, t.Incarnation)
	b = binary.AppendUvarint(b, t.Version)
	b = appendBytes(b, t.PID)
	b = binary.AppendVarint(b, t.TTL)
	b = binary.AppendVarint(b, t.LeaseAt)
	b = binary.AppendVarint(b, t.RetryAt)
	b = appendBytes(b, t.Target)
	b = binary.AppendUvarint(b, uint64(len(t.Resumes)))
	for _, id := range t.Resumes {
		b = appendBytes(b, id)
	}
	return b
}

// DecodeTask is the inverse of [AppendTask]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodeTask(b []byte) (Task, error) {
	r := &reader{what: "task", b: b}
	if r.byte() != taskLayout {
		r.fail(0, "unknown layout")
	}
	var t Task
	if t.State = TaskState(r.byte()); !t.State.Valid() {
		r.fail(1, "unknown state")
	}
	t.ID = r.str()
	t.Incarnation = r.uvarint()
	t.Version = r.uvarint()
	t.PID = r.str()
	t.TTL = r.varint()
	t.LeaseAt = r.varint()
	t.RetryAt = r.varint()
	t.Target = r.str()
	if n := r.count(1); n > 0 {
		t.Resumes = make([]string, n)
		for i := range t.Resumes {
			start := r.off
			t.Resumes[i] = r.str()
			if i > 0 && t.Resumes[i-1] >= t.Resumes[i] {
				r.fail(start, "the resumes are not in ascending order")
			}
		}
	}
	if err := r.end(); err != nil {
		return Task{}, err
	}
	return t, nil
}
