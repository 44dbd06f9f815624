// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newGroupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "List, describe and delete consumer groups, and compute what a rebalance would move",
		Long: `List, describe and delete consumer groups, through any broker, and compute what a change of the number of members would move. In
Kubernetes "kubectl get consumergroups" shows the same of groups that are resources.`,
		Example: "  ringmaster group list\n  ringmaster group describe billing",
	}
	parent(cmd)
	cmd.AddCommand(newGroupListCommand(), newGroupDescribeCommand(), newGroupDeleteCommand(), newGroupPlanCommand(), newGroupCoordinatorCommand())
	return cmd
}

// groupJSON is what "group list -o json" prints for each group.
type groupJSON struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Type        string `json:"type"`
	Coordinator int32  `json:"coordinator"`
}

func newGroupListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the consumer groups",
		Long:    "List the consumer groups by name, with their state and the broker (node id) that coordinates them.",
		Example: "  ringmaster group list\n  ringmaster group list -o json",
		Args:    nothing,
	}
	flags, output := addClientFlags(cmd), addOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		groups, err := c.adm.ListGroups(ctx)
		if err != nil {
			return c.explain("list groups", err, "")
		}
		list := make([]groupJSON, 0, len(groups))
		t := newTable("GROUP", "STATE", "COORDINATOR")
		for _, g := range groups.Sorted() {
			list = append(list, groupJSON{Group: g.Group, State: g.State, Type: g.ProtocolType, Coordinator: g.Coordinator})
			t.row(g.Group, g.State, g.Coordinator)
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), list)
		}
		return t.print(cmd.OutOrStdout())
	})
	return cmd
}

func newGroupDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete GROUP",
		Short: "Delete a consumer group and its committed offsets",
		Long: `Delete a consumer group and its committed offsets, at once and without asking. A group that has members cannot be deleted; stop
them first.`,
		Example:           "  ringmaster group delete billing",
		Args:              named("the name of a GROUP"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, output := addClientFlags(cmd), addOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		if _, err := c.adm.DeleteGroup(ctx, args[0]); err != nil {
			return c.groupError("delete group "+args[0], args[0], err)
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), struct {
				Group string `json:"group"`
			}{args[0]})
		}
		return printf(cmd.OutOrStdout(), "deleted group %s\n", args[0])
	})
	return cmd
}

func errNoGroup(group string) error {
	return fmt.Errorf("group %q does not exist; see `ringmaster group list`", group)
}
