// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId, v0 to v5.
//
//   - Idempotent producers get an id of their own with epoch 0. One that asks again with the id it had (v3, KIP-360) gets a new one, as in
//     Kafka: its sequence numbers start anew with it.
//   - There are no transactions: a transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client treats as
//     final; others it would try again for ever.

// producerIDs gives out producer ids that are unique across brokers and restarts without asking anybody.
//
// An id has the node id in bits 47 to 62 and a counter in the 47 bits below, which starts at a random number with every start of the broker.
// Two runs of the same broker that give out m and n ids have one in common with a probability of (m+n)/2^47: with a million ids a run,
// 1.4 in 100 million for each pair of runs.
type producerIDs struct {
	node    int64
	counter atomic.Uint64
}

const producerCounterBits = 47

func newProducerIDs(nodeID int32) *producerIDs {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	p := &producerIDs{node: int64(uint16(nodeID)) << producerCounterBits}
	p.counter.Store(binary.BigEndian.Uint64(b[:]))
	return p
}

// next returns an id, which is not negative.
func (p *producerIDs) next() int64 {
	return p.node | int64(p.counter.Add(1)&(1<<producerCounterBits-1))
}

// initProducerID gives an idempotent producer its id.
func (s *Server) initProducerID(_ context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.InitProducerIDRequest](r)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.Version = r.version
	if req.TransactionalID != nil {
		s.log.Info("a transactional producer was refused: there are no transactions; remove transactional.id from the producer",
			"client", clip(r.clientID), "host", r.host, "transactionalID", *req.TransactionalID)
		resp.ErrorCode = r.code(codeTransactionalIDDenied)
		resp.ProducerID, resp.ProducerEpoch = -1, -1
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = s.pids.next(), 0
	return resp
}
