package snapshot

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"perdure/internal/fsync"
)

// keep is how many markers are retained: the newest, and the one before it, which may be open for a
// follower that is being served.
const keep = 2

const markerSuffix = ".marker"

// MissingError reports that a directory which must be there is not.
type MissingError struct{ Dir string }

func (e *MissingError) Error() string { return fmt.Sprintf("snapshot: directory %s is missing", e.Dir) }

// ExistsError reports that a directory which was to be made holds markers already.
type ExistsError struct{ Dir string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("snapshot: directory %s holds markers already", e.Dir)
}

// CorruptError names a damaged marker.
type CorruptError struct {
	File  string
	Group uint32
	Err   error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("snapshot: corrupt: group %d: %s: %v", e.Group, e.File, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// NotFoundError reports that no marker has this id (any more).
type NotFoundError struct {
	Group uint32
	ID    string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("snapshot: group %d has no snapshot %s", e.Group, e.ID)
}

// EmptyError refuses content of no bytes, sent or received: a state is never empty, so something failed
// to be copied. Nothing was stored.
type EmptyError struct {
	Group uint32
	ID    string
}

func (e *EmptyError) Error() string {
	return fmt.Sprintf("snapshot: group %d: snapshot %s has no content", e.Group, e.ID)
}

// Receiver takes the content of one received snapshot. Exactly one of Commit and Abort is called,
// once, last.
type Receiver interface {
	io.Writer
	// Commit makes the content durable and findable by the marker's ID. It may refuse content it cannot
	// use; then no marker is written.
	Commit() error
	// Abort removes what was written.
	Abort() error
}

// Options of Open. Cover, Content and Receive are required.
type Options struct {
	// Group goes into each marker, so that a file of another group is noticed.
	Group uint32
	// FS is the file system, vfs.Default if nil.
	FS vfs.FS
	// Logger may be nil.
	Logger hclog.Logger
	// MustCreate makes the directory if needed and refuses one that holds markers (ExistsError).
	// Without it a missing directory is refused (MissingError).
	MustCreate bool

	// Cover is called before a local marker is written. When it returns nil, the group's state durably
	// covers m.Index (which counts entries the machine never sees) and must say so after a crash. It runs
	// on Raft's snapshot goroutine and may block on disk.
	Cover func(m Marker) error
	// Content opens the content of a marker: to send it, and (for a received one) to restore it. Size must be
	// exact and not 0. It may be newer than the marker.
	Content func(m Marker) (r io.ReadCloser, size int64, err error)
	// Receive prepares a directory for the content of m, named by m.ID. Crashes leave directories without a
	// marker; List shows which ones have one.
	Receive func(m Marker) (Receiver, error)
	// Discard is called when a received marker was retired and its content is no longer needed; may be nil.
	Discard func(m Marker)
}

// Store is the snapshot store of one group. All methods are safe for concurrent use.
type Store struct {
	dir  string
	opts Options
	fs   vfs.FS
	log  hclog.Logger

	mu      sync.Mutex
	markers []Marker // newest first
	seq     uint64   // last one given out
}

var _ raft.SnapshotStore = (*Store)(nil)

// Open reads the markers in dir. A damaged one is refused (*CorruptError): a marker is complete when it gets
// its name, so a crash never damages one, and an older marker would cover too little.
func Open(dir string, opts Options) (*Store, error) {
	if opts.Cover == nil || opts.Content == nil || opts.Receive == nil {
		return nil, errors.New("snapshot: Cover, Content and Receive are required")
	}
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	s := &Store{dir: dir, opts: opts, fs: opts.FS, log: opts.Logger}
	if opts.MustCreate {
		if err := fsync.MakeDir(s.fs, dir); err != nil {
			return nil, err
		}
	}
	names, err := s.fs.List(dir)
	if err != nil {
		if _, statErr := s.fs.Stat(dir); statErr != nil {
			return nil, &MissingError{Dir: dir}
		}
		return nil, err
	}
	for _, name := range names {
		path := s.fs.PathJoin(dir, name)
		if strings.HasSuffix(name, fsync.TmpSuffix) {
			if err := s.fs.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		stem, ok := strings.CutSuffix(name, markerSuffix)
		if !ok {
			continue
		}
		m, err := s.load(path)
		if err == nil && stem != fileStem(m.Seq) {
			err = fmt.Errorf("holds marker %d", m.Seq)
		}
		if err != nil {
			return nil, &CorruptError{File: path, Group: opts.Group, Err: err}
		}
		s.markers = append(s.markers, m)
		s.seq = max(s.seq, m.Seq)
	}
	if opts.MustCreate && len(s.markers) > 0 {
		return nil, &ExistsError{Dir: dir}
	}
	s.sort()
	return s, nil
}

func fileStem(seq uint64) string {
	return strings.Repeat("0", 16-len(strconv.FormatUint(seq, 16))) + strconv.FormatUint(seq, 16)
}

func (s *Store) load(path string) (Marker, error) {
	f, err := s.fs.Open(path)
	if err != nil {
		return Marker{}, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxMarker+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return Marker{}, err
	}
	return decodeMarker(s.opts.Group, b)
}

// sort orders newest first. The caller holds mu.
func (s *Store) sort() {
	sort.Slice(s.markers, func(i, j int) bool {
		a, b := &s.markers[i], &s.markers[j]
		if a.Index != b.Index {
			return a.Index > b.Index
		}
		return a.Seq > b.Seq
	})
}

// Markers returns the durable markers, newest first; at most two.
func (s *Store) Markers() []Marker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Marker(nil), s.markers...)
}

// List returns the durable snapshots for Raft, highest index first.
func (s *Store) List() ([]*raft.SnapshotMeta, error) {
	ms := s.Markers()
	out := make([]*raft.SnapshotMeta, len(ms))
	for i := range ms {
		out[i] = &ms[i].SnapshotMeta
	}
	return out, nil
}

// Open asks the caller for the content of a snapshot. The reader can be given to MarkerOf.
func (s *Store) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	for _, m := range s.Markers() {
		if m.ID != id {
			continue
		}
		r, size, err := s.opts.Content(m)
		if err != nil {
			return nil, nil, fmt.Errorf("snapshot: group %d: content of %s: %w", s.opts.Group, id, err)
		}
		if size <= 0 {
			return nil, nil, errors.Join(&EmptyError{Group: s.opts.Group, ID: id}, r.Close())
		}
		meta := m.SnapshotMeta
		meta.Size = size
		return &meta, &content{ReadCloser: r, marker: m}, nil
	}
	return nil, nil, &NotFoundError{Group: s.opts.Group, ID: id}
}

// content is the reader that Open returns. Only its first Close counts: both the state machine and Raft close
// a reader after a restore.
type content struct {
	io.ReadCloser
	marker Marker
	once   sync.Once
	err    error
}

// Close implements io.Closer.
func (c *content) Close() error {
	c.once.Do(func() { c.err = c.ReadCloser.Close() })
	return c.err
}

// MarkerOf returns the marker of a reader that came from Open, also through the wrapper that Raft puts around
// it before it calls Restore; false for any other reader.
func MarkerOf(r io.ReadCloser) (Marker, bool) {
	for {
		switch t := r.(type) {
		case *content:
			return t.marker, true
		case raft.ReadCloserWrapper:
			r = t.WrappedReadCloser()
		default:
			return Marker{}, false
		}
	}
}

// Create begins a snapshot. Nothing is on disk before the sink's Close.
func (s *Store) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	s.seq++
	seq := s.seq
	s.mu.Unlock()
	return &sink{store: s, marker: Marker{
		Seq:    seq,
		Origin: Local,
		SnapshotMeta: raft.SnapshotMeta{
			Version:            version,
			ID:                 markerID(index, term, seq),
			Index:              index,
			Term:               term,
			Configuration:      configuration.Clone(),
			ConfigurationIndex: configurationIndex,
		},
	}}, nil
}

// write makes a marker durable, lists it, and retires the oldest.
func (s *Store) write(m Marker) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.fs.PathJoin(s.dir, fileStem(m.Seq)+markerSuffix)
	if err := fsync.WriteFile(s.fs, path, encodeMarker(s.opts.Group, &m)); err != nil {
		// The name may be on disk or not. Both are sound after a crash: the marker's state is durable, and
		// Raft, which gets the error, deletes nothing from its log.
		_ = s.fs.Remove(path)
		return err
	}
	s.markers = append(s.markers, m)
	s.sort()
	for len(s.markers) > keep {
		old := s.markers[len(s.markers)-1]
		if err := s.fs.Remove(s.fs.PathJoin(s.dir, fileStem(old.Seq)+markerSuffix)); err != nil {
			s.log.Warn("cannot delete old marker", "event", "marker_delete_failed", "group", s.opts.Group, "id", old.ID, "error", err)
		}
		s.markers = s.markers[:len(s.markers)-1]
		if old.Origin == Received && s.opts.Discard != nil {
			s.opts.Discard(old)
		}
	}
	return nil
}
