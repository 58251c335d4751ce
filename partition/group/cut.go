package group

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/cut"
	"perdure/fsm"
	"perdure/fsm/state"
	"perdure/partition/identity"
)

// latestCut is the cut that messages require.
func latestCut(msgs []*commandv1.Message) uint64 {
	need := cut.Number(0)
	for _, m := range msgs {
		need = cut.Required(need, cut.Number(m.Cut))
	}
	return uint64(need)
}

// enterCut has the partition enter a cut, unless it is in that or in a later one. It blocks like Propose.
func (r *proposer) enterCut(ctx context.Context, need uint64) error {
	if need == 0 {
		return nil
	}
	have, err := r.Cut()
	for err == nil && have < need { // the reply is below it if the entry has entered another
		var reply *commandv1.Reply
		reply, err = r.propose(ctx, &commandv1.Command{Kind: &commandv1.Command_EnterCut{EnterCut: &commandv1.EnterCut{Cut: need}}})
		have = reply.GetEnterCut().GetCut()
	}
	return err
}

// Cut is the cut that this replica's state is in.
func (c *core) Cut() (in uint64, err error) {
	err = c.store.Peek(func(st state.Reader) (err error) {
		in, err = state.MetaNumber(st, state.MetaCut)
		return err
	})
	return in, err
}

// onCheckpoint logs the checkpoint of a cut.
func (r *Replica) onCheckpoint(c fsm.Checkpoint, err error) {
	if err != nil {
		r.metrics.Unchecked.Inc()
		r.log.Warn("cannot make the checkpoint of a cut", "event", "checkpoint_failed", "partition", r.id, "cut", c.Cut, "index", c.Index, "error", err)
	} else {
		r.log.Info("cut entered", "event", "cut_entered", "partition", r.id, "cut", c.Cut, "index", c.Index)
	}
	r.noteCut()
}

// measureCheckpoints sets the metric of the checkpoints' size. It reads folders.
func (r *Replica) measureCheckpoints() {
	all, _ := fsm.Checkpoints(r.opts.FS, r.stateDir())
	bytes := int64(0)
	for _, c := range all {
		files, _ := fsm.CheckpointFiles(r.opts.FS, r.stateDir(), c)
		for _, f := range files {
			bytes += f.Size
		}
	}
	r.metrics.CheckpointBytes.Set(float64(bytes))
}

func (r *Replica) stateDir() string { return r.opts.path(identity.StateDir(r.id)) }

// noteCut notes that no checkpoint of the state's cut, or of an earlier one, is being made.
func (r *Replica) noteCut() {
	if r.store == nil {
		return // a state that is being filled
	}
	if in, err := r.Cut(); err == nil {
		r.cutEnded.Store(in)
	}
	r.measureCheckpoints()
}

// Checkpoint finds this replica's checkpoint of a cut. Without one, missed says that it gets none any more: its state is
// in the cut or in a later one, or it has halted. It reads a folder.
func (r *Replica) Checkpoint(n uint64) (c fsm.Checkpoint, has, missed bool, err error) {
	missed = r.Halted() != nil || r.cutEnded.Load() >= n // before the list
	all, err := fsm.Checkpoints(r.opts.FS, r.stateDir())
	for _, c := range all {
		if c.Cut == n {
			return c, true, false, nil
		}
	}
	return fsm.Checkpoint{}, false, missed, err
}

// CheckpointFiles lists the files of this replica's checkpoint of a cut. Errors: CHECKPOINT_NOT_FOUND, or those of the disk.
func (r *Replica) CheckpointFiles(n uint64) (index uint64, files []fsm.CheckpointFile, err error) {
	c, has, _, err := r.Checkpoint(n)
	if has {
		files, err = fsm.CheckpointFiles(r.opts.FS, r.stateDir(), c)
	}
	if err == nil && !has || errors.Is(err, fs.ErrNotExist) {
		return 0, nil, r.noCheckpoint(n)
	}
	return c.Index, files, err
}

// OpenCheckpointFile opens one of the files that CheckpointFiles lists, for reading.
func (r *Replica) OpenCheckpointFile(n uint64, name string) (vfs.File, error) {
	index, files, err := r.CheckpointFiles(n)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(files, func(f fsm.CheckpointFile) bool { return f.Name == name }) && !fsm.IsDelta(name) {
		return nil, api.Errorf(perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND, "the checkpoint of cut %d of partition %d has no file %q", n, r.id, name).
			With("partition", fmt.Sprint(r.id)).With("cut", fmt.Sprint(n))
	}
	f, err := r.opts.FS.Open(r.opts.FS.PathJoin(fsm.Checkpoint{Cut: n, Index: index}.Dir(r.opts.FS, r.stateDir()), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, r.noCheckpoint(n)
	}
	return f, err
}

// MakeDelta writes what leads from one checkpoint of this replica to that of a cut, in at most limit bytes, and returns the
// file, which OpenCheckpointFile opens. It reads both and blocks for as long. Errors: CHECKPOINT_NOT_FOUND,
// *fsm.DeltaLimitError, ctx's, those of the disk.
func (r *Replica) MakeDelta(ctx context.Context, from fsm.Checkpoint, n uint64, limit int64) (fsm.CheckpointFile, error) {
	to, has, _, err := r.Checkpoint(n)
	if err != nil {
		return fsm.CheckpointFile{}, err
	}
	if !has {
		return fsm.CheckpointFile{}, r.noCheckpoint(n)
	}
	opts := r.stateOptions(false)
	stop := func() error { return errors.Join(ctx.Err(), r.Halted()) }
	file, err := fsm.MakeDelta(r.stateDir(), from, to, fsm.Options{FS: opts.FS, Logger: opts.Logger}, fsm.DeltaOptions{Limit: limit, Spare: opts.Spare, Stop: stop})
	r.measureCheckpoints()
	if errors.Is(err, fs.ErrNotExist) {
		return file, r.noCheckpoint(from.Cut)
	}
	return file, err
}

// DropCheckpoint removes this replica's oldest checkpoint, if it has one, because the disk is short of space: a backup goes on
// with another replica, or begins with whole states again. It blocks on the disk.
func (r *Replica) DropCheckpoint() {
	all, err := fsm.Checkpoints(r.opts.FS, r.stateDir())
	if err == nil && len(all) == 0 {
		return
	}
	var c fsm.Checkpoint
	if err == nil {
		c = all[0]
		err = fsm.RemoveCheckpoint(r.opts.FS, r.stateDir(), c)
	}
	r.measureCheckpoints()
	if err != nil {
		r.log.Warn("cannot remove a checkpoint for disk space", "event", "checkpoint_drop_failed", "partition", r.id, "error", err)
		return
	}
	r.log.Warn("checkpoint removed for disk space", "event", "checkpoint_dropped", "partition", r.id, "cut", c.Cut, "index", c.Index)
}

func (r *Replica) noCheckpoint(n uint64) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND, "this node has no checkpoint of cut %d of partition %d", n, r.id).
		With("partition", fmt.Sprint(r.id)).With("cut", fmt.Sprint(n))
}

// ReleaseCut removes this replica's checkpoint of a cut, and reports whether there was one.
func (r *Replica) ReleaseCut(n uint64) (released bool, err error) {
	c, has, _, err := r.Checkpoint(n)
	if err != nil || !has {
		return false, err
	}
	err = fsm.RemoveCheckpoint(r.opts.FS, r.stateDir(), c)
	r.measureCheckpoints()
	return err == nil, err
}
