// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Text are records for a tool that takes a line for a record: the keys and values are text, and some are null, written as Null. All have one header.
func Text(partition int32) []Record {
	records := make([]Record, DataRecords/Partitions)
	for i := range records {
		r := Record{Partition: partition, Offset: int64(i), Headers: []Header{{Key: "n", Value: []byte("1")}}}
		if i%5 != 4 {
			r.Key = []byte("key-" + strconv.Itoa(i))
		}
		if i%7 != 6 || i%5 == 4 {
			r.Value = []byte(strings.Repeat("värde ", 10+i%50) + strconv.Itoa(i))
		}
		records[i] = r
	}
	return records
}

// Run runs a command and returns what it printed to standard output.
func Run(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()+out.String()))
	}
	return out.String(), nil
}
