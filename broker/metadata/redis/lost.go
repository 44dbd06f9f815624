// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// lost is what a broker remembers and Redis no longer has, since it crashed or failed over: leader epochs with which logs may have been opened. A leader with
// an older one could append nothing to them, ever.
type lost struct {
	// floor is what the floor must be at least; 0 where it is high enough.
	floor int32
	// led are topics' leaders with epochs that are high enough.
	led map[string]leaders
}

// lostBy compares two states, of which the first was read before the second.
func lostBy(prev, s *state) lost {
	l := lost{led: map[string]leaders{}}
	if prev == nil || prev.version == s.version {
		return l
	}
	for name, before := range prev.topics {
		var now leaders
		if t := s.topics[name]; t == before {
			continue
		} else if t != nil {
			now = t.led
		}
		for p, epoch := range before.led.Epochs {
			switch {
			case p >= len(now.Epochs):
				if epoch >= s.floor {
					l.floor = max(l.floor, epoch+1)
				}
			case epoch > now.Epochs[p]:
				if _, found := l.led[name]; !found {
					l.led[name] = leaders{Leaders: now.Leaders, Epochs: slices.Clone(now.Epochs), Since: now.Since}
				}
				l.led[name].Epochs[p] = epoch + 1
			}
		}
	}
	return l
}

// restore makes epochs grow beyond the lost ones.
func (m *Metadata) restore(ctx context.Context, l lost, s *state) error {
	args := []string{strconv.Itoa(int(l.floor))}
	for _, name := range slices.Sorted(maps.Keys(l.led)) {
		raw, err := json.Marshal(l.led[name])
		if err != nil {
			return err
		}
		args = append(args, name, s.topics[name].rawLeaders, string(raw))
	}
	if _, err := m.store.call(ctx, raise, args...); err != nil {
		return fmt.Errorf("make leader epochs grow beyond those that Redis has lost: %w", err)
	}
	m.log.Warn("Redis has lost changes of leaders; their epochs were made to grow beyond the lost ones", "topics", len(l.led), "floor", l.floor)
	return nil
}
