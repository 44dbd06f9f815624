// SPDX-License-Identifier: Apache-2.0

// Command ringmaster is the operator, the broker and the command line of Ringmaster, in one binary.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set when a release is built, with -ldflags "-X main.version=...".
var version = "dev"

func main() {
	os.Exit(mainCode())
}

func mainCode() int {
	// Writing to a closed pipe is an error like any other, so that consume can leave its group before it ends.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// The first signal asks; a second one ends the program at once.
	context.AfterFunc(ctx, stop)
	return run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}
