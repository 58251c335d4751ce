package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) clusterTransferCommand() *cobra.Command {
	var (
		partition uint32
		from, to  string
	)
	cmd := &cobra.Command{
		Use:   "transfer",
		Short: "Transfer leaderships to another node",
		Long: `Transfer the leadership of one partition, or all leaderships of a node, before that
node stops or because it is slow. The command returns when the new leaders serve.
Acknowledged writes and running executions are unaffected; calls may take longer
during the transfer.

The cluster balances leaderships, so the node may lead again later.

Exit codes: 0 done, 2 bad usage, 3 no such partition or node, 4 another node
leads the partition, 5 unavailable (retry).`,
		Example: `  perdure cluster transfer --partition 2 --to n3
  perdure cluster transfer --partition 2
  perdure cluster transfer --from n1`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.Uint32Var(&partition, "partition", 0, "`number` of the partition to transfer")
	flags.StringVar(&from, "from", "", "`node` whose leaderships to transfer, all of them")
	flags.StringVar(&to, "to", "", "`node` to lead; chosen by the cluster if missing")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, _ []string) error {
		one := flags.Changed("partition")
		switch {
		case one && flags.Changed("from"):
			return usagef("--partition and --from: one of them")
		case !one && from == "":
			return usagef("--partition or --from is missing: what is to be led by another node?")
		case flags.Changed("to") && to == "":
			return usagef("--to: names no node")
		}
		r := &perdurev1.TransferLeadershipRequest{FromNode: from, ToNode: to}
		if one {
			r.Partition = &partition
		}
		return a.transfer(ctx, c, r)
	})
	return cmd
}

// transfer transfers leaderships and prints the new leaders.
func (a *app) transfer(ctx context.Context, c *client.Client, r *perdurev1.TransferLeadershipRequest) error {
	moved, err := c.TransferLeadership(ctx, r)
	if err != nil {
		return hintSteered(err)
	}
	if a.json {
		items := make([]any, len(moved))
		for i, m := range moved {
			items[i] = messageObject(m.ProtoReflect())
		}
		if err := a.printJSON(object{{"transferred", items}}); err != nil {
			return err
		}
	} else {
		for _, m := range moved {
			fmt.Fprintf(a.out, "partition %d is led by %s\n", m.GetPartition(), orDash(m.GetLeader()))
		}
		if len(moved) == 0 && r.GetFromNode() != "" {
			fmt.Fprintf(a.out, "%s leads nothing\n", printable(r.GetFromNode()))
		}
	}
	for _, m := range moved {
		if m.GetLeader() != r.GetToNode() && r.GetToNode() != "" || m.GetLeader() == r.GetFromNode() && r.GetFromNode() != "" {
			return &conflictError{fmt.Sprintf("partition %d", m.GetPartition()),
				fmt.Sprintf("partition %d is led by %s now", m.GetPartition(), dash(m.GetLeader()))}
		}
	}
	return nil
}
