package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// Bounds of a file of histories.
const (
	// maxHistoryLine bounds a line: a record with a payload in base64.
	maxHistoryLine = 24 << 20
	// maxHistoryTrees bounds the trees of a file.
	maxHistoryTrees = 1_000_000
	// maxTreeBytes and maxTreeRecords bound a tree, as the server does.
	maxTreeBytes   = 16 << 20
	maxTreeRecords = 250_000
)

func (a *app) importCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Store executions that ended in another cluster",
		Long: `Store what "perdure export" has written, - for standard input, as executions that have
ended: list, describe, journal, result and graph status show them, and a start of such an
id finds it. The namespace is that of --namespace, whatever the file says. Nothing of it
runs.

The file is checked first: one that was cut off or changed is refused. Then every tree is
checked by all rules of "perdure verify", before the first is stored. A tree is stored whole
or not at all; children in other partitions come before what called them.

An id that exists with the same history is left as it is, so an interrupted import is
repeated. One that exists with another history, or is open, is refused. A tree of more than
16 MiB is refused: restore a backup of the cluster instead.

What is imported keeps its times. Where --retention is shorter than the time since its end,
it is soon deleted again: give its namespace a longer one.

Exit codes: 0 done, 1 the file is damaged, 2 bad usage, 4 refused, 5 unavailable (retry).`,
		Example: `  perdure import order-42.jsonl
  zcat order-42.jsonl.gz | perdure import - --namespace archive --dry-run`,
		Args: exactly("FILE"),
		RunE: a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
			return a.importFile(ctx, c, args[0], dryRun)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, store nothing")
	return cmd
}

// importFile imports the histories of a file.
func (a *app) importFile(ctx context.Context, c *client.Client, path string, dryRun bool) (err error) {
	f, err := a.openHistories(path)
	if err != nil {
		return usagef("%v", err)
	}
	defer func() { err = errors.Join(err, f.close()) }()
	trees, err := readHistories(f)
	if err != nil {
		return &damagedHistoryError{path, err}
	}
	stored, existed := 0, 0
	for _, dry := range []bool{true, false} {
		if dryRun && !dry {
			break
		}
		for _, t := range slices.Backward(trees) {
			was := false
			records, err := t.read(path, f)
			if err == nil {
				was, err = c.ImportHistory(ctx, t.id, records, client.ImportOptions{DryRun: dry})
			}
			switch {
			case err != nil:
				return adviseImport(err)
			case dry:
			case was:
				existed++
			default:
				stored++
			}
		}
	}
	switch {
	case a.json:
		return a.printJSON(object{{"trees", len(trees)}, {"stored", stored}, {"existed", existed}, {"dry_run", dryRun}})
	case dryRun:
		_, err = fmt.Fprintf(a.out, "%s can be stored\n", nounText(len(trees), "tree"))
	default:
		_, err = fmt.Fprintf(a.out, "%s stored, %d existed\n", nounText(stored, "tree"), existed)
	}
	return err
}

// adviseImport says what to do about a refusal.
func adviseImport(err error) error {
	e, ok := api.FromStatus(err)
	switch {
	case ok && e.Reason == perdurev1.Reason_REASON_ID_CONFLICT:
		return &hintedError{err, "import into another namespace, or purge the execution that exists"}
	case ok && e.Reason == perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE:
		return &hintedError{err, "restore a backup of the cluster instead"}
	}
	return err
}

// historyFile is a file of histories; temporary: a copy, which close deletes.
type historyFile struct {
	*os.File
	temporary bool
}

func (f historyFile) close() error {
	err := f.Close()
	if f.temporary {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// openHistories opens a file, or a copy of standard input: an import reads it three times.
func (a *app) openHistories(path string) (historyFile, error) {
	if path != "-" {
		f, err := os.Open(path)
		return historyFile{File: f}, err
	}
	tmp, err := os.CreateTemp("", "perdure-import-")
	if err != nil {
		return historyFile{}, err
	}
	f := historyFile{File: tmp, temporary: true}
	if _, err = io.Copy(f, a.stdin); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return historyFile{}, errors.Join(err, f.close())
	}
	return f, nil
}

// damagedHistoryError says that a file of histories is not what was exported.
type damagedHistoryError struct {
	path string
	err  error
}

func (e *damagedHistoryError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.path, e.err) }
func (e *damagedHistoryError) Unwrap() error { return e.err }

// historyTree is where the records of a tree are in a file.
type historyTree struct {
	id           string
	offset, size int64
}

// readHistories checks a file from its beginning to its end and returns its trees. It holds one line.
func readHistories(r io.Reader) (trees []historyTree, err error) {
	lines := newHistoryLines(r)
	sum, records := sha256.New(), 0
	for at := int64(0); ; {
		line, err := lines.next()
		if err != nil {
			return nil, err
		}
		if line == nil {
			return nil, errors.New("it has no last line: it was cut off")
		}
		own := historyLine{}
		first := at == 0
		at += int64(len(line))
		if err := json.Unmarshal(line, &own); err != nil {
			return nil, fmt.Errorf("line %d: %w", lines.n, err)
		}
		if own != (historyLine{}) {
			if canonical, err := own.encode(); err != nil || !bytes.Equal(canonical, line) {
				return nil, fmt.Errorf("line %d is not as it was written", lines.n)
			}
		}
		switch {
		case first:
			if own.Format != historyFormat || own.Version != historyVersion {
				return nil, fmt.Errorf("it begins with format %q, version %d; this program reads %q, version %d", own.Format, own.Version, historyFormat, historyVersion)
			}
		case own.Missing != "":
		case own.Tree != "":
			if len(trees) == maxHistoryTrees {
				return nil, fmt.Errorf("it has more than %d trees", maxHistoryTrees)
			}
			trees = append(trees, historyTree{id: own.Tree, offset: at})
		case own.End != nil:
			want := historyEnd{len(trees), records, hex.EncodeToString(sum.Sum(nil))}
			if *own.End != want {
				return nil, fmt.Errorf("it has %d records in %d trees with the hash %s, and the last line says %d, %d and %s",
					want.Records, want.Trees, want.SHA256, own.End.Records, own.End.Trees, own.End.SHA256)
			}
			if rest, err := lines.next(); rest != nil || err != nil {
				return nil, errors.Join(err, errors.New("something follows the last line"))
			}
			return trees, nil
		case len(trees) == 0 || own != (historyLine{}) || trees[len(trees)-1].offset+trees[len(trees)-1].size+int64(len(line)) != at:
			return nil, fmt.Errorf("line %d: a record of no tree", lines.n)
		default:
			records++
			trees[len(trees)-1].size += int64(len(line))
		}
		_, _ = sum.Write(line) // a hash takes all
	}
}

// read returns the records of the tree, those of one that a server may take.
func (t historyTree) read(path string, f io.ReaderAt) (records []*perdurev1.HistoryRecord, err error) {
	lines := newHistoryLines(io.NewSectionReader(f, t.offset, t.size))
	for size := 0; ; {
		line, err := lines.next()
		rec := &perdurev1.HistoryRecord{}
		if err == nil && line != nil {
			err = protojson.Unmarshal(line, rec)
		}
		switch {
		case err != nil:
			return nil, &damagedHistoryError{path, fmt.Errorf("tree %q, record %d: %w", t.id, lines.n, err)}
		case line == nil:
			return records, nil
		}
		records = append(records, rec)
		if size += proto.Size(rec); size > maxTreeBytes || len(records) > maxTreeRecords {
			return nil, api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "history of %q: exceeds %d MiB or %d records", t.id, maxTreeBytes>>20, maxTreeRecords).With("id", t.id)
		}
	}
}

// historyLines reads lines of at most maxHistoryLine bytes.
type historyLines struct {
	from *bufio.Reader
	n    int
}

func newHistoryLines(r io.Reader) *historyLines {
	return &historyLines{from: bufio.NewReaderSize(r, 1<<16)}
}

// next returns the next line with its end; nil at the end of the file. The line is valid until the next call.
func (l *historyLines) next() ([]byte, error) {
	l.n++
	var line bytes.Buffer
	for {
		part, err := l.from.ReadSlice('\n')
		line.Write(part)
		switch {
		case line.Len() > maxHistoryLine:
			return nil, fmt.Errorf("line %d has more than %d bytes", l.n, maxHistoryLine)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && line.Len() == 0:
			return nil, nil
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("line %d has no end: the file was cut off", l.n)
		case err != nil:
			return nil, err
		default:
			return line.Bytes(), nil
		}
	}
}
