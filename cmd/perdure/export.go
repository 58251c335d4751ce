package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
)

const (
	// historyFormat and historyVersion are in the first line of a file of histories.
	historyFormat  = "perdure-history"
	historyVersion = 1
)

// historyLine is a line of a file of histories that is no record: the first, the last, and those before the records of a
// tree. The other lines are perdurev1.HistoryRecord in JSON.
type historyLine struct {
	Format  string `json:"format,omitempty"`
	Version int    `json:"version,omitempty"`
	// Namespace and ID are what was exported.
	Namespace string `json:"namespace,omitempty"`
	ID        string `json:"id,omitempty"`
	// Tree is the root id of the records that follow.
	Tree string `json:"tree,omitempty"`
	// Missing is a child elsewhere that had been deleted.
	Missing string `json:"missing,omitempty"`
	// End has what is in the file before the last line.
	End *historyEnd `json:"end,omitempty"`
}

type historyEnd struct {
	Trees   int `json:"trees"`
	Records int `json:"records"`
	// SHA256 is the hash of all bytes before the line, in hex.
	SHA256 string `json:"sha256"`
}

// encode is the line with its end.
func (l historyLine) encode() ([]byte, error) {
	b, err := json.Marshal(l)
	return append(b, '\n'), err
}

func (a *app) exportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export ID",
		Short: "Write an execution that has ended as JSON lines",
		Long: `Write an execution or graph run that has ended to standard output, with all that is below
it: children, also those in other partitions, journals, promises, nodes and signals.

The first line has format and version, the last one the number of records and the hash
of all bytes before it. Each line between is one record, such as
  {"execution":{"id":"order-42","function":"order","status":"EXECUTION_STATUS_COMPLETED",…}}
  {"event":{"id":"order-42","entry":{"seq":"0",…}}}
api/perdure/v1/histories.proto has them all. A line {"tree":"ID"} comes before those of a
tree, a line {"missing":"ID"} is a child that was deleted before. Payloads are base64, as
they are stored: no codec decodes them.

An execution that has not ended is refused, and so is one with an open child: a copy of it
would run a second time. Move those with a backup of the cluster. One that began anew under
its id, by a restart, a retry or a continue-as-new, is refused as well.`,
		Example: `  perdure export order-42 > order-42.jsonl
  perdure export order-42 --namespace billing | gzip > order-42.jsonl.gz`,
		Args: exactly("ID"),
		RunE: a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
			if id.Origin(args[0]) != args[0] {
				return usagef("%q is part of %q: export that", args[0], id.Origin(args[0]))
			}
			return a.export(ctx, c, args[0])
		}),
	}
}

// export writes the tree of an execution, and those of its children elsewhere.
func (a *app) export(ctx context.Context, c *client.Client, root string) error {
	w := &historyWriter{out: a.out, sum: sha256.New()}
	if err := w.line(historyLine{Format: historyFormat, Version: historyVersion, Namespace: c.Namespace(), ID: root}); err != nil {
		return err
	}
	// callers are, by tree, those of the executions that have called it.
	callers, found, missing := map[string]string{root: ""}, []string{root}, 0
	for n := 0; n < len(found); n++ {
		children, exists, err := a.exportTree(ctx, c, w, found[n], callers[found[n]])
		if err == nil && !exists {
			missing++
			err = w.line(historyLine{Missing: found[n]})
		}
		if err != nil {
			return err
		}
		for _, child := range children {
			if _, seen := callers[child]; !seen {
				callers[child] = found[n]
				found = append(found, child)
			}
		}
	}
	w.end.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	if err := w.line(historyLine{End: &w.end}); err != nil {
		return err
	}
	deleted := ""
	if missing > 0 {
		deleted = fmt.Sprintf("; %s had been deleted", nounText(missing, "child tree"))
	}
	_, err := fmt.Fprintf(a.stderr, "%s, %s%s\n", nounText(w.end.Trees, "tree"), nounText(w.end.Records, "record"), deleted)
	return err
}

// exportTree writes one tree and returns the children elsewhere that it names. exists is false for the tree of a caller's
// child that is gone, or whose id another execution has since.
func (a *app) exportTree(ctx context.Context, c *client.Client, w *historyWriter, tree, caller string) (children []string, exists bool, err error) {
	for rec, err := range c.Export(ctx, tree) {
		if e := (*api.Error)(nil); caller != "" && !exists && errors.As(err, &e) && e.Reason == perdurev1.Reason_REASON_EXECUTION_NOT_FOUND {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		if !exists {
			// The execution itself comes first.
			if caller != "" && id.Origin(rec.GetExecution().GetParent()) != caller {
				return nil, false, nil
			}
			if err := w.line(historyLine{Tree: tree}); err != nil {
				return nil, false, err
			}
			exists = true
			w.end.Trees++
		}
		if child := rec.GetPromise().GetChild(); child != "" {
			children = append(children, child)
		}
		if err := w.record(rec); err != nil {
			return nil, false, err
		}
	}
	return children, exists, nil
}

// historyWriter writes lines, and hashes and counts them.
type historyWriter struct {
	out io.Writer
	sum hash.Hash
	end historyEnd
}

func (w *historyWriter) line(l historyLine) error {
	b, err := l.encode()
	if err != nil {
		return err
	}
	return w.write(b)
}

func (w *historyWriter) record(rec *perdurev1.HistoryRecord) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(rec)
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil { // protojson varies its spaces
		return err
	}
	w.end.Records++
	return w.write(append(compact.Bytes(), '\n'))
}

func (w *historyWriter) write(b []byte) error {
	_, _ = w.sum.Write(b) // a hash takes all
	_, err := w.out.Write(b)
	return err
}
