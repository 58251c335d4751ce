package main

import "github.com/spf13/cobra"

func (a *app) replicaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replica",
		Short: "Repair a partition replica",
		Long: `Repair one node's replica of a partition. "perdure cluster status" shows halted
replicas with the reason, and quarantined ones.`,
		Example: `  perdure replica rebuild --node n3 --partition 2
  perdure replica forget-quarantined --node n3 --partition 2`,
		Args: noSuchCommand,
		RunE: func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.replicaRebuildCommand(), a.replicaForgetQuarantinedCommand())
	return cmd
}
