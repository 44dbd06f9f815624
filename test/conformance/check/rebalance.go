// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Rebalance has two members of a group read; one leaves while more records are written. send writes the records of Spread. A member reads until
// its context ends, notes what it reads and commits, and calls mine whenever the number of its partitions changes.
func Rebalance(ctx context.Context, send func() error, member func(ctx context.Context, ledger *Ledger, mine func(partitions int)) error) error {
	if err := send(); err != nil {
		return err
	}
	ledger, shared := NewLedger(), NewShared(2)
	staying, stop := context.WithCancel(ctx)
	defer stop()
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	var members errgroup.Group
	members.Go(func() error { return member(staying, ledger, shared.Member(0)) })
	members.Go(func() error { return member(leaving, ledger, shared.Member(1)) })
	half, cancel := context.WithTimeout(ctx, limit/2)
	defer cancel()
	err := Await(half, func() error { return errors.Join(shared.Even(), ledger.Check(GroupRecords)) })
	if err == nil {
		err = send()
	}
	leave()
	if err == nil {
		rest, cancel := context.WithTimeout(ctx, limit/2-5*time.Second)
		defer cancel()
		err = Await(rest, func() error { return ledger.Check(2 * GroupRecords) })
	}
	stop()
	return errors.Join(err, members.Wait())
}
