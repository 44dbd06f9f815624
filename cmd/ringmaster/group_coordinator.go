// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// tagCoordinatorSince is the tagged field of DescribeGroups in which a broker of ours says since when it coordinates the group: an int64, big endian, in
// milliseconds since 1970.
const tagCoordinatorSince = 10001

// coordinatorJSON is what "group coordinator -o json" prints.
type coordinatorJSON struct {
	Group       string `json:"group"`
	Coordinator int32  `json:"coordinator"`
	Address     string `json:"address"`
	// Since is RFC 3339; null where the broker does not tell.
	Since *string `json:"since"`
}

func newGroupCoordinatorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coordinator GROUP",
		Short: "Show which broker coordinates a consumer group, and since when",
		Long: `Show which broker coordinates a consumer group, and since when. It takes the group's commits and decides who is a member. Each group id has a
coordinator, whether or not there is such a group.`,
		Example:           "  ringmaster group coordinator billing\n  ringmaster group coordinator billing -o json",
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
		j, err := c.coordinator(ctx, args[0])
		if err != nil {
			return err
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), j)
		}
		t := newTable("GROUP", "COORDINATOR", "ADDRESS", "SINCE")
		since := "-"
		if j.Since != nil {
			since = *j.Since
		}
		t.row(j.Group, j.Coordinator, j.Address, since)
		return t.print(cmd.OutOrStdout())
	})
	return cmd
}

// coordinator finds a group's coordinator, and asks it since when it is that.
func (c *client) coordinator(ctx context.Context, group string) (*coordinatorJSON, error) {
	what := "find the coordinator of group " + group
	found := c.adm.FindGroupCoordinators(ctx, group)
	if err := found.Error(); err != nil {
		return nil, c.explain(what, err, "")
	}
	at, ok := found[group]
	if !ok {
		return nil, fmt.Errorf("%s: the broker answers for another group", what)
	}
	j := &coordinatorJSON{Group: group, Coordinator: at.NodeID, Address: net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return nil, c.explain("describe group "+group, err, "")
	}
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("describe group %s: the broker answers for %d groups", group, len(resp.Groups))
	}
	if err := kerr.ErrorForCode(resp.Groups[0].ErrorCode); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, c.explain("describe group "+group, err, "")
	}
	resp.Groups[0].UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == tagCoordinatorSince && len(value) == 8 {
			since := time.UnixMilli(int64(binary.BigEndian.Uint64(value))).UTC().Format(time.RFC3339)
			j.Since = &since
		}
	})
	return j, nil
}
