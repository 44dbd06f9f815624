// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeFlags are the flags of "consume".
type consumeFlags struct {
	group         string
	instanceID    string
	clientID      string
	fromBeginning bool
	limit         int64
	idle          time.Duration
	format        *enum
}

func newConsumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consume TOPIC...",
		Short: "Print the records of topics",
		Long: `Print the records of topics, the value of each on a line of its own, until SIGINT or SIGTERM.

With --group the command is a member of that consumer group: it reads the partitions that the group gives it, goes on where the group has
committed, and commits what it has printed, every second and before it ends; then it leaves the group. Without --group it reads every
partition and commits nothing.

Where nothing is committed it starts with the records that come from now on, or with --from-beginning with the oldest.

-o json prints an object for each record, on a line of its own; a key or value that is not UTF-8 is printed in base64, and the object says
"encoding":"base64". -o table prints columns.`,
		Example: `  ringmaster consume orders --from-beginning --max 10
  ringmaster consume orders payments --group billing
  ringmaster consume orders --group audit -o json --idle-timeout 5s`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s needs the name of a TOPIC", cmd.CommandPath())
			}
			if slices.Contains(args, "") {
				return fmt.Errorf("%s needs the name of a TOPIC, which must not be empty", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, f := addClientFlags(cmd), &consumeFlags{format: newEnum(outputValue, outputValue, outputTable, outputJSON)}
	addEnum(cmd, f.format, flagOutput, "o", "how to print records")
	cmd.Flags().StringVar(&f.group, "group", "", "the consumer group to be a member of")
	cmd.Flags().StringVar(&f.instanceID, "instance-id", "", "be a static member of the group, with this group.instance.id: its partitions are kept for it when it ends")
	cmd.Flags().StringVar(&f.clientID, "client-id", "ringmaster", "the client.id that brokers see")
	cmd.Flags().BoolVar(&f.fromBeginning, "from-beginning", false, "start with the oldest record where nothing is committed")
	cmd.Flags().Int64Var(&f.limit, "max", 0, "end after this many records (default: no end)")
	cmd.Flags().DurationVar(&f.idle, "idle-timeout", 0, "end when no record came for this long (default: never)")
	noFiles(cmd, "group", "instance-id", "client-id", "max", "idle-timeout")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		return f.run(cmd, flags, args)
	})
	return cmd
}

func (f *consumeFlags) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case changed("group") && f.group == "":
		return usagef("--group must not be empty")
	case changed("instance-id") && (f.group == "" || f.instanceID == ""):
		return usagef("--instance-id needs a value, and --group")
	case changed("max") && f.limit < 1:
		return usagef("--max must be at least 1, not %d", f.limit)
	case changed("idle-timeout") && f.idle <= 0:
		return usagef("--idle-timeout must be more than 0, such as 5s")
	}
	return nil
}

func (f *consumeFlags) run(cmd *cobra.Command, flags *clientFlags, topics []string) error {
	slices.Sort(topics)
	topics = slices.Compact(topics)
	c, err := flags.connect(cmd, f.options(topics)...)
	if err != nil {
		return err
	}
	defer c.CloseAllowingRebalance() // leaves the group
	if err := c.haveTopics(cmd.Context(), topics); err != nil {
		return err
	}
	c.dials.setWarn(func(address string, err error) {
		warning(cmd, fmt.Sprintf("cannot reach the broker %s: %s; trying again", address, reason(err, c.timeout)))
	})
	p := newPrinter(bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10), f.format.value)
	err = f.loop(cmd, c, p)
	if errors.Is(err, syscall.EPIPE) {
		err = nil // who read our output has seen enough
	}
	if f.group == "" {
		return err
	}
	// The last commit must not end with the context that a signal has ended.
	ctx, cancel := c.limit(context.WithoutCancel(cmd.Context()))
	defer cancel()
	c.AllowRebalance()
	if commitErr := c.CommitMarkedOffsets(ctx); commitErr != nil && err == nil {
		return c.explain("commit offsets of group "+f.group, commitErr, "")
	}
	return err
}

// haveTopics is an error where a topic does not exist.
func (c *client) haveTopics(ctx context.Context, topics []string) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	for _, name := range topics {
		if _, err := c.topic(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (f *consumeFlags) options(topics []string) []kgo.Opt {
	start := kgo.NewOffset().AtEnd()
	if f.fromBeginning {
		start = kgo.NewOffset().AtStart()
	}
	opts := []kgo.Opt{kgo.ClientID(f.clientID), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(start), kgo.FetchMaxWait(time.Second)}
	if f.group == "" {
		return opts
	}
	opts = append(opts,
		kgo.ConsumerGroup(f.group),
		// No partition goes to another member between a record's print and its mark.
		kgo.BlockRebalanceOnPoll(),
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(time.Second),
	)
	if f.instanceID != "" {
		opts = append(opts, kgo.InstanceID(f.instanceID))
	}
	return opts
}

// loop prints records until one of the ends that the flags name, or the context ends. Records are marked for commit once they are printed.
func (f *consumeFlags) loop(cmd *cobra.Command, c *client, p *printer) error {
	left := int64(math.MaxInt64)
	if f.limit > 0 {
		left = f.limit
	}
	for left > 0 && cmd.Context().Err() == nil {
		fetches, idle := f.poll(cmd.Context(), c, left)
		n, err := f.print(c, p, fetches)
		if err != nil {
			return err
		}
		left -= int64(n)
		if err := fetchErrors(cmd, c, fetches); err != nil {
			return err
		}
		c.AllowRebalance()
		if idle && n == 0 {
			return nil
		}
	}
	return nil
}

// poll waits for at most left records; idle says that none came within --idle-timeout.
func (f *consumeFlags) poll(ctx context.Context, c *client, left int64) (fetches kgo.Fetches, idle bool) {
	const most = 1000
	if f.idle > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.idle)
		defer cancel()
	}
	fetches = c.PollRecords(ctx, int(min(left, most)))
	return fetches, ctx.Err() != nil
}

func (f *consumeFlags) print(c *client, p *printer, fetches kgo.Fetches) (int, error) {
	records := fetches.Records()
	for _, r := range records {
		if err := p.print(r); err != nil {
			return 0, err
		}
	}
	if err := p.flush(); err != nil {
		return 0, err
	}
	if f.group != "" {
		c.MarkCommitRecords(records...)
	}
	return len(records), nil
}

// fetchErrors returns the first error that ends the command. Those that pass by themselves are warned of: the client tries again.
func fetchErrors(cmd *cobra.Command, c *client, fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		var session *kgo.ErrGroupSession
		var loss *kgo.ErrDataLoss
		switch {
		case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded), errors.Is(e.Err, kgo.ErrClientClosed):
			continue
		case errors.As(e.Err, &session) && passes(session.Err), errors.As(e.Err, &loss):
			warning(cmd, oneLine(c.explain("trying again", e.Err, "")))
		case errors.As(e.Err, &session):
			return c.explain("join the group", session.Err, "")
		case errors.Is(e.Err, kerr.UnknownTopicOrPartition), errors.Is(e.Err, kerr.UnknownTopicID):
			return errNoTopic(e.Topic)
		default:
			return c.explain(fmt.Sprintf("read %s[%d]", e.Topic, e.Partition), e.Err, "")
		}
	}
	return nil
}

// warning prints a line about what passes by itself.
func warning(cmd *cobra.Command, msg string) {
	fmt.Fprintf(cmd.ErrOrStderr(), "ringmaster: warning: %s\n", msg) //nolint:errcheck // there is nowhere to report it
}

// passes says whether an error of a group passes when the client joins again.
func passes(err error) bool {
	var ke *kerr.Error
	if !errors.As(err, &ke) {
		return true // the network's
	}
	switch {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.RebalanceInProgress),
		errors.Is(err, kerr.MemberIDRequired), errors.Is(err, kerr.FencedMemberEpoch):
		return true
	}
	return ke.Retriable
}
