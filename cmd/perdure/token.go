package main

import "github.com/spf13/cobra"

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make access tokens",
		Long: `Make access tokens. A node reads their hashes from a file (node start --tokens-file),
each with a name, a namespace and a role.`,
		Example: `  perdure token hash --new --name ci --role write >> tokens.yaml`,
		Args:    noSuchCommand,
		RunE:    func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.tokenHashCommand())
	return cmd
}
