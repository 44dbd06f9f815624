// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// unavailable begins the errors by which a server says that it cannot do something now, and has done nothing.
// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/ and the servers' sources
var unavailable = []string{
	"LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "TRYAGAIN", "BUSY", "NOREPLICAS", "MISCONF", "MOVED", "ASK", "UNBLOCKED", "NOAUTH", "WRONGPASS", "NOPERM",
	"ERR max number of clients",
}

// translate gives an error of the client the storage error that it is. ctx is the caller's.
func translate(ctx context.Context, err error) error {
	var refused *rueidis.RedisError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.As(err, &refused):
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	text := refused.Error()
	switch {
	case strings.HasPrefix(text, "OOM"):
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	case strings.HasPrefix(text, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	for _, prefix := range unavailable {
		if strings.HasPrefix(text, prefix) {
			return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
		}
	}
	return err
}

// isRefusal says whether the server has answered, and so has done nothing: a script fails at its first change, or not at all.
func isRefusal(err error) bool {
	var refused *rueidis.RedisError
	return errors.As(err, &refused)
}

// damaged says what is wrong with a key.
func damaged(key, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", key, storage.ErrDamaged, fmt.Sprintf(format, args...))
}
