package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/backup"
	"perdure/client"
	"perdure/fsm"
	"perdure/fsm/restore"
	"perdure/fsm/state"
)

func (a *app) backupRestoreCommand() *cobra.Command {
	r := &restoring{a: a}
	cmd := &cobra.Command{
		Use:   "restore URL [NAME]",
		Short: "Bring a backup into a new cluster",
		Long: `Bring a backup, the newest if no name is given, into a new cluster, which may have another
number of partitions. Everything goes on as it was: what had ended has its results, timers
and promises keep their deadlines, and each task that a worker held is given to another.

Stop the old cluster and its workers first: what it does after the backup is not in the
new one, and a step that runs in both has two effects.

The cluster must be empty. It serves when the command is done. The command may be
interrupted and repeated with the same backup, which completes it; the cluster takes no
other one. It gives up when --timeout passes without progress.

The backup is copied to a temporary folder, which must have room for all of it.

Exit codes: 0 done, 1 the backup is damaged, 2 bad usage, 3 no such backup, 4 refused,
5 unavailable (retry).`,
		Example: `  perdure backup restore /var/backups/perdure
  perdure backup restore s3://backups/perdure 20260506T070809Z --temp /mnt/big`,
		Args: storeArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&r.temp, "temp", "", "`folder` for the copied backup (default: the system's)")
	flags.IntVar(&r.parallel, "parallel", 4, "partitions copied and sent at once")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) (err error) {
		if r.parallel < 1 {
			return usagef("--parallel %d: must be at least 1", r.parallel)
		}
		r.location = args[0]
		if r.store, err = a.openStore(r.location); err != nil {
			return err
		}
		name, err := backupName(ctx, r.store, args[1:])
		if err != nil {
			return err
		}
		if r.m, err = backup.Read(ctx, r.store, name); err != nil {
			return err
		}
		return r.run(ctx, c)
	})
	return cmd
}

// restoring is one run of backup restore.
type restoring struct {
	a        *app
	location string
	store    backup.Store
	m        *backup.Manifest
	temp     string
	parallel int
}

// run fetches the backup, sends it and prints what was stored.
func (r *restoring) run(ctx context.Context, c *client.Client) (err error) {
	into, err := r.target(ctx, c)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(r.temp, "perdure-restore-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := r.fetch(ctx, tmp); err != nil {
		return r.interrupted(ctx, err)
	}
	done, err := r.send(ctx, c, tmp, into)
	if err != nil {
		return r.interrupted(ctx, r.advise(err))
	}
	if r.a.json {
		return r.a.printJSON(object{{"name", r.m.Name}, {"cluster", r.m.Cluster}, {"from", uint64(r.m.Partitions)}, {"partitions", uint64(into)},
			{"rows", done.GetRows()}, {"bytes", done.GetBytes()}})
	}
	if done.GetRows() == 0 {
		fmt.Fprintf(r.a.out, "backup %s: is in the cluster already\n", r.m.Name)
		return nil
	}
	fmt.Fprintf(r.a.out, "backup %s: %d rows, %s, of %s into %d\n", r.m.Name, done.GetRows(), sizeText(int64(done.GetBytes())),
		nounText(int(r.m.Partitions), "partition"), into)
	return nil
}

// target returns the number of the cluster's partitions.
func (r *restoring) target(ctx context.Context, c *client.Client) (uint32, error) {
	st, err := c.ClusterStatus(ctx)
	if err != nil {
		return 0, err
	}
	if level := st.GetFeatureLevel(); level > 0 && r.m.Level > level {
		return 0, r.advise(api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "backup %s is of feature level %d, the cluster has %d", r.m.Name, r.m.Level, level))
	}
	if st.GetClusterId() == r.m.Cluster && r.m.Cluster != "" {
		return 0, r.advise(api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "backup %s is of this very cluster; a restore needs a new one", r.m.Name))
	}
	return uint32(len(st.GetPartitions())), nil
}

// fetch copies the states into folders of their own.
func (r *restoring) fetch(ctx context.Context, tmp string) error {
	shown := &progress{a: r.a, doing: "copying", last: r.a.now()}
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.parallel)
	for _, s := range r.m.States {
		group.Go(func() error {
			return fetchState(ctx, r.store, s, folderOf(tmp, s), func(bytes int64) {
				done.Add(bytes)
				shown.at(func() string { return fmt.Sprintf("%s of %s", sizeText(done.Load()), sizeText(r.m.Bytes())) })
			})
		})
	}
	return group.Wait()
}

// folderOf is where a state is copied to.
func folderOf(tmp string, s backup.State) string {
	return filepath.Join(tmp, fmt.Sprintf("state-%04d", s.Partition))
}

// send opens the copied states and sends what they are in the new cluster.
func (r *restoring) send(ctx context.Context, c *client.Client, tmp string, into uint32) (done *perdurev1.ImportResponse, err error) {
	name, err := r.importName()
	if err != nil {
		return nil, err
	}
	cache := pebble.NewCache(verifyCacheBytes)
	defer cache.Unref()
	var stores []*fsm.ReadOnly
	for _, s := range r.m.States {
		opened, openErr := fsm.OpenCheckpoint(folderOf(tmp, s), fsm.Options{Cache: cache})
		if openErr != nil {
			return nil, openErr
		}
		defer func() { err = errors.Join(err, opened.Close()) }()
		if at := opened.Status().Applied; at != s.Index {
			return nil, &backup.DamagedError{Object: fmt.Sprintf("partition %d", s.Partition), Detail: fmt.Sprintf("it is at index %d, the manifest says %d", at, s.Index)}
		}
		stores = append(stores, opened)
	}
	shown := &progress{a: r.a, doing: "restoring", last: r.a.now()}
	err = fsm.ViewAll(stores, func(sources []state.Reader) error {
		plan, err := restore.New(sources, into)
		if err != nil {
			return err
		}
		done, err = c.Import(ctx, r.parallel, func(send func(*perdurev1.ImportRequest) error) error {
			var rows, bytes int64
			return plan.Send(name, func(m *perdurev1.ImportRequest) error {
				for _, row := range m.Rows {
					rows, bytes = rows+1, bytes+int64(len(row.Key)+len(row.Value))
				}
				shown.at(func() string { return fmt.Sprintf("%d rows, %s", rows, sizeText(bytes)) })
				return send(m)
			})
		})
		return err
	})
	return done, err
}

// importName names the restore: the same backup has the same name.
func (r *restoring) importName() (uint64, error) {
	sum, err := hex.DecodeString(r.m.SHA256)
	if err != nil || len(sum) < 8 {
		return 0, &backup.DamagedError{Object: "backup " + r.m.Name, Detail: fmt.Sprintf("its hash is %q", r.m.SHA256)}
	}
	return max(1, binary.BigEndian.Uint64(sum)), nil
}

// interrupted says what continues a restore that a signal has ended: a later backup would be another one.
func (r *restoring) interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return &hintedError{err, "perdure backup restore " + shellWord(r.location) + " " + r.m.Name + " continues; the cluster serves when that is done"}
}

// advise says what to do about a refusal.
func (r *restoring) advise(err error) error {
	e, ok := api.FromStatus(err)
	switch {
	case errors.Is(err, client.ErrUnavailable):
		return &hintedError{err, "perdure cluster status shows the nodes; repeat the command to continue"}
	case !ok:
		return err
	case e.Reason == perdurev1.Reason_REASON_RULE_BROKEN:
		return &hintedError{err, "start a new cluster with empty data directories and restore into it; one with part of a backup takes only that backup"}
	case e.Reason == perdurev1.Reason_REASON_FEATURE_LEVEL:
		return &hintedError{err, "perdure cluster upgrade raises the cluster's feature level, if all nodes run a version that has it"}
	}
	return err
}
