// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// planFlags are the flags of "group plan".
type planFlags struct {
	group                     string
	partitions, members, then int
	assigner                  *enum
}

func newGroupPlanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Compute what a change of the number of members moves, of a group that exists or of any size",
		Long: `Compute what a group whose number of members changes would move: how many partitions get another owner (moved), the fewest that any
best balanced plan moves (minimum), and how many partitions the members with the most and with the least have afterwards (maxLoad, minLoad).
Nothing is touched.

With --group the group's members, and what they read now, are asked of a broker, and which partitions would go from whom to whom is printed too.
Members are known by their instance id where they have one, else by their member id. Those that come are called new-1, new-2 and so on, and read
every topic that the group reads; those that leave are the last by id. Of a partition that goes "from" nobody the group has no reader now.

Without --group, one topic with --partitions is divided among --members anew, and no broker is asked.`,
		Example: `  ringmaster group plan --group billing --then 7
  ringmaster group plan --partitions 12 --members 3 --then 4
  ringmaster group plan --partitions 10000 --members 1000 --then 1001 --assigner ConsistentHash -o json`,
		Args: nothing,
	}
	f := &planFlags{assigner: newEnum("ConsistentHash", assigner.Names()...)}
	cmd.Flags().StringVar(&f.group, "group", "", "the name of a group that exists")
	cmd.Flags().IntVar(&f.partitions, "partitions", 0, "how many partitions there are, from 1 to 1000000")
	cmd.Flags().IntVar(&f.members, "members", 0, "how many members there are before, from 0 to 100000")
	cmd.Flags().IntVar(&f.then, "then", 0, "how many members there are afterwards, from 0 to 100000")
	addEnum(cmd, f.assigner, "assigner", "", "the assigner")
	required(cmd, "then")
	noFiles(cmd, "group", "partitions", "members", "then")
	client, output := addClientFlags(cmd), addOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		a, err := assigner.ByName(f.assigner.value)
		if err != nil {
			return usageError{err.Error()}
		}
		size := cmd.Flags().Changed("partitions") || cmd.Flags().Changed("members")
		switch {
		case f.group != "" && size:
			return usagef("give --group, or --partitions and --members, not both")
		case f.group != "":
			return f.live(cmd, client, output, a)
		case !cmd.Flags().Changed("partitions") || !cmd.Flags().Changed("members"):
			return usagef("give --group, or --partitions and --members")
		}
		return f.simulate(cmd, output, a)
	})
	return cmd
}

// simulate prints the plan of a group that is made up.
func (f *planFlags) simulate(cmd *cobra.Command, output *enum, a assigner.Assigner) error {
	sim, err := assigner.Simulate(a, f.partitions, f.members, f.then)
	if err != nil {
		return usageError{err.Error()}
	}
	if output.value == outputJSON {
		return printJSON(cmd.OutOrStdout(), sim)
	}
	t := newTable("ASSIGNER", "MOVED", "MINIMUM", "MAX LOAD", "MIN LOAD")
	t.row(a.Name(), sim.Moved, sim.Minimum, sim.MaxLoad, sim.MinLoad)
	return t.print(cmd.OutOrStdout())
}

// live prints the plan of a group that exists.
func (f *planFlags) live(cmd *cobra.Command, flags *clientFlags, output *enum, a assigner.Assigner) error {
	if err := assigner.CheckMembers(f.then); err != nil {
		return usagef("--then: %v", err)
	}
	ctx, c, done, err := flags.dial(cmd)
	if err != nil {
		return err
	}
	defer done()
	members, err := c.planMembers(ctx, f.group)
	if err != nil {
		return err
	}
	partitions, err := c.planPartitions(ctx, members)
	if err != nil {
		return fmt.Errorf("plan group %s: %w", f.group, err)
	}
	plan := planGroup(a, members, partitions, f.then)
	plan.Group = f.group
	if output.value == outputJSON {
		return printJSON(cmd.OutOrStdout(), plan)
	}
	return plan.print(cmd)
}
