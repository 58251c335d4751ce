package jepsen

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Flipped is a byte of a file that was changed.
type Flipped struct {
	File   string // below the data directory
	Offset int64
	Was    byte
}

// String names the file and the offset.
func (f Flipped) String() string { return fmt.Sprintf("%s at byte %d", f.File, f.Offset) }

// ErrNothingToFlip says that the node has no table file yet.
var ErrNothingToFlip = errors.New("no table file to damage")

// Flip changes one byte of the largest table file of a partition's state, as a corrupting disk does. The node
// must not run. Flip damages only the first half of the file, where the data is; the end describes the file,
// and is read at every start.
func (n *Node) Flip(partition int, rng *rand.Rand) (Flipped, error) {
	if n.Running() {
		return Flipped{}, fmt.Errorf("cannot damage %s: it is running", n.Name)
	}
	root := filepath.Join(n.DataDir, fmt.Sprintf("state-%04d", partition))
	var path string
	var size int64
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".sst") {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > size {
			path, size = p, info.Size()
		}
		return err
	})
	if err != nil {
		return Flipped{}, err
	}
	if path == "" {
		return Flipped{}, fmt.Errorf("%w: %s holds no .sst", ErrNothingToFlip, root)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Flipped{}, err
	}
	at := rng.Int64N(max(1, size/2))
	rel, err := filepath.Rel(n.DataDir, path)
	if err != nil {
		return Flipped{}, err
	}
	out := Flipped{File: rel, Offset: at, Was: data[at]}
	damaged := slices.Clone(data)
	damaged[at] ^= 1 << rng.IntN(8)
	return out, os.WriteFile(path, damaged, 0o644)
}
