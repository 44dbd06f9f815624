// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
)

const (
	// shrinkRecords is how many records the log of committed offsets has before it is worth shrinking.
	shrinkRecords = 10000
	// shrinkFactor is how many times as many records as offsets there must be.
	shrinkFactor = 4
)

// shrink stands in for compaction of the offsets topic, whatever the storage engine: where most of the log is superseded, every group's
// offsets are appended once more, and what came before is trimmed. Requests go on meanwhile: a group's offsets are appended between two of
// its steps, so that whatever is before them in the log is superseded by them, and whatever comes later is behind them. A crash before the
// trim leaves records that say the same twice.
func (p *groupPartition) shrink(ctx context.Context) error {
	groups := p.all()
	live := int64(0)
	for _, h := range groups {
		live += int64(h.size(ctx))
	}
	before := p.records.Load()
	if before < shrinkRecords || before < shrinkFactor*live {
		return nil
	}
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	end := log.EndOffset()
	// A group that is made from here on has no record before end. One that goes leaves nothing that counts.
	for _, h := range p.all() {
		if err := h.store(ctx); err != nil {
			return fmt.Errorf("store the offsets of group %q again: %w", h.id, err)
		}
	}
	if err := log.Trim(ctx, end); err != nil {
		return fmt.Errorf("trim the log below offset %d: %w", end, err)
	}
	p.records.Add(-before)
	return nil
}
