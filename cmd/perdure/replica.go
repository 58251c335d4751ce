package main

import "github.com/spf13/cobra"

func (a *app) replicaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replica",
		Short: "Mend one node's copy of a partition",
		Long: `Mend one node's copy of a partition. "perdure cluster status" shows which one has
halted, and why, and what is kept of former ones.`,
		Example: `  perdure replica rebuild --node n3 --partition 2
  perdure replica forget-kept --node n3 --partition 2`,
		Args: noSuchCommand,
		RunE: func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.replicaRebuildCommand(), a.replicaForgetKeptCommand())
	return cmd
}
