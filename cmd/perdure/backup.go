package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"perdure/backup"
	"perdure/backup/stores"
	"perdure/client"
	"perdure/internal/bytesize"
)

func (a *app) backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Make, check, restore and delete backups of a cluster",
		Long: `Make, check, restore and delete backups of a cluster, which serves meanwhile.

A backup is a consistent state of all partitions: everything that was acknowledged before
it began, and no effect without its cause. Backups at one URL share files, so a backup
copies only what is new. URL is one of:
  /path, file:///path     a folder
  s3://bucket/prefix      a bucket of a server that speaks S3
For a bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and
AWS_ENDPOINT_URL are as in other tools; without keys the shared credentials file or the
role of the machine is used.`,
		Example: `  perdure backup create /var/backups/perdure --keep 7
  perdure backup list s3://backups/perdure
  perdure backup verify s3://backups/perdure`,
		Args: noSuchCommand,
		RunE: func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.backupCreateCommand(), a.backupListCommand(), a.backupVerifyCommand(), a.backupRestoreCommand(), a.backupDeleteCommand())
	return cmd
}

// openStore opens the store of backups at a URL or path.
func (a *app) openStore(url string) (backup.Store, error) {
	store, err := stores.Open(url, func(name string) string {
		value, _ := a.lookup(name)
		return value
	})
	if bad := (*stores.SyntaxError)(nil); errors.As(err, &bad) {
		return nil, usagef("%v", bad)
	}
	return store, err
}

// storeArgs takes the URL and up to so many names.
func storeArgs(names int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("the URL of the backups is missing")
		case len(args) > 1+names:
			return usagef("too many arguments: %q", args[1+names])
		}
		return nil
	}
}

func (a *app) backupCreateCommand() *cobra.Command {
	var (
		rate string
		keep int
		opts backup.Options
	)
	cmd := &cobra.Command{
		Use:   "create URL",
		Short: "Make a backup of the cluster",
		Long: `Make a backup of the cluster at a URL, and print its name. It copies what was changed
since the last backup there, if the nodes still have that state: they keep the one of
the last backup, whatever its URL, until the next is done. Otherwise it copies the files
that no backup there has. --full copies all of these and keeps no state on the nodes.

The command may be interrupted and repeated: it continues where it was, as long as the
nodes have the state that it copied. After a kill -9 it does so on the same machine, and
elsewhere after five minutes. If a node fails, it continues with another replica.

--rate bounds the bytes that it makes the nodes read in each second. --keep deletes the
older backups of this cluster at the URL when the new one is done, but for so many.

Exit codes: 0 done, 1 the backup could not be stored, 2 bad usage, 4 refused,
5 unavailable (retry).`,
		Example: `  perdure backup create file:///var/backups/perdure
  perdure backup create s3://backups/perdure --rate 50MiB --keep 7`,
		Args: storeArgs(0),
	}
	flags := cmd.Flags()
	flags.StringVar(&rate, "rate", "", "`bytes` per second, such as 50MiB (default: no bound)")
	flags.IntVar(&keep, "keep", 0, "`number` of backups to keep (default: all)")
	flags.IntVar(&opts.Parallel, "parallel", 4, "partitions copied at once")
	flags.BoolVar(&opts.Full, "full", false, "copy whole states, keep none on the nodes")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) (err error) {
		if rate != "" {
			if opts.Rate, err = bytesize.Parse(rate); err != nil || opts.Rate == 0 {
				return usagef("--rate %s: write bytes per second, such as 50MiB", rate)
			}
		}
		switch {
		case keep < 0 || flags.Changed("keep") && keep == 0:
			return usagef("--keep %d: must be at least 1", keep)
		case opts.Parallel < 1:
			return usagef("--parallel %d: must be at least 1", opts.Parallel)
		}
		store, err := a.openStore(args[0])
		if err != nil {
			return err
		}
		return a.createBackup(ctx, c, store, opts, keep)
	})
	return cmd
}

// createBackup makes a backup, deletes what --keep does not keep, and prints both.
func (a *app) createBackup(ctx context.Context, c *client.Client, store backup.Store, opts backup.Options, keep int) error {
	source := &clusterSource{c: c, timeout: a.timeout, conns: map[string]*client.NodeConn{}}
	defer func() { _ = source.close() }() // all calls have ended
	shown := &progress{a: a, doing: "copying", last: a.now()}
	opts.Progress = func(p backup.Progress) {
		shown.at(func() string {
			return fmt.Sprintf("%s, %d of %d partitions, %d of %d files, %s of %s, %s of them new", p.Name, p.PartitionsDone, p.Partitions,
				p.FilesDone, p.Files, sizeText(p.BytesDone), sizeText(p.Bytes), sizeText(p.Stored))
		})
	}
	r, err := backup.Create(ctx, source, store, opts)
	if err != nil {
		return interrupted(ctx, err)
	}
	var deleted []string
	var collected backup.Collected
	if keep > 0 {
		if deleted, err = backup.Keep(ctx, store, r.Cluster, keep); err != nil {
			return &hintedError{err, "backup " + r.Name + " is made; perdure backup delete deletes older ones"}
		}
	}
	if len(deleted) > 0 {
		if collected, err = a.collect(ctx, store); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(object{{"name", r.Name}, {"cluster", r.Cluster}, {"cut", r.Cut}, {"partitions", uint64(r.Partitions)}, {"bytes", uint64(r.Bytes())},
			{"copied", uint64(r.Progress.Copied)}, {"stored", uint64(r.Progress.Stored)}, {"resumed", r.Progress.Resumed},
			{"deleted", texts(deleted)}, {"freed", uint64(collected.Bytes)}})
	}
	fmt.Fprintf(a.out, "backup %s: %s in %s, %s of them new\n", r.Name, sizeText(r.Bytes()), nounText(int(r.Partitions), "partition"), sizeText(r.Progress.Stored))
	if r.Unreleased != nil {
		fmt.Fprintf(a.stderr, "the copied state stays on the nodes until the next backup: %s\n", lastCause(r.Unreleased))
	}
	a.printDeleted(deleted, collected)
	return nil
}

// interrupted says what continues a command that a signal has ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return &hintedError{err, "repeat the command to continue"}
}

// collect deletes unused files, unless a create runs, which is said.
func (a *app) collect(ctx context.Context, store backup.Store) (backup.Collected, error) {
	done, err := backup.Collect(ctx, store)
	if busy := (*backup.BusyError)(nil); errors.As(err, &busy) {
		fmt.Fprintf(a.stderr, "unused files stay for now: %v\n", busy)
		return done, nil
	}
	return done, err
}

func (a *app) printDeleted(names []string, c backup.Collected) {
	for _, name := range names {
		fmt.Fprintf(a.out, "deleted %s\n", name)
	}
	if c.Files > 0 {
		fmt.Fprintf(a.out, "deleted %s, %s\n", nounText(c.Files, "unused file"), sizeText(c.Bytes))
	}
}

func (a *app) backupListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list URL",
		Short: "List backups, the oldest first",
		Long: `List the backups at a URL, the oldest first, and those that were begun and not finished.
SIZE is that of the whole state; backups share files.`,
		Example: `  perdure backup list /var/backups/perdure
  perdure backup list s3://backups/perdure --json`,
		Args: storeArgs(0),
	}
	cmd.RunE = do(func(ctx context.Context, args []string) error {
		store, err := a.openStore(args[0])
		if err != nil {
			return err
		}
		return a.listBackups(ctx, store)
	})
	return cmd
}

// listBackups prints all backups and partials.
func (a *app) listBackups(ctx context.Context, store backup.Store) error {
	names, err := backup.Names(ctx, store)
	if err != nil {
		return err
	}
	partials, err := backup.Partials(ctx, store)
	if err != nil {
		return err
	}
	w := io.Writer(a.out)
	if !a.json {
		table := a.table()
		defer func() { _ = table.Flush() }() // to a buffer
		fmt.Fprintln(table, "NAME\tSTATE\tCLUSTER\tCUT\tPARTITIONS\tSIZE")
		w = table
	}
	for _, name := range names {
		m, err := backup.Read(ctx, store, name)
		state := "complete"
		if damaged := (*backup.DamagedError)(nil); errors.As(err, &damaged) {
			m, state, err = &backup.Manifest{Name: name}, "damaged", nil
		}
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(object{{"name", name}, {"state", state}, {"cluster", m.Cluster}, {"cut", m.Cut}, {"partitions", uint64(m.Partitions)},
				{"level", m.Level}, {"created", m.Created.Format(time.RFC3339)}, {"bytes", uint64(m.Bytes())}})
		} else {
			_, err = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", name, state, orDash(m.Cluster), m.Cut, m.Partitions, sizeText(m.Bytes()))
		}
		if err != nil {
			return err
		}
	}
	for _, p := range partials {
		state := "running"
		if p.Ended {
			state = "interrupted"
		}
		var err error
		if a.json {
			err = a.printJSON(object{{"name", p.Name}, {"state", state}, {"files", p.Files}, {"bytes", uint64(p.Bytes)}})
		} else {
			_, err = fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t%s\n", p.Name, state, sizeText(p.Bytes))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) backupVerifyCommand() *cobra.Command {
	var discard bool
	cmd := &cobra.Command{
		Use:   "verify URL [NAME]",
		Short: "Check every byte of a backup",
		Long: `Read every file of a backup, the newest if no name is given, and compare it with the
hash of what was copied. Every damaged or missing file is named.

"perdure verify --backup URL" also checks the copied state by all rules.

--discard deletes the damaged files, so that the next backup copies them again. Every
backup that has one of them stays damaged.

Exit codes: 0 no damage, 1 damage, 2 bad usage, 3 no such backup.`,
		Example: `  perdure backup verify /var/backups/perdure
  perdure backup verify s3://backups/perdure 20260506T070809Z --json`,
		Args: storeArgs(1),
	}
	cmd.Flags().BoolVar(&discard, "discard", false, "delete damaged files")
	cmd.RunE = do(func(ctx context.Context, args []string) error {
		store, err := a.openStore(args[0])
		if err != nil {
			return err
		}
		name, err := backupName(ctx, store, args[1:])
		if err != nil {
			return err
		}
		problems, err := a.checkBackup(ctx, store, name)
		if err == nil && discard {
			err = backup.Discard(ctx, store, problems)
		}
		if err != nil {
			return err
		}
		if err := a.printProblems(name, problems); err != nil {
			return err
		}
		if len(problems) > 0 {
			return &damagedBackupError{name, problems}
		}
		return nil
	})
	return cmd
}

// backupName is the name that was given, else that of the newest backup.
func backupName(ctx context.Context, store backup.Store, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	return backup.Newest(ctx, store)
}

// checkBackup reads all files of a backup.
func (a *app) checkBackup(ctx context.Context, store backup.Store, name string) ([]backup.Problem, error) {
	shown := a.newProgress()
	return backup.Verify(ctx, store, name, func(done, all int64) {
		shown.at(func() string { return fmt.Sprintf("%s of %s", sizeText(done), sizeText(all)) })
	})
}

// printProblems prints the verdict on the files of a backup.
func (a *app) printProblems(name string, problems []backup.Problem) error {
	if a.json {
		items := make([]any, len(problems))
		for i, p := range problems {
			items[i] = object{{"object", p.Object}, {"detail", p.Detail}, {"uses", texts(p.Uses)}}
		}
		return a.printJSON(object{{"ok", len(problems) == 0}, {"name", name}, {"problems", items}})
	}
	for _, p := range problems {
		fmt.Fprintln(a.out, "damaged: "+sentences(p.String()))
	}
	if len(problems) == 0 {
		fmt.Fprintf(a.out, "backup %s: ok\n", name)
	}
	return nil
}

// damagedBackupError says that files of a backup are damaged.
type damagedBackupError struct {
	name     string
	problems []backup.Problem
}

func (e *damagedBackupError) Error() string {
	return fmt.Sprintf("backup %s is damaged: %s", e.name, nounText(len(e.problems), "file"))
}

func (a *app) backupDeleteCommand() *cobra.Command {
	var unused bool
	cmd := &cobra.Command{
		Use:   "delete URL [NAME…]",
		Short: "Delete backups and unused files",
		Long: `Delete backups, and the files that no other backup has. A name may be that of a backup that
was begun and not finished. With --unused it deletes unused files only; while a backup is
being made they stay.

Exit codes: 0 done, 2 bad usage, 3 no such backup, 4 a backup is being made.`,
		Example: `  perdure backup delete /var/backups/perdure 20260506T070809Z
  perdure backup delete s3://backups/perdure --unused`,
		Args: storeArgs(1 << 20),
	}
	cmd.Flags().BoolVar(&unused, "unused", false, "delete only files that no backup has")
	cmd.RunE = do(func(ctx context.Context, args []string) error {
		names := args[1:]
		if unused == (len(names) > 0) {
			return usagef("name backups, or give --unused")
		}
		store, err := a.openStore(args[0])
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := backup.Delete(ctx, store, name); err != nil {
				return err
			}
		}
		var done backup.Collected
		if unused {
			done, err = backup.Collect(ctx, store)
		} else {
			done, err = a.collect(ctx, store)
		}
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(object{{"deleted", texts(names)}, {"files", done.Files}, {"bytes", uint64(done.Bytes)}})
		}
		a.printDeleted(names, done)
		return nil
	})
	return cmd
}

// sizeText is a size for people.
func sizeText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 4; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}
