// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topicCreateFlags are the flags of "topic create".
type topicCreateFlags struct {
	topicConfigFlags
	partitions  int
	ifNotExists bool
}

func newTopicCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a topic",
		Long: `Create a topic. The name may have letters, digits, '.', '_' and '-', at most 249 of them.

Configuration entries have Kafka's names: retention.ms, retention.bytes, cleanup.policy, max.message.bytes, delete.retention.ms, flush.messages,
segment.bytes, segment.ms, message.timestamp.type.`,
		Example: `  ringmaster topic create orders --partitions 12
  ringmaster topic create audit --partitions 3 --retention 720h --config max.message.bytes=2097152
  ringmaster topic create state --config cleanup.policy=compact --if-not-exists`,
		Args:              named("the NAME of the topic"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, output, f := addClientFlags(cmd), addOutput(cmd), &topicCreateFlags{}
	cmd.Flags().IntVar(&f.partitions, "partitions", 0, "how many partitions, from 1 to 10000 (default: what the brokers are set to)")
	f.add(cmd, "what the brokers are set to")
	cmd.Flags().BoolVar(&f.ifNotExists, "if-not-exists", false, "succeed where the topic exists already, and leave it as it is")
	noFiles(cmd, "partitions")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		partitions := int32(-1)
		if cmd.Flags().Changed("partitions") {
			if err := partitionsInRange("partitions", f.partitions); err != nil {
				return err
			}
			partitions = int32(f.partitions)
		}
		config, err := f.entries()
		if err != nil {
			return err
		}
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		topic, created, err := c.createTopic(ctx, args[0], partitions, config, f.ifNotExists)
		if err != nil {
			return err
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), topic)
		}
		outcome := "created"
		if !created {
			outcome = "exists already:"
		}
		return printf(cmd.OutOrStdout(), "%s topic %s with %s\n", outcome, topic.Name, count(topic.Partitions, "partition"))
	})
	return cmd
}

// count is a number and what is counted, in the plural where it must be.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (c *client) createTopic(ctx context.Context, name string, partitions int32, config map[string]*string, mayExist bool) (t topicJSON, created bool, err error) {
	r, err := c.adm.CreateTopic(ctx, partitions, -1, config, name)
	switch {
	case err == nil:
		t = topicJSON{Name: name, ID: topicID(r.ID), Partitions: int(r.NumPartitions)}
		if r.NumPartitions > 0 && r.ID != (kadm.TopicID{}) {
			return t, true, nil
		}
	case errors.Is(err, kerr.TopicAlreadyExists) && mayExist:
	case errors.Is(err, kerr.TopicAlreadyExists):
		return t, false, fmt.Errorf("topic %q exists already; see `ringmaster topic describe %s`, or give --if-not-exists", name, name)
	default:
		return t, false, c.explain("create topic "+name, err, r.ErrMessage)
	}
	d, lookup := c.topic(ctx, name)
	if lookup != nil {
		return t, false, lookup
	}
	return topicOf(d), err == nil, nil
}

func newTopicAddPartitionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add-partitions NAME --to N",
		Short: "Give a topic more partitions",
		Long: `Give a topic more partitions, N in all. Partitions cannot be taken away again, and records with a key that come later may go to
another partition than those that came before.`,
		Example:           "  ringmaster topic add-partitions orders --to 24",
		Args:              named("the NAME of a topic"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, output := addClientFlags(cmd), addOutput(cmd)
	to := cmd.Flags().Int("to", 0, "how many partitions the topic shall have in all, at most 10000")
	noFiles(cmd, "to")
	required(cmd, "to")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := partitionsInRange("to", *to); err != nil {
			return err
		}
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		topic, err := c.growTopic(ctx, args[0], *to)
		if err != nil {
			return err
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), topic)
		}
		return printf(cmd.OutOrStdout(), "topic %s has %s\n", topic.Name, count(topic.Partitions, "partition"))
	})
	return cmd
}

// required marks a flag without which the command cannot run.
func required(cmd *cobra.Command, flag string) {
	if err := cmd.MarkFlagRequired(flag); err != nil {
		panic(err) // only for a flag that was never added
	}
}

func (c *client) growTopic(ctx context.Context, name string, to int) (topicJSON, error) {
	d, err := c.topic(ctx, name)
	if err != nil {
		return topicJSON{}, err
	}
	if has := len(d.Partitions); to <= has {
		return topicJSON{}, fmt.Errorf("topic %q has %s already, and partitions may only grow; give --to more than %d", name, count(has, "partition"), has)
	}
	rs, err := c.adm.UpdatePartitions(ctx, to, name)
	r := rs[name]
	if err == nil {
		err = r.Err
	}
	if err != nil {
		return topicJSON{}, c.explain("add partitions to topic "+name, err, r.ErrMessage)
	}
	t := topicOf(d)
	t.Partitions = to
	return t, nil
}

func newTopicDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a topic and its records",
		Long: `Delete a topic and its records, at once and without asking. In Kubernetes that deletes the Topic resource too; to keep the records,
delete that with kubectl instead, with deletionPolicy Retain.`,
		Example:           "  ringmaster topic delete orders",
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
		d, err := c.topic(ctx, args[0])
		if err != nil {
			return err
		}
		if r, err := c.adm.DeleteTopic(ctx, args[0]); err != nil {
			return c.explain("delete topic "+args[0], err, r.ErrMessage)
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), topicOf(d))
		}
		return printf(cmd.OutOrStdout(), "deleted topic %s\n", args[0])
	})
	return cmd
}
