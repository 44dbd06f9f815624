// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// maxPartitions is the largest number of partitions that a topic may have.
const maxPartitions = 10000

func newTopicCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "Create, list, describe, change and delete topics",
		Long: `Create, list, describe, change and delete topics, through any broker. In Kubernetes a topic is a Topic resource: what is
created here becomes one, and kubectl sees it.`,
		Example: "  ringmaster topic create orders --partitions 12\n  ringmaster topic list",
	}
	parent(cmd)
	cmd.AddCommand(newTopicCreateCommand(), newTopicListCommand(), newTopicDescribeCommand(), newTopicAlterCommand(), newTopicAddPartitionsCommand(),
		newTopicDeleteRecordsCommand(), newTopicDeleteCommand())
	return cmd
}

// topicJSON is what "topic list -o json" prints for each topic, and create, add-partitions and delete for theirs.
type topicJSON struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Internal   bool   `json:"internal"`
}

func topicOf(d kadm.TopicDetail) topicJSON {
	return topicJSON{Name: d.Topic, ID: topicID(d.ID), Partitions: len(d.Partitions), Internal: d.IsInternal}
}

// topicID prints an id as Kafka does, in unpadded URL-safe base64, so that it equals the Topic resource's status.topicID.
func topicID(id kadm.TopicID) string {
	return strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(id.String())
}

func newTopicListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the topics",
		Long:    "List the topics by name. The brokers' own topics are listed with --internal alone.",
		Example: "  ringmaster topic list\n  ringmaster topic list --internal -o json",
		Args:    nothing,
	}
	flags, output := addClientFlags(cmd), addOutput(cmd)
	internal := cmd.Flags().Bool("internal", false, "list the brokers' own topics too")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		topics, err := c.adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return c.explain("list topics", err, "")
		}
		if !*internal {
			topics.FilterInternal()
		}
		list := make([]topicJSON, 0, len(topics))
		t := newTable("TOPIC", "PARTITIONS", "INTERNAL")
		for _, d := range topics.Sorted() {
			topic := topicOf(d)
			list = append(list, topic)
			t.row(topic.Name, topic.Partitions, topic.Internal)
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), list)
		}
		return t.print(cmd.OutOrStdout())
	})
	return cmd
}

// topic returns a topic's details; one that does not exist is an error that says how to make it.
func (c *client) topic(ctx context.Context, name string) (kadm.TopicDetail, error) {
	topics, err := c.adm.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, c.explain("look up topic "+name, err, "")
	}
	d, ok := topics[name]
	switch {
	case !ok, errors.Is(d.Err, kerr.UnknownTopicOrPartition):
		return d, errNoTopic(name)
	case d.Err != nil:
		return d, c.explain("look up topic "+name, d.Err, "")
	}
	return d, nil
}

// topicDetailJSON is what "topic describe -o json" prints.
type topicDetailJSON struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Internal   bool              `json:"internal"`
	Config     map[string]string `json:"config"`
	Partitions []partitionJSON   `json:"partitions"`
}

// partitionJSON is a partition. Offsets are -1 where its leader did not answer.
type partitionJSON struct {
	Partition   int32 `json:"partition"`
	Leader      int32 `json:"leader"`
	StartOffset int64 `json:"startOffset"`
	EndOffset   int64 `json:"endOffset"`
}

func newTopicDescribeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe NAME",
		Short: "Show a topic's configuration and partitions",
		Long: `Show a topic's configuration, and each partition's leader (a broker's node id; -1 for none), the offset of its oldest record
and the offset that its next record gets (-1 where the leader does not answer).`,
		Example:           "  ringmaster topic describe orders\n  ringmaster topic describe orders -o json",
		Args:              named("the NAME of a topic"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, output := addClientFlags(cmd), addOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		d, err := c.describeTopic(ctx, args[0])
		if err != nil {
			return err
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), d)
		}
		return d.print(cmd)
	})
	return cmd
}

func (c *client) describeTopic(ctx context.Context, name string) (topicDetailJSON, error) {
	topic, err := c.topic(ctx, name)
	if err != nil {
		return topicDetailJSON{}, err
	}
	config, err := c.topicConfig(ctx, name)
	if err != nil {
		return topicDetailJSON{}, err
	}
	// What a leader does not say shows as -1: a topic can be described while a broker is down.
	starts, _ := c.adm.ListStartOffsets(ctx, name)
	ends, _ := c.adm.ListEndOffsets(ctx, name)
	at := func(l kadm.ListedOffsets, p int32) int64 {
		if o, ok := l.Lookup(name, p); ok && o.Err == nil {
			return o.Offset
		}
		return -1
	}
	d := topicDetailJSON{Name: name, ID: topicID(topic.ID), Internal: topic.IsInternal, Config: config, Partitions: []partitionJSON{}}
	for _, p := range topic.Partitions.Sorted() {
		d.Partitions = append(d.Partitions, partitionJSON{
			Partition: p.Partition, Leader: p.Leader, StartOffset: at(starts, p.Partition), EndOffset: at(ends, p.Partition),
		})
	}
	return d, nil
}

func (d *topicDetailJSON) print(cmd *cobra.Command) error {
	keys := make([]string, 0, len(d.Config))
	for k := range d.Config {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	w := cmd.OutOrStdout()
	pairs := []string{"Topic", d.Name, "ID", d.ID}
	for i, k := range keys {
		label := "Config"
		if i > 0 {
			label = ""
		}
		pairs = append(pairs, label, k+"="+d.Config[k])
	}
	if err := printFields(w, pairs...); err != nil {
		return err
	}
	t := newTable("PARTITION", "LEADER", "START", "END")
	for _, p := range d.Partitions {
		t.row(p.Partition, p.Leader, p.StartOffset, p.EndOffset)
	}
	if err := printf(w, "\n"); err != nil {
		return err
	}
	return t.print(w)
}

// partitionsInRange checks a number of partitions that a user gave.
func partitionsInRange(flag string, n int) error {
	if n < 1 || n > maxPartitions {
		return usagef("--%s must be from 1 to %d, not %d", flag, maxPartitions, n)
	}
	return nil
}

// clampInt32 is n as far as an int32 holds it.
func clampInt32(n int64) int32 { return int32(max(math.MinInt32, min(math.MaxInt32, n))) }
