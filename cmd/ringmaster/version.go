// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"

	"github.com/spf13/cobra"
)

// versionJSON is what "version -o json" prints.
type versionJSON struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of this binary, of the Go that built it, and its platform.",
		Example: "  ringmaster version\n  ringmaster version -o json",
		Args:    nothing,
	}
	output := addOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		v := versionJSON{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), v)
		}
		return printf(cmd.OutOrStdout(), "ringmaster %s %s %s\n", v.Version, v.Go, v.Platform)
	})
	return cmd
}
