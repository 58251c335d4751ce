package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	// Format is the newest version of the manifest. A manifest has the oldest one that can express it:
	//
	//	1  the files of each state
	//	2  and the deltas that follow them
	Format = 2
	// partialFormat is the version of a partial.
	partialFormat = 1
)

// nameLayout is the form of a backup's name: the time of its creation, in UTC.
const nameLayout = "20060102T150405Z"

// maxManifest bounds a manifest, and a partial, that is read into memory.
const maxManifest = 256 << 20

const (
	filesPrefix   = "files/"
	backupsPrefix = "backups/"
	partialPrefix = "partial/"
	jsonSuffix    = ".json"
)

// Manifest says what a backup consists of.
type Manifest struct {
	Format int `json:"format"`
	// Name is the time of creation as 20060102T150405Z.
	Name string `json:"name"`
	// Cluster is the id of the cluster that was copied.
	Cluster    string    `json:"cluster"`
	Cut        uint64    `json:"cut"`
	Partitions uint32    `json:"partitions"`
	Level      uint64    `json:"level"`
	Created    time.Time `json:"created"`
	// States has one state of each partition, in their order.
	States []State `json:"states"`
	// SHA256 is the hash of the manifest's encoding without this field.
	SHA256 string `json:"sha256"`
}

// State is one partition's checkpoint.
type State struct {
	Partition uint32 `json:"partition"`
	// Index is the last applied index of the partition's log.
	Index uint64 `json:"index"`
	// Node is the id of the node whose replica was copied.
	Node string `json:"node"`
	// Files are in the order of their names.
	Files []File `json:"files"`
	// Deltas make the state that Files are into this one, in their order.
	Deltas []Delta `json:"deltas,omitempty"`
}

// Delta is what leads from a partition's state at one index to that at another: a table of Pebble.
type Delta struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	File
}

// all are the state's files, those of its deltas last.
func (s State) all() []File {
	out := slices.Clone(s.Files)
	for _, d := range s.Deltas {
		out = append(out, d.File)
	}
	return out
}

// File is one file of a checkpoint.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Object is the name of the file in the store.
func (f File) Object() string { return filesPrefix + f.SHA256 }

// Bytes is the size of all states; a file that several have counts each time.
func (m *Manifest) Bytes() (n int64) {
	for _, s := range m.States {
		for _, f := range s.all() {
			n += f.Size
		}
	}
	return n
}

// format is the oldest format that can express the states.
func format(states []State) int {
	for _, s := range states {
		if len(s.Deltas) > 0 {
			return 2
		}
	}
	return 1
}

// NotFoundError says that a store has no such backup or object.
type NotFoundError struct{ What, Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("no %s %s in the store", e.What, e.Name) }

// DamagedError says that an object of a store is not what was written.
type DamagedError struct{ Object, Detail string }

func (e *DamagedError) Error() string { return fmt.Sprintf("%s is damaged: %s", e.Object, e.Detail) }

// encode returns the manifest's encoding, with its hash.
func (m Manifest) encode() ([]byte, error) {
	m.SHA256 = ""
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	m.SHA256 = hex.EncodeToString(sum[:])
	b, err = json.MarshalIndent(m, "", " ")
	return append(b, '\n'), err
}

// decode reads a manifest and checks its hash, its form and every byte of its encoding.
func decode(b []byte) (*Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	if m.Format < 1 || m.Format > Format {
		return nil, fmt.Errorf("format %d, this version reads 1 to %d", m.Format, Format)
	}
	again, err := m.encode()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, b) {
		return nil, errors.New("its bytes do not have its hash")
	}
	return &m, m.check()
}

// check reports why a manifest describes no backup.
func (m *Manifest) check() error {
	if err := checkName(m.Name); err != nil {
		return err
	}
	if int(m.Partitions) != len(m.States) || m.Partitions == 0 {
		return fmt.Errorf("%d partitions, and %d states", m.Partitions, len(m.States))
	}
	for p, s := range m.States {
		if int(s.Partition) != p {
			return fmt.Errorf("state %d is of partition %d", p, s.Partition)
		}
		for i, f := range s.Files {
			if err := f.check(); err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
			if i > 0 && s.Files[i-1].Name >= f.Name {
				return fmt.Errorf("partition %d: file %q follows %q", p, f.Name, s.Files[i-1].Name)
			}
		}
		if err := s.checkDeltas(); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	if want := format(m.States); m.Format != want {
		return fmt.Errorf("format %d of states of format %d", m.Format, want)
	}
	return nil
}

// checkDeltas refuses deltas of which one does not continue the one before, or that do not end at the state's index.
func (s *State) checkDeltas() error {
	for i, d := range s.Deltas {
		if err := d.check(); err != nil {
			return err
		}
		if d.To <= d.From || i > 0 && s.Deltas[i-1].To != d.From {
			return fmt.Errorf("delta %d leads from index %d to %d", i, d.From, d.To)
		}
		if slices.ContainsFunc(s.Files, func(f File) bool { return f.Name == d.Name }) {
			return fmt.Errorf("delta %d has the name of file %s", i, d.Name)
		}
	}
	if n := len(s.Deltas); n > 0 && s.Deltas[n-1].To != s.Index {
		return fmt.Errorf("the deltas lead to index %d, the state is at %d", s.Deltas[n-1].To, s.Index)
	}
	return nil
}

// check refuses a file whose name could lead out of a directory, or that no object can hold.
func (f File) check() error {
	switch sum, err := hex.DecodeString(f.SHA256); {
	case !fileName(f.Name):
		return fmt.Errorf("%q is no name of a file", f.Name)
	case f.Size < 0:
		return fmt.Errorf("file %s has %d bytes", f.Name, f.Size)
	case err != nil || len(sum) != sha256.Size || strings.ToLower(f.SHA256) != f.SHA256:
		return fmt.Errorf("file %s: %q is no hash", f.Name, f.SHA256)
	}
	return nil
}

// fileName reports whether a name is one of a file in a flat directory.
func fileName(name string) bool {
	return name != "" && len(name) <= 255 && name[0] != '.' && !strings.ContainsAny(name, "/\\\x00")
}

// checkName refuses what is no name of a backup.
func checkName(name string) error {
	if _, err := time.Parse(nameLayout, name); err != nil {
		return fmt.Errorf("%q is no name of a backup: it must be like %s", name, nameLayout)
	}
	return nil
}

// Read returns the manifest of a backup. Errors: *NotFoundError, *DamagedError, or the store's.
func Read(ctx context.Context, store Store, name string) (*Manifest, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	object := backupsPrefix + name + jsonSuffix
	b, err := readAll(ctx, store, object)
	if missing := (*NotFoundError)(nil); errors.As(err, &missing) {
		return nil, &NotFoundError{"backup", name}
	}
	if err != nil {
		return nil, err
	}
	m, err := decode(b)
	if err == nil && m.Name != name {
		err = fmt.Errorf("it is the manifest of %s", m.Name)
	}
	if err != nil {
		return nil, &DamagedError{object, err.Error()}
	}
	return m, nil
}

// Names returns the names of all backups, the oldest first.
func Names(ctx context.Context, store Store) ([]string, error) {
	objects, err := store.List(ctx, backupsPrefix)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, o := range objects {
		name, isJSON := strings.CutSuffix(strings.TrimPrefix(o.Name, backupsPrefix), jsonSuffix)
		if isJSON && checkName(name) == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Newest returns the name of the newest backup.
func Newest(ctx context.Context, store Store) (string, error) {
	all, err := Names(ctx, store)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", &NotFoundError{"backup", "at all"}
	}
	return all[len(all)-1], nil
}

// NewestOf returns the manifest of the newest backup of a cluster whose manifest can be read; nil if there is none.
func NewestOf(ctx context.Context, store Store, cluster string) (*Manifest, error) {
	all, err := Names(ctx, store)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Backward(all) {
		m, err := Read(ctx, store, name)
		switch damaged, missing := (*DamagedError)(nil), (*NotFoundError)(nil); {
		case errors.As(err, &damaged), errors.As(err, &missing):
		case err != nil:
			return nil, err
		case m.Cluster == cluster:
			return m, nil
		}
	}
	return nil, nil
}

// readAll returns the bytes of an object of at most maxManifest bytes.
func readAll(ctx context.Context, store Store, name string) ([]byte, error) {
	r, err := store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if len(b) > maxManifest {
		return nil, &DamagedError{name, fmt.Sprintf("it has more than %d bytes", maxManifest)}
	}
	return b, nil
}
