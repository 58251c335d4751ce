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
	// releasedLayout is that of a task with Releases.
	releasedLayout byte = 2
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
	b = AppendTags(b, p.Tags)
	b = canonical.AppendBytes(b, p.Param)
	return canonical.AppendBytes(b, p.Value)
}

// AppendTags appends the canonical encoding of tags, which must be sorted by key, each key once.
func AppendTags(b []byte, tags []Tag) []byte {
	b = binary.AppendUvarint(b, uint64(len(tags)))
	for _, t := range tags {
		b = canonical.AppendBytes(b, t.Key)
		b = canonical.AppendBytes(b, t.Value)
	}
	return b
}

// readTags is the inverse of AppendTags.
func readTags(r *canonical.Reader) []Tag {
	n := r.Count(2)
	if n == 0 {
		return nil
	}
	tags := make([]Tag, n)
	for i := range tags {
		start := r.Offset()
		tags[i] = Tag{Key: r.Text(), Value: r.Text()}
		if i > 0 && strings.Compare(tags[i-1].Key, tags[i].Key) >= 0 {
			r.Fail(start, "the tags are not in ascending order")
		}
	}
	return tags
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
	p.Tags = readTags(&r)
	p.Param = r.Bytes()
	p.Value = r.Bytes()
	if err := r.End(); err != nil {
		return Promise{}, err
	}
	return p, nil
}

// DecodeForm reads a form of data followed by headers as [AppendTags] encodes them. The error is a [*CorruptError].
func DecodeForm(b []byte) (DataForm, []Tag, error) {
	r := canonical.NewReader("recovery", "form", b)
	form := DataForm(r.Byte())
	if form > DataEmpty {
		r.Fail(0, "unknown form")
	}
	headers := readTags(&r)
	if err := r.End(); err != nil {
		return 0, nil, err
	}
	return form, headers, nil
}

// AppendTask appends the canonical encoding of t to b. t.Resumes must be sorted, each id once.
func AppendTask(b []byte, t Task) []byte {
	layout := taskLayout
	if t.Releases > 0 {
		layout = releasedLayout
	}
	b = append(b, layout, byte(t.State))
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
	if layout == releasedLayout {
		b = binary.AppendUvarint(b, t.Releases)
		b = binary.AppendVarint(b, t.ReleasedAt)
	}
	return b
}

// DecodeTask is the inverse of [AppendTask]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodeTask(b []byte) (Task, error) {
	r := canonical.NewReader("recovery", "task", b)
	layout := r.Byte()
	if layout != taskLayout && layout != releasedLayout {
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
	if layout == releasedLayout {
		start := r.Offset()
		if t.Releases, t.ReleasedAt = r.Uvarint(), r.Varint(); t.Releases == 0 {
			r.Fail(start, "no releases in the layout that counts them")
		}
	}
	if err := r.End(); err != nil {
		return Task{}, err
	}
	return t, nil
}
