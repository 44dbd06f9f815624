// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// beforeEnd stands for all records that there are, of every partition.
const beforeEnd = "end"

// trimmedJSON is what "topic delete-records -o json" prints.
type trimmedJSON struct {
	Topic      string                 `json:"topic"`
	Partitions []trimmedPartitionJSON `json:"partitions"`
}

// trimmedPartitionJSON is a partition whose records were deleted, and the offset of its oldest record now.
type trimmedPartitionJSON struct {
	Partition   int32 `json:"partition"`
	StartOffset int64 `json:"startOffset"`
}

func newTopicDeleteRecordsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete-records NAME --before PARTITION:OFFSET[,PARTITION:OFFSET]",
		Short: "Delete a topic's oldest records",
		Long: `Delete the records of a topic's partitions below offsets, at once and without asking; with --before end all records that there are. The records of a
topic that is only compacted cannot be deleted so.`,
		Example: `  ringmaster topic delete-records orders --before 0:1000,1:2000
  ringmaster topic delete-records orders --before end`,
		Args:              named("the NAME of a topic"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, output := addClientFlags(cmd), addOutput(cmd)
	before := cmd.Flags().String("before", "", "the first offset that stays of each partition, `PARTITION:OFFSET`, or the word end")
	noFiles(cmd, "before")
	required(cmd, "before")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		offsets, err := parseBefore(*before)
		if err != nil {
			return err
		}
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		trimmed, err := c.deleteRecords(ctx, args[0], offsets)
		if err != nil {
			return err
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), trimmed)
		}
		t := newTable("PARTITION", "START")
		for _, p := range trimmed.Partitions {
			t.row(p.Partition, p.StartOffset)
		}
		return t.print(cmd.OutOrStdout())
	})
	return cmd
}

// parseBefore parses --before; nil is the end of every partition.
func parseBefore(s string) (map[int32]int64, error) {
	if s == beforeEnd {
		return nil, nil //nolint:nilnil // see above
	}
	offsets := map[int32]int64{}
	for entry := range strings.SplitSeq(s, ",") {
		p, o, _ := strings.Cut(strings.TrimSpace(entry), ":")
		partition, err := strconv.ParseUint(p, 10, 31)
		offset, offsetErr := strconv.ParseUint(o, 10, 63)
		if err != nil || offsetErr != nil {
			return nil, usagef("--before: %q is not PARTITION:OFFSET, such as 0:1000, nor the word end", entry)
		}
		if _, twice := offsets[int32(partition)]; twice {
			return nil, usagef("--before gives partition %d twice", partition)
		}
		offsets[int32(partition)] = int64(offset)
	}
	return offsets, nil
}

func (c *client) deleteRecords(ctx context.Context, name string, before map[int32]int64) (trimmedJSON, error) {
	topic, err := c.topic(ctx, name)
	if err != nil {
		return trimmedJSON{}, err
	}
	offsets := kadm.Offsets{}
	if before == nil {
		for p := range topic.Partitions {
			offsets.Add(kadm.Offset{Topic: name, Partition: p, At: -1}) // -1 is Kafka's word for all
		}
	}
	for p, at := range before {
		if int(p) >= len(topic.Partitions) {
			return trimmedJSON{}, fmt.Errorf("topic %q has no partition %d: it has %s, from 0", name, p, count(len(topic.Partitions), "partition"))
		}
		offsets.Add(kadm.Offset{Topic: name, Partition: p, At: at})
	}
	what := "delete records of topic " + name
	rs, err := c.adm.DeleteRecords(ctx, offsets)
	if err != nil {
		return trimmedJSON{}, c.explain(what, err, "")
	}
	out := trimmedJSON{Topic: name, Partitions: []trimmedPartitionJSON{}}
	for _, r := range rs.Sorted() {
		if r.Err != nil {
			return trimmedJSON{}, c.explain(what+", partition "+strconv.Itoa(int(r.Partition)), r.Err, refusedDeletion(r.Err))
		}
		out.Partitions = append(out.Partitions, trimmedPartitionJSON{Partition: r.Partition, StartOffset: r.LowWatermark})
	}
	return out, nil
}

// refusedDeletion says what to do where a broker refused to delete records; its answer has an error code alone.
func refusedDeletion(err error) string {
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return "there is no such offset: give one from 0 to the partition's END, or end"
	case errors.Is(err, kerr.PolicyViolation):
		return "the topic is compacted, which keeps the last record of each key; add delete to its cleanup.policy first"
	case errors.Is(err, kerr.InvalidTopicException):
		return "the topic holds the brokers' own records"
	}
	return ""
}
