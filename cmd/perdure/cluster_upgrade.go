package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) clusterUpgradeCommand() *cobra.Command {
	var level uint64
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Raise the feature level after a new version is everywhere",
		Long: `Raise the cluster's feature level, after every node runs the new version.

Until then the nodes do only what the previous version does as well, so that one
or all of them can go back to it. Afterwards no node of an earlier version can
serve in the cluster: it refuses to start, or halts. "perdure cluster status"
shows the cluster's level and which level each node knows.

It is refused while a node does not know the level or has not been heard from, and
names those nodes. Repeating it is safe.

Exit codes: 0 done, 2 bad usage, 4 a node does not know the level, 5 unavailable,
ask again.`,
		Example: `  perdure cluster upgrade
  perdure cluster upgrade --level 5`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.Uint64Var(&level, "level", 0, "feature `level`; by default the newest that any node knows")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, _ []string) error {
		if flags.Changed("level") && level == 0 {
			return usagef("--level 0: levels begin at 1")
		}
		return a.upgrade(ctx, c, level)
	})
	return cmd
}

// upgrade raises the cluster's feature level and prints the new one.
func (a *app) upgrade(ctx context.Context, c *client.Client, level uint64) error {
	up, err := c.Upgrade(ctx, level)
	if err != nil {
		return hintSteered(err)
	}
	if a.json {
		return a.printJSON(messageObject(up.ProtoReflect()))
	}
	if up.GetFrom() == up.GetLevel() {
		fmt.Fprintf(a.out, "the cluster is at feature level %d already\n", up.GetLevel())
	} else {
		fmt.Fprintf(a.out, "the cluster is at feature level %d, it was at %d\n", up.GetLevel(), up.GetFrom())
	}
	if n := len(up.GetWaiting()); n > 0 {
		fmt.Fprintf(a.out, "%s not reached it yet; the leaders continue\n", map[bool]string{true: "1 partition has", false: nounText(n, "partition") + " have"}[n == 1])
	}
	return nil
}
