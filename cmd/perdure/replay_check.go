package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// replayCheck is a replay-check as its command line says.
type replayCheck struct {
	worker     string
	workerArgs []string
	file       string
	export     string
	function   string
	within     time.Duration
}

func (a *app) replayCheckCommand() *cobra.Command {
	var o replayCheck
	cmd := &cobra.Command{
		Use:   "replay-check [ID...]",
		Short: "Check a worker's code against journals",
		Long: `Check whether the code of a worker fits the journals of executions, before it is
deployed. The command starts the worker's program in a mode of the SDK in which it
replays journals: it runs no step, calls no cluster and commits nothing. The first
difference of each journal is named: the promise id, the number of its first event,
what the journal has there and what the code does. An execution that has ended must
end in the same way.

The journals are those of the named executions, of all open executions of --function, or
of a file that --export has written.

Exit codes: 0 the code fits all journals, 1 it does not, 3 no such execution.`,
		Example: `  perdure replay-check --worker ./travel-worker order-42 order-43
  perdure replay-check --worker ./travel-worker --function book
  perdure replay-check --function book --export journals.jsonl
  perdure replay-check --worker ./travel-worker --file journals.jsonl --json`,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.worker, "worker", "", "`program` of the worker")
	flags.StringArrayVar(&o.workerArgs, "worker-arg", nil, "`argument` for the worker; may be repeated")
	flags.StringVar(&o.file, "file", "", "`file` of journals to check, instead of a cluster's")
	flags.StringVar(&o.export, "export", "", "`file` to write the journals to, instead of checking")
	flags.StringVar(&o.function, "function", "", "check all open executions of this `name`")
	flags.DurationVar(&o.within, "within", 5*time.Minute, "longest `time` that the worker may take")
	cmd.RunE = do(func(ctx context.Context, ids []string) error {
		switch {
		case (o.worker == "") == (o.export == ""):
			return usagef("replay-check needs --worker or --export, and not both")
		case o.file != "" && (len(ids) > 0 || o.function != "" || o.export != ""):
			return usagef("--file %q: it takes the place of ids, --function and --export", o.file)
		case o.file == "" && len(ids) == 0 && o.function == "":
			return usagef("replay-check needs ids, --function or --file")
		}
		return a.replayCheck(ctx, o, ids)
	})
	return cmd
}

func (a *app) replayCheck(ctx context.Context, o replayCheck, ids []string) error {
	dir, err := os.MkdirTemp("", "perdure-replay-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // copies of journals
	in := o.file
	if in == "" {
		if in = o.export; in == "" {
			in = filepath.Join(dir, "journals")
		}
		n, err := a.exportJournals(ctx, o, ids, in)
		if err != nil || o.export != "" {
			if err == nil {
				_, err = fmt.Fprintf(a.out, "%s in %s\n", nounText(n, "journal"), printable(o.export))
			}
			return err
		}
	}
	verdicts, err := runWorker(ctx, o, a, in, filepath.Join(dir, "verdicts"))
	if err != nil {
		return err
	}
	return a.printVerdicts(verdicts)
}

// exportJournals writes the journals of executions to a file, one in each line, as a worker gets them.
func (a *app) exportJournals(ctx context.Context, o replayCheck, ids []string, name string) (n int, err error) {
	c, err := a.dial()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	write := func(id string) error {
		task, err := exportJournal(ctx, c, id)
		if err != nil {
			return err
		}
		line, err := protojson.Marshal(task)
		if err == nil {
			n++
			_, err = f.Write(append(line, '\n'))
		}
		return err
	}
	for _, id := range ids {
		if err := write(id); err != nil {
			return n, err
		}
	}
	if o.function == "" {
		return n, nil
	}
	open := []client.Status{perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING, perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED,
		perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING}
	for e, err := range c.List(ctx, client.ListOptions{Function: o.function, Status: open}) {
		if err != nil {
			return n, err
		}
		if err := write(e.GetId()); err != nil {
			return n, err
		}
	}
	return n, nil
}

// exportJournal is an execution as a task with its whole journal.
func exportJournal(ctx context.Context, c *client.Client, id string) (*perdurev1.Task, error) {
	e, err := c.Describe(ctx, id)
	if err != nil {
		return nil, err
	}
	task := &perdurev1.Task{Token: &perdurev1.TaskToken{Namespace: e.GetNamespace(), Id: e.GetId(), Incarnation: e.GetIncarnation()},
		Function: e.GetFunction(), Status: e.GetStatus(), CreatedMs: e.GetCreatedMs(), DeadlineMs: e.GetDeadlineMs(), Tags: e.GetTags()}
	if e.GetCleanupOf() != "" {
		task.CleanupOf = &perdurev1.CleanupOf{Id: e.GetCleanupOf()}
	}
	for entry, err := range c.Journal(ctx, id) {
		if err != nil {
			return nil, err
		}
		task.Entries = append(task.Entries, entry)
	}
	task.NextSeq = uint64(len(task.Entries))
	return task, nil
}

// runWorker starts the worker and waits until it has judged all journals of a file, or ended.
func runWorker(ctx context.Context, o replayCheck, a *app, in, out string) ([]durable.ReplayVerdict, error) {
	journals, err := os.ReadFile(in)
	if err != nil {
		return nil, err
	}
	want := 0
	for line := range bytes.Lines(journals) {
		if len(bytes.TrimSpace(line)) > 0 {
			want++
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.within)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.worker, o.workerArgs...)
	cmd.Env = append(os.Environ(), durable.ReplayCheckIn+"="+in, durable.ReplayCheckOut+"="+out)
	cmd.Stdout, cmd.Stderr = a.stderr, a.stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		if strings.Contains(o.worker, " ") {
			err = &hintedError{err, "--worker is the program alone; each argument goes to a --worker-arg of its own"}
		}
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for over := false; ; {
		verdicts, err := readVerdicts(out)
		if err != nil || len(verdicts) >= want {
			if !over {
				cancel() // Run has returned, and the program may do something else now
				<-ended  //nolint:errcheck // it was killed
			}
			return verdicts, err
		}
		if over {
			return nil, fmt.Errorf("worker %s ended after %d of %s: does it call durable.Worker.Run?", printable(o.worker), len(verdicts), nounText(want, "journal"))
		}
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				return nil, fmt.Errorf("worker %s took longer than %s", printable(o.worker), o.within)
			}
			if over = true; err != nil {
				fmt.Fprintf(a.stderr, "worker %s: %v\n", printable(o.worker), err)
			}
		case <-look.C:
		}
	}
}

// readVerdicts reads the whole lines of a file that is being written.
func readVerdicts(name string) (out []durable.ReplayVerdict, err error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(data) {
		if err != nil || !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var v durable.ReplayVerdict
		err = json.Unmarshal(line, &v)
		out = append(out, v)
	}
	return out, err
}

// printVerdicts shows the verdicts. The error says how many journals the code does not fit.
func (a *app) printVerdicts(verdicts []durable.ReplayVerdict) error {
	wrong := 0
	for _, v := range verdicts {
		if !v.Fits {
			wrong++
		}
		if a.json {
			if err := a.printJSON(object{{"id", v.ID}, {"function", v.Function}, {"fits", v.Fits}, {"events", v.Events}, {"operations", int(v.Operations)},
				{"at", v.At}, {"event", v.Event}, {"journal", v.Journal}, {"code", v.Code}, {"problem", v.Problem}}); err != nil {
				return err
			}
			continue
		}
		text := fmt.Sprintf("fits: %s, %s", nounText(v.Events, "event"), nounText(int(v.Operations), "operation"))
		switch {
		case v.At != "":
			text = fmt.Sprintf("differs at %s, event %d: %s is in the journal, %s", printable(v.At), v.Event, printable(v.Journal), printable(v.Code))
		case !v.Fits:
			text = "cannot be checked: " + printable(v.Problem)
		}
		if _, err := fmt.Fprintf(a.out, "%s (%s) %s\n", printable(v.ID), orDash(v.Function), text); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("the code does not fit %d of %s", wrong, nounText(len(verdicts), "journal"))
	}
	if !a.json {
		fmt.Fprintf(a.stderr, "the code fits %s\n", nounText(len(verdicts), "journal"))
	}
	return nil
}
