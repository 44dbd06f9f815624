// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// topicConfigFlags are the flags that say what a topic's configuration is.
type topicConfigFlags struct {
	retention  string
	tombstones string
	flush      *enum
	config     []string
}

// add adds the flags. otherwise says what counts where one is not given.
func (f *topicConfigFlags) add(cmd *cobra.Command, otherwise string) {
	f.flush = newEnum("", string(v1alpha1.FlushSync), string(v1alpha1.FlushOS))
	flags := cmd.Flags()
	flags.StringVar(&f.retention, "retention", "", "how long records are kept at least, a `DURATION` such as 168h, or -1 for ever (default: "+otherwise+")")
	flags.StringVar(&f.tombstones, "tombstone-retention", "", "how long compaction keeps a record without a value at least, a `DURATION` such as 24h (default: "+otherwise+")")
	addEnum(cmd, f.flush, "flush", "", "when a record counts as stored: Sync, when it is on disk; Os, when the operating system has it, and a machine that crashes may lose it (default: "+otherwise+")")
	flags.StringArrayVar(&f.config, "config", nil, "a configuration entry, `KEY=VALUE`; may be given several times")
	noFiles(cmd, "retention", "tombstone-retention", "config")
}

// entries are the configuration entries that the flags ask for.
func (f *topicConfigFlags) entries() (map[string]*string, error) {
	config := map[string]*string{}
	for _, kv := range f.config {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usagef("--config %q is not KEY=VALUE, such as retention.ms=3600000", kv)
		}
		if _, twice := config[k]; twice {
			return nil, usagef("--config gives %s twice", k)
		}
		config[k] = &v
	}
	for _, flag := range []struct {
		name, key, value string
		entry            func(string) (string, error)
	}{
		{"retention", "retention.ms", f.retention, retentionMs},
		{"tombstone-retention", "delete.retention.ms", f.tombstones, tombstoneRetentionMs},
		{"flush", "flush.messages", f.flush.value, flushMessages},
	} {
		if flag.value == "" {
			continue
		}
		if config[flag.key] != nil {
			return nil, usagef("give --%s or --config %s, not both", flag.name, flag.key)
		}
		v, err := flag.entry(flag.value)
		if err != nil {
			return nil, err
		}
		config[flag.key] = &v
	}
	return config, nil
}

func retentionMs(s string) (string, error) {
	if s == "-1" {
		return s, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second {
		return "", usagef("--retention must be a duration of at least 1s, such as 168h, or -1 to keep records for ever, not %q", s)
	}
	return strconv.FormatInt(d.Milliseconds(), 10), nil
}

func tombstoneRetentionMs(s string) (string, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return "", usagef("--tombstone-retention must be a duration, such as 24h, not %q", s)
	}
	return strconv.FormatInt(d.Milliseconds(), 10), nil
}

// flushMessages is Kafka's entry for a flush policy.
func flushMessages(s string) (string, error) {
	if s == string(v1alpha1.FlushOS) {
		return strconv.FormatInt(math.MaxInt64, 10), nil
	}
	return "1", nil
}

func newTopicAlterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alter NAME",
		Short: "Change a topic's configuration",
		Long: `Change a topic's configuration; what is not named stays as it is. Configuration entries have Kafka's names: see "ringmaster topic
describe".

In Kubernetes that changes the Topic resource. Where the resource is kept in step with manifests elsewhere (GitOps), what does that puts it back: change
it there instead.`,
		Example: `  ringmaster topic alter orders --retention 72h
  ringmaster topic alter state --config cleanup.policy=compact --reset retention.bytes`,
		Args:              named("the NAME of a topic"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, output, f := addClientFlags(cmd), addOutput(cmd), &topicConfigFlags{}
	f.add(cmd, "as it is")
	reset := cmd.Flags().StringArray("reset", nil, "give the configuration entry `KEY` its default; may be given several times")
	noFiles(cmd, "reset")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		changes, err := f.changes(*reset)
		if err != nil {
			return err
		}
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		topic, err := c.alterTopic(ctx, args[0], changes)
		if err != nil {
			return err
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), topic)
		}
		return printf(cmd.OutOrStdout(), "changed topic %s\n", topic.Name)
	})
	return cmd
}

// changes are the changes that the flags ask for, by key.
func (f *topicConfigFlags) changes(reset []string) ([]kadm.AlterConfig, error) {
	entries, err := f.entries()
	if err != nil {
		return nil, err
	}
	var changes []kadm.AlterConfig
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: entries[key]})
	}
	for _, key := range reset {
		if entries[key] != nil {
			return nil, usagef("--reset %s, and a value for it; give one of them", key)
		}
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	if len(changes) == 0 {
		return nil, usagef("say what to change, such as --retention 72h")
	}
	return changes, nil
}

func (c *client) alterTopic(ctx context.Context, name string, changes []kadm.AlterConfig) (topicJSON, error) {
	d, err := c.topic(ctx, name)
	if err != nil {
		return topicJSON{}, err
	}
	what := "change topic " + name
	rs, err := c.adm.AlterTopicConfigs(ctx, changes, name)
	if err != nil {
		return topicJSON{}, c.explain(what, err, "")
	}
	for _, r := range rs {
		if r.Err != nil {
			return topicJSON{}, c.explain(what, r.Err, r.ErrMessage)
		}
	}
	return topicOf(d), nil
}

// topicConfig returns what can be set of a topic's configuration.
func (c *client) topicConfig(ctx context.Context, name string) (map[string]string, error) {
	what := "read the configuration of topic " + name
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, name
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return nil, c.explain(what, err, "")
	}
	config := map[string]string{}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			msg := ""
			if r.ErrorMessage != nil {
				msg = *r.ErrorMessage
			}
			return nil, c.explain(what, err, msg)
		}
		for _, e := range r.Configs {
			if !e.ReadOnly && e.Value != nil {
				config[e.Name] = *e.Value
			}
		}
	}
	return config, nil
}
