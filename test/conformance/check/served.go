// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Served waits until a topic's leaders know that they lead. One that does not know yet refuses records, and those with acks=0 are lost.
func Served(ctx context.Context, admin *kadm.Client, topic string) error {
	return Await(ctx, func() error {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		return err
	})
}
