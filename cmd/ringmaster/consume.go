// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
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
	messages      int
	concurrency   int
	command       string
	onError       *enum
	shutdown      time.Duration
	session       time.Duration
	rebalance     time.Duration
}

// Bounds of flags.
const (
	largestPoll        = 100_000
	largestConcurrency = 1000
	shortestSession    = 100 * time.Millisecond
	shortestRebalance  = time.Second
)

func newConsumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consume TOPIC...",
		Short: "Print the records of topics, or run a command for each",
		Long: `Print the records of topics, the value of each on a line of its own, until SIGINT or SIGTERM.

With --group the command is a member of that consumer group: it reads the partitions that the group gives it, goes on where the group has
committed, and commits what it has handled, every second and before it ends; then it leaves the group. Without --group it reads every
partition and commits nothing.

Where nothing is committed it starts with the records that come from now on, or with --from-beginning with the oldest.

-o json prints an object for each record, on a line of its own; a key or value that is not UTF-8 is printed in base64, and the object says
"encoding":"base64". -o table prints columns.

--exec runs a shell command for each record instead, with the value on its standard input, and with RINGMASTER_TOPIC, RINGMASTER_PARTITION,
RINGMASTER_OFFSET, RINGMASTER_TIMESTAMP, RINGMASTER_KEY and RINGMASTER_HEADERS (JSON) in its environment. --concurrency of them run at
once; the records of a partition are handled one after the other. A command may take as long as it likes: the command line stays a member
of the group. Where it ends with an exit code other than 0, --on-error says what happens: stop ends the command line, without committing the
record; skip goes on with the next record; retry runs it again, and waits longer each time. Every record is handled at least once.

SIGINT and SIGTERM end it once what has begun is done; after --shutdown-timeout commands are killed. A second signal ends it at once.`,
		Example: `  ringmaster consume orders --from-beginning --max 10
  ringmaster consume orders payments --group billing
  ringmaster consume orders --group audit -o json --idle-timeout 5s
  ringmaster consume orders --group mail --exec 'mail -s "order $RINGMASTER_KEY" sales@example.com'
  ringmaster consume orders --group hooks --concurrency 16 --on-error retry --exec 'curl -fsS --data-binary @- https://example.com/hook'`,
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
	flags := addClientFlags(cmd)
	f := &consumeFlags{format: newEnum(outputValue, outputValue, outputTable, outputJSON), onError: newEnum(onErrorStop, onErrorStop, onErrorSkip, onErrorRetry)}
	f.add(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		return f.run(cmd, flags, args)
	})
	return cmd
}

// add adds the flags to the command.
func (f *consumeFlags) add(cmd *cobra.Command) {
	addEnum(cmd, f.format, flagOutput, "o", "how to print records")
	cmd.Flags().StringVar(&f.group, "group", "", "the consumer group to be a member of")
	cmd.Flags().StringVar(&f.instanceID, "instance-id", "", "be a static member of the group, with this group.instance.id: its partitions are kept for it when it ends")
	cmd.Flags().StringVar(&f.clientID, "client-id", "ringmaster", "the client.id that brokers see")
	cmd.Flags().BoolVar(&f.fromBeginning, "from-beginning", false, "start with the oldest record where nothing is committed")
	cmd.Flags().Int64Var(&f.limit, "max", 0, "end after this many records (default: no end)")
	cmd.Flags().DurationVar(&f.idle, "idle-timeout", 0, "end when no record came, and none was handled, for this long (default: never)")
	cmd.Flags().IntVar(&f.messages, "messages", 1000, "how many records a poll takes, and how many are printed at a time")
	cmd.Flags().IntVar(&f.concurrency, "concurrency", 1, "how many partitions are handled at once")
	cmd.Flags().StringVar(&f.command, "exec", "", "run this shell `COMMAND` for each record, instead of printing it")
	addEnum(cmd, f.onError, "on-error", "", "what to do when the command of --exec fails")
	cmd.Flags().DurationVar(&f.shutdown, "shutdown-timeout", 30*time.Second, "how long what has begun may take after SIGINT or SIGTERM")
	cmd.Flags().DurationVar(&f.session, "session-timeout", 45*time.Second, "after how long without a heartbeat the group takes this member for dead")
	cmd.Flags().DurationVar(&f.rebalance, "rebalance-timeout", time.Minute,
		"how long the group waits for its members when partitions move; three quarters of it are for records that are being handled")
	noFiles(cmd, "group", "instance-id", "client-id", "max", "idle-timeout", "messages", "concurrency", "shutdown-timeout", "session-timeout", "rebalance-timeout")
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
	case f.messages < 1 || f.messages > largestPoll:
		return usagef("--messages must be from 1 to %d, not %d", largestPoll, f.messages)
	case f.concurrency < 1 || f.concurrency > largestConcurrency:
		return usagef("--concurrency must be from 1 to %d, not %d", largestConcurrency, f.concurrency)
	case f.shutdown <= 0:
		return usagef("--shutdown-timeout must be more than 0, such as 30s")
	}
	if err := f.checkExec(changed); err != nil {
		return err
	}
	return f.checkGroup(changed)
}

func (f *consumeFlags) checkExec(changed func(string) bool) error {
	switch {
	case changed("exec") && f.command == "":
		return usagef("--exec must not be empty")
	case changed("exec") && changed(flagOutput):
		return usagef("give --exec or --output, not both: with --exec the command prints")
	case changed("on-error") && !changed("exec"):
		return usagef("--on-error goes with --exec")
	}
	return nil
}

func (f *consumeFlags) checkGroup(changed func(string) bool) error {
	for _, d := range []struct {
		flag            string
		value, shortest time.Duration
	}{{"session-timeout", f.session, shortestSession}, {"rebalance-timeout", f.rebalance, shortestRebalance}} {
		switch {
		case changed(d.flag) && f.group == "":
			return usagef("--%s goes with --group", d.flag)
		case d.value < d.shortest || d.value > 24*time.Hour:
			return usagef("--%s must be from %s to 24h, not %s", d.flag, d.shortest, d.value)
		}
	}
	return nil
}

func (f *consumeFlags) run(cmd *cobra.Command, flags *clientFlags, topics []string) error {
	slices.Sort(topics)
	topics = slices.Compact(topics)
	k := newConsumer(cmd, f)
	defer k.watchSignals()()
	c, err := flags.connect(cmd, f.options(topics, k)...)
	if err != nil {
		return err
	}
	defer k.close(c)
	if err := c.haveTopics(cmd.Context(), topics); err != nil {
		return err
	}
	c.dials.setWarn(func(address string, err error) {
		k.warn(fmt.Sprintf("cannot reach the broker %s: %s; trying again", address, reason(err, c.timeout)))
	})
	err = k.run(c)
	if errors.Is(err, syscall.EPIPE) {
		err = nil // who read our output has seen enough
	}
	if f.group == "" {
		return err
	}
	if commitErr := k.commit(c); commitErr != nil && err == nil {
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

// Bounds of what is in memory, beside what handlers have.
const (
	// fetchBytes bounds what a broker sends at a time, and readAheadBytes what waits to be handled, both as far as records are not larger.
	fetchBytes     = 16 << 20
	readAheadBytes = 64 << 20
	// readAhead is how many records wait to be handled at most, or twice as many as all handlers take at a time.
	readAhead = 1000
)

func (f *consumeFlags) options(topics []string, k *consumer) []kgo.Opt {
	start := kgo.NewOffset().AtEnd()
	if f.fromBeginning {
		start = kgo.NewOffset().AtStart()
	}
	opts := []kgo.Opt{
		kgo.ClientID(f.clientID), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(start),
		kgo.FetchMaxWait(time.Second), kgo.FetchMaxBytes(fetchBytes), kgo.BrokerMaxReadBytes(largestMessage + fetchBytes),
	}
	if f.group == "" {
		return opts
	}
	opts = append(opts,
		kgo.ConsumerGroup(f.group),
		kgo.SessionTimeout(f.session),
		kgo.HeartbeatInterval(min(3*time.Second, f.session/3, f.rebalance/10)),
		kgo.RebalanceTimeout(f.rebalance),
		kgo.OnPartitionsAssigned(k.assigned),
		kgo.OnPartitionsRevoked(k.revoked),
		kgo.OnPartitionsLost(k.lost),
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(time.Second),
	)
	if f.instanceID != "" {
		opts = append(opts, kgo.InstanceID(f.instanceID))
	}
	return opts
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
