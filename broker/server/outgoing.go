// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// outgoing is a response's frame on its way to a connection: bytes, with records between them that are still in files.
type outgoing struct {
	buf   []byte
	files []outgoingFile
	// inFiles is how many bytes the files have.
	inFiles int
}

// outgoingFile is what goes out of a file before byte at of the buffer.
type outgoingFile struct {
	at      int
	batches *storage.Batches
}

// keptBuffer is the largest buffer that is kept for later responses.
const keptBuffer = 4 << 20

// outgoings are those that no connection writes now.
var outgoings = sync.Pool{New: func() any { return new(outgoing) }}

// newOutgoing makes a frame of a response: length, correlation id, the header's tags in flexible versions, body.
func newOutgoing(correlationID int32, resp kmsg.Response) *outgoing {
	o, _ := outgoings.Get().(*outgoing)
	o.buf, o.inFiles = o.buf[:0], 0
	if fetch, ok := resp.(*fetchResponse); ok {
		fetch.appendFrame(o, correlationID)
	} else {
		o.buf = appendResponse(o.buf, correlationID, resp)
	}
	return o
}

// release gives the buffer back. Whoever has the batches closes them.
func (o *outgoing) release() {
	clear(o.files)
	o.files = o.files[:0]
	if cap(o.buf) <= keptBuffer {
		outgoings.Put(o)
	}
}

// add adds records.
func (o *outgoing) add(b *storage.Batches) {
	if b.Len() == 0 {
		return
	}
	if b.InMemory() {
		data, _ := b.Bytes() // cannot fail
		o.buf = append(o.buf, data...)
		return
	}
	o.files = append(o.files, outgoingFile{at: len(o.buf), batches: b})
	o.inFiles += b.Len()
}

// len is the number of bytes of the whole frame.
func (o *outgoing) len() int { return len(o.buf) + o.inFiles }

// writeTo writes the frame.
func (o *outgoing) writeTo(nc net.Conn) (int64, error) {
	written, from := int64(0), 0
	for _, f := range o.files {
		n, err := writeMore(nc, o.buf[from:f.at])
		written += int64(n)
		if err != nil {
			return written, err
		}
		from = f.at
		sent, err := f.batches.WriteTo(nc)
		written += sent
		if err != nil {
			return written, err
		}
	}
	if from == len(o.buf) {
		return written, nil
	}
	n, err := nc.Write(o.buf[from:])
	return written + int64(n), err
}
