package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) replicaForgetQuarantinedCommand() *cobra.Command {
	var (
		node, name string
		partition  uint32
	)
	cmd := &cobra.Command{
		Use:     "forget-quarantined",
		Aliases: []string{"forget-kept"}, // its earlier name
		Short:   "Delete quarantined replicas of a partition",
		Long: `Delete a node's quarantined replicas of a partition. "replica rebuild" quarantines
the files of the replica that it replaces; this command deletes them. "perdure
cluster status" lists them.

The current replica is never touched. While it is halted or being rebuilt the command
is refused, because the quarantined files may be the node's best copy.

Exit codes: 0 done, or nothing to delete, 2 bad usage, 3 no such partition or node,
4 refused, 5 unavailable (retry).`,
		Example: `  perdure replica forget-quarantined --node n3 --partition 2
  perdure replica forget-quarantined --node n3 --partition 2 --name kept-0002-20260102T030405.678`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.StringVar(&node, "node", "", "`name` of the node (required)")
	flags.Uint32Var(&partition, "partition", 0, "`number` of the partition (required)")
	flags.StringVar(&name, "name", "", "`folder` to delete; all of the partition if missing")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, _ []string) error {
		switch {
		case node == "":
			return usagef("--node is missing")
		case !flags.Changed("partition"):
			return usagef("--partition is missing")
		case flags.Changed("name") && name == "":
			return usagef("--name: names none")
		}
		return a.forgetQuarantined(ctx, c, node, partition, name)
	})
	return cmd
}

// forgetQuarantined deletes quarantined replicas and prints which.
func (a *app) forgetQuarantined(ctx context.Context, c *client.Client, node string, partition uint32, name string) error {
	forgotten, err := c.ForgetQuarantined(ctx, node, partition, name)
	if err != nil {
		return hintSteered(err)
	}
	if a.json {
		items := make([]any, len(forgotten))
		for i, k := range forgotten {
			items[i] = messageObject(k.ProtoReflect())
		}
		return a.printJSON(object{{"node_id", node}, {"forgotten", items}})
	}
	for _, k := range forgotten {
		fmt.Fprintf(a.out, "%s of %s is deleted: %s\n", orDash(k.GetName()), printable(node), bytesText(k.GetBytes()))
	}
	if len(forgotten) == 0 {
		fmt.Fprintf(a.out, "%s keeps nothing of that kind\n", printable(node))
	}
	return nil
}

// forgetQuarantinedLine is the command line that deletes a node's quarantined replicas of a partition.
func forgetQuarantinedLine(node string, partition uint32) string {
	return fmt.Sprintf("perdure replica forget-quarantined --node %s --partition %d", shellWord(node), partition)
}

// bytesText is a number of bytes for people: "912 B", "13.4 MB".
func bytesText(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v := float64(n)
	for _, unit := range []string{"kB", "MB", "GB"} {
		if v /= 1000; v < 999.95 {
			return fmt.Sprintf("%.1f %s", v, unit)
		}
	}
	return fmt.Sprintf("%.1f TB", v/1000)
}
