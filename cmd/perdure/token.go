package main

import "github.com/spf13/cobra"

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make the tokens that nodes ask for",
		Long: `Make the tokens that nodes ask for. A node knows them by a file of hashes
(node start --tokens-file), each with a name, a namespace and a role.`,
		Example: `  perdure token hash --new --name ci --role write >> tokens.yaml`,
		Args:    noSuchCommand,
		RunE:    func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.tokenHashCommand())
	return cmd
}
