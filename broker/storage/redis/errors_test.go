// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

func TestWhatTheClientsErrorsAre(t *testing.T) {
	given := context.Background()
	ended, end := context.WithCancel(given)
	end()
	for name, c := range map[string]struct {
		ctx       context.Context
		err, want error
	}{
		"none":                        {given, nil, nil},
		"a connection that is cut":    {given, io.EOF, storage.ErrUnavailable},
		"a limit of the engine's own": {given, context.DeadlineExceeded, storage.ErrUnavailable},
		"a caller who waits no more":  {ended, context.Canceled, context.Canceled},
		// The client closes the connections to a primary that Sentinel has replaced, and goes on with the new one.
		"a connection that the client has closed": {given, rueidis.ErrClosing, storage.ErrUnavailable},
	} {
		if got := translate(c.ctx, c.err); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
