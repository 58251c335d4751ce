package main

import (
	"context"

	"github.com/spf13/cobra"

	"perdure/journal/conformance"
)

func (a *app) journalCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check journals on stdin against the journal rules",
		Long: `Read cases from standard input and write verdicts to standard output, one JSON
object per line each way. A case is a journal and one more event to append:

  {"id": "c1", "eid": [1], "journal": [{"ts": 0, "event": {…}}, …],
   "append": {"seq": 5, "ts": 9, "event": {…}}}

and its verdict says whether the append is accepted, and the status afterwards:

  {"id": "c1", "accept": false, "status": "Running", "nextChildSeq": 1}

Verdicts do not influence the exit code. No node is needed.`,
		Example: `  zcat cases.jsonl.gz | perdure journal check > verdicts.jsonl`,
		Args:    cobra.NoArgs,
		RunE: do(func(context.Context, []string) error {
			return conformance.CheckLines(a.stdin, a.out)
		}),
	}
}
