package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// copyState copies one partition: what has changed since the last backup, or all, from the first replica that has it.
func (c *creator) copyState(ctx context.Context, cut Cut, partition uint32) (State, error) {
	base, ok := c.base(cut, partition)
	if ok {
		s, err := c.firstReplica(ctx, cut, partition, func(at Checkpoint) (State, error) { return c.copyDelta(ctx, cut, at, base) })
		if lost := (*ReplicasError)(nil); !errors.As(err, &lost) {
			return s, err
		}
	}
	return c.firstReplica(ctx, cut, partition, func(at Checkpoint) (State, error) { return c.copyReplica(ctx, cut, at) })
}

// firstReplica copies from one replica after the other, until one succeeds. Errors: *ReplicasError, or what fails at all.
func (c *creator) firstReplica(ctx context.Context, cut Cut, partition uint32, do func(Checkpoint) (State, error)) (State, error) {
	lost := &ReplicasError{Cut: cut.Number, Partition: partition}
	for _, at := range c.order(cut, partition) {
		s, err := do(at)
		if err == nil {
			c.report(func(p *Progress) { p.PartitionsDone++ })
			return s, nil
		}
		if ctx.Err() != nil {
			return State{}, ctx.Err()
		}
		if full, busy := (*StoreError)(nil), (*BusyError)(nil); errors.As(err, &full) || errors.As(err, &busy) {
			return State{}, err
		}
		lost.Errs = append(lost.Errs, err)
		if errors.Is(err, ErrDeltaTooLarge) {
			break // at each other replica, too
		}
	}
	return State{}, lost
}

const (
	// maxDeltas bounds the deltas of a state: each makes a restore longer.
	maxDeltas = 64
	// deltaShare is what part of the bytes of a state's files all its deltas together may have.
	deltaShare = 2
	// leastDeltas are bytes that the deltas of a state may have however small the state is.
	leastDeltas = 64 << 10
)

// base returns what the last backup has of a partition, if a delta may follow it.
func (c *creator) base(cut Cut, partition uint32) (State, bool) {
	if c.opts.Full || c.last == nil || cut.Cluster == "" || c.last.Cut >= cut.Number || c.last.Partitions != cut.Partitions {
		return State{}, false
	}
	s := c.last.States[partition]
	for _, f := range s.all() {
		if !c.stored(f) {
			return State{}, false
		}
	}
	return s, len(s.Deltas) < maxDeltas && s.deltaLimit() > 0
}

// deltaLimit is how many bytes the next delta of a state may have.
func (s State) deltaLimit() int64 {
	var files, deltas int64
	for _, f := range s.Files {
		files += f.Size
	}
	for _, d := range s.Deltas {
		deltas += d.Size
	}
	return max(files/deltaShare, leastDeltas) - deltas
}

// copyDelta copies what a checkpoint has and the last backup has not.
func (c *creator) copyDelta(ctx context.Context, cut Cut, at Checkpoint, base State) (State, error) {
	s := State{Partition: at.Partition, Node: at.Node, Index: at.Index, Files: base.Files}
	if at.Index <= base.Index {
		return s, fmt.Errorf("node %s is at index %d of partition %d, the last backup at %d", at.Node, at.Index, at.Partition, base.Index)
	}
	var listed Listed
	err := c.retry(ctx, func() (bool, error) {
		var err error
		listed, err = c.source.Delta(ctx, cut.Number, at, Base{c.last.Cut, base.Index}, base.deltaLimit())
		return false, err
	})
	if err != nil {
		return s, err
	}
	file, err := c.copyListed(ctx, cut, at, []Listed{listed})
	if err != nil {
		return s, err
	}
	s.Deltas = append(slices.Clone(base.Deltas), Delta{base.Index, at.Index, file[0]})
	return s, nil
}

// copyReplica copies one checkpoint.
func (c *creator) copyReplica(ctx context.Context, cut Cut, at Checkpoint) (State, error) {
	s := State{Partition: at.Partition, Node: at.Node}
	var files []Listed
	err := c.retry(ctx, func() (bool, error) {
		var err error
		s.Index, files, err = c.source.List(ctx, cut.Number, at)
		return false, err
	})
	if err != nil {
		return s, err
	}
	if s.Index != at.Index {
		return s, fmt.Errorf("node %s has index %d of partition %d in cut %d, which is at %d", at.Node, s.Index, at.Partition, cut.Number, at.Index)
	}
	slices.SortFunc(files, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	s.Files, err = c.copyListed(ctx, cut, at, files)
	return s, err
}

// copyListed copies files of one checkpoint.
func (c *creator) copyListed(ctx context.Context, cut Cut, at Checkpoint, files []Listed) ([]File, error) {
	out := []File{}
	c.report(func(p *Progress) {
		for _, f := range files {
			p.Files++
			p.Bytes += f.Size
		}
	})
	for _, f := range files {
		file, err := c.copyFile(ctx, cut, at, f)
		if err != nil {
			return nil, fmt.Errorf("node %s, partition %d, file %s: %w", at.Node, at.Partition, f.Name, err)
		}
		out = append(out, file)
		c.report(func(p *Progress) {
			p.FilesDone++
			p.BytesDone += f.Size
		})
	}
	return out, nil
}

// copyFile makes sure that a file is in the store.
func (c *creator) copyFile(ctx context.Context, cut Cut, at Checkpoint, f Listed) (File, error) {
	key := version{at.Partition, at.Node, f.Name, f.Size}
	file := File{Name: f.Name, Size: f.Size}
	// A checkpoint is never changed, so what a partial has of this one is this.
	c.mu.Lock()
	i, done := c.at[key]
	if done {
		file.SHA256 = c.part.Copied[i].File.SHA256
	}
	_, known := c.known[key]
	c.mu.Unlock()
	if done && c.stored(file) {
		return file, nil
	}
	// A replica that was rebuilt begins to number its files again. Its node says which bytes it has.
	if known || c.ask {
		sum, err := c.hash(ctx, cut, at, f)
		if err != nil {
			return file, err
		}
		if file.SHA256 = sum; c.stored(file) {
			return file, c.note(ctx, cut, at, file)
		}
	}
	spool, err := os.CreateTemp(c.opts.Spool, "perdure-backup-")
	if err != nil {
		return file, &StoreError{"a temporary file", err}
	}
	defer func() { _ = errors.Join(spool.Close(), os.Remove(spool.Name())) }() // nothing needs it any more
	if file.SHA256, err = c.read(ctx, cut, at, f, spool); err != nil {
		return file, err
	}
	if c.stored(file) {
		return file, c.note(ctx, cut, at, file)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return file, &StoreError{"a temporary file", err}
	}
	if err := c.store.Put(ctx, file.Object(), spool, file.Size); err != nil {
		return file, &StoreError{file.Object(), err}
	}
	c.mu.Lock()
	c.here[file.Object()] = file.Size
	c.mu.Unlock()
	c.report(func(p *Progress) { p.Stored += file.Size })
	return file, c.note(ctx, cut, at, file)
}

// stored reports whether the store has a file.
func (c *creator) stored(f File) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	size, ok := c.here[f.Object()]
	return ok && size == f.Size && f.check() == nil
}

// note adds a file to the partial.
func (c *creator) note(ctx context.Context, cut Cut, at Checkpoint, f File) error {
	c.mu.Lock()
	c.at[version{at.Partition, at.Node, f.Name, f.Size}] = len(c.part.Copied)
	c.part.Copied = append(c.part.Copied, copied{cut.Number, at.Partition, at.Node, f})
	c.mu.Unlock()
	return c.saveSoon(ctx)
}

// hash has the node compute a file's hash.
func (c *creator) hash(ctx context.Context, cut Cut, at Checkpoint, f Listed) (sum string, err error) {
	if err := c.limit.take(ctx, f.Size); err != nil {
		return "", err
	}
	err = c.retry(ctx, func() (bool, error) {
		sum, err = c.source.Hash(ctx, cut.Number, at, f.Name)
		return false, err
	})
	return sum, err
}

// read copies a file of a checkpoint and returns its hash. After a failure it continues where it was.
func (c *creator) read(ctx context.Context, cut Cut, at Checkpoint, f Listed, w io.Writer) (string, error) {
	sum := sha256.New()
	n := int64(0)
	err := c.retry(ctx, func() (bool, error) {
		r, err := c.source.Read(ctx, cut.Number, at, f.Name, n)
		if err != nil {
			return false, err
		}
		defer func() { _ = r.Close() }() // it was only read
		before := n
		buf := make([]byte, 256<<10)
		for {
			m, err := r.Read(buf)
			if err := c.limit.take(ctx, int64(m)); err != nil {
				return false, err
			}
			if _, err := w.Write(buf[:m]); err != nil {
				return false, &StoreError{"a temporary file", err}
			}
			sum.Write(buf[:m])
			n += int64(m)
			c.count(int64(m))
			switch {
			case n > f.Size:
				return false, &lengthError{n, f.Size}
			case errors.Is(err, io.EOF) && n < f.Size:
				return n > before, fmt.Errorf("the stream ended at byte %d of %d: %w", n, f.Size, io.ErrUnexpectedEOF)
			case errors.Is(err, io.EOF):
				return true, nil
			case err != nil:
				return n > before, err
			}
		}
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// lengthError says that a file is longer than its list says.
type lengthError struct{ have, listed int64 }

func (e *lengthError) Error() string {
	return fmt.Sprintf("%d bytes of a file of %d", e.have, e.listed)
}

// retry calls do until it succeeds, its error is final, or it has failed Attempts times in a row without progress.
func (c *creator) retry(ctx context.Context, do func() (progress bool, err error)) error {
	wait := c.opts.retryAfter
	for failed := 0; ; {
		progress, err := do()
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		gone, full, long := (*GoneError)(nil), (*StoreError)(nil), (*lengthError)(nil)
		if errors.As(err, &gone) || errors.As(err, &full) || errors.As(err, &long) || errors.Is(err, ErrDeltaTooLarge) {
			return err
		}
		if failed++; progress {
			failed, wait = 0, c.opts.retryAfter
		}
		if failed >= c.opts.Attempts {
			return err
		}
		if err := c.opts.sleep(ctx, wait); err != nil {
			return err
		}
		wait *= 2
	}
}

// count adds bytes that came over the network.
func (c *creator) count(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress.Copied += n
}

// report changes the progress and passes it on.
func (c *creator) report(change func(*Progress)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.progress)
	if c.opts.Progress != nil {
		c.opts.Progress(c.progress)
	}
}
