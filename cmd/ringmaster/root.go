// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// streams are the standard streams.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// failedError is an error of a command that ran. Whatever else cobra returns is a mistake in how the command was called.
type failedError struct{ err error }

func (e failedError) Error() string { return e.err.Error() }
func (e failedError) Unwrap() error { return e.err }

// usageError is an error in a command's arguments that only the command itself could find.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// run runs the command line and returns the exit code. An error is one line on the error stream.
func run(ctx context.Context, args []string, std streams) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	refineCompletion(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var failed failedError
	var usage usageError
	if errors.As(err, &failed) && !errors.As(err, &usage) {
		fmt.Fprintf(std.err, "ringmaster: %s\n", oneLine(err)) //nolint:errcheck // there is nowhere to report it
		return exitFailed
	}
	fmt.Fprintf(std.err, "ringmaster: %s; see \"%s --help\"\n", oneLine(err), cmd.CommandPath()) //nolint:errcheck // there is nowhere to report it
	return exitUsage
}

// parsing is what the standard library says of a flag's value that it cannot parse.
var parsing = regexp.MustCompile(`strconv\.Parse(\w+): parsing "(?:[^"\\]|\\.)*": ([a-z ]+)`)

// plainly says it in words for people.
func plainly(message string) string {
	return parsing.ReplaceAllStringFunc(message, func(found string) string {
		switch parts := parsing.FindStringSubmatch(found); {
		case parts[2] == "value out of range":
			return "the number is too large or too small"
		case parts[1] == "Bool":
			return "use true or false"
		default:
			return "it is not a number"
		}
	})
}

// oneLine is an error's message in a line.
func oneLine(err error) string {
	lines := strings.FieldsFunc(plainly(err.Error()), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "; ")
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "ringmaster",
		Short: "Message topics and consumer groups as Kubernetes resources",
		Long: `Ringmaster makes message topics and consumer groups Kubernetes resources. This one binary is the operator, the broker,
and a command line for topics, groups and records. Any Kafka client reads and writes the data.`,
		Example: `  ringmaster broker --data-dir ./data
  ringmaster topic create orders --partitions 12
  echo "hello" | ringmaster produce orders
  ringmaster consume orders --from-beginning --max 1`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	parent(root)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(
		newBrokerCommand(),
		newConsumeCommand(),
		newGroupCommand(),
		newOperatorCommand(),
		newProduceCommand(),
		newTopicCommand(),
		newVersionCommand(),
	)
	return root
}

// refineCompletion adds the library's completion command, which takes the output that root has by now, and makes it refuse what is no shell and
// tell a failure to write from a mistake.
func refineCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion")
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		parent(cmd)
		cmd.Example = "  source <(ringmaster completion bash)"
		for _, shell := range cmd.Commands() {
			shell.RunE = action(shell.RunE)
			shell.Example = "  ringmaster completion " + shell.Name()
		}
	}
}

// parent makes a command that only has subcommands print its help, and refuse an unknown subcommand.
func parent(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), suggestions(cmd, args[0]))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

func suggestions(cmd *cobra.Command, arg string) string {
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	names := cmd.SuggestionsFor(arg)
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", strings.Join(names, " or "))
}

// action makes a command's function: whatever it returns is an error of the command, not of how it was called.
func action(f func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd, args); err != nil {
			return failedError{err}
		}
		return nil
	}
}

// named makes a command take exactly one argument, which the error names.
func named(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 1:
			if args[0] == "" {
				return fmt.Errorf("%s needs %s, which must not be empty", cmd.CommandPath(), what)
			}
			return nil
		case 0:
			return fmt.Errorf("%s needs %s", cmd.CommandPath(), what)
		default:
			return fmt.Errorf("%s takes %s and nothing else, not %q", cmd.CommandPath(), what, args[1])
		}
	}
}

// nothing makes a command take no arguments.
func nothing(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, not %q", cmd.CommandPath(), args[0])
	}
	return nil
}
