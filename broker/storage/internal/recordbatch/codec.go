// SPDX-License-Identifier: Apache-2.0

package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compressions of a batch's records, as its attributes have them.
const (
	CodecNone   = 0
	CodecGzip   = 1
	CodecSnappy = 2
	CodecLZ4    = 3
	CodecZstd   = 4
)

// MaxInflated is how many bytes a batch's records may have once they are decompressed. A batch of a few kilobytes may claim gigabytes.
const MaxInflated = 64 << 20

// errInflated says that a batch's records have more than MaxInflated bytes.
var errInflated = fmt.Errorf("its records have more than %d bytes when they are decompressed", MaxInflated)

// codec compresses and decompresses records. The values of the pools keep their tables and windows, which are costly to make.
var (
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(inflaters), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(MaxInflated))
	})
	zstdEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
	})
)

// Inflate appends the decompressed records to dst, at most MaxInflated bytes, for which it allocates no more than a small multiple of what
// has come out so far.
func Inflate(dst, src []byte, codec int16) ([]byte, error) {
	switch codec {
	case CodecNone:
		return append(dst, src...), nil
	case CodecGzip:
		r, _ := gzipReaders.Get().(*gzip.Reader)
		defer gzipReaders.Put(r)
		if err := r.Reset(bytes.NewReader(src)); err != nil {
			return nil, err
		}
		return readBounded(dst, r)
	case CodecSnappy:
		return inflateSnappy(dst, src)
	case CodecLZ4:
		r, _ := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(bytes.NewReader(src))
		return readBounded(dst, r)
	case CodecZstd:
		d, err := zstdDecoder()
		if err != nil {
			return nil, err
		}
		b, err := d.DecodeAll(src, dst)
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			err = errInflated
		}
		return b, err
	}
	return nil, fmt.Errorf("its compression %d is unknown", codec)
}

// readBounded appends all that r gives to dst.
func readBounded(dst []byte, r io.Reader) ([]byte, error) {
	w := bytes.NewBuffer(dst)
	n, err := w.ReadFrom(io.LimitReader(r, MaxInflated+1))
	if err == nil && n > MaxInflated {
		err = errInflated
	}
	return w.Bytes(), err
}

// Snappy comes as one block, or in the framing of the Java client: a header of 16 bytes, then blocks, each after its length in 4 bytes.
// Source: https://github.com/xerial/snappy-java (SnappyOutputStream)
var snappyFraming = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	snappyMagicSize = 8
	snappyBlock     = 32 << 10
)

func inflateSnappy(dst, src []byte) ([]byte, error) {
	if !bytes.HasPrefix(src, snappyFraming[:snappyMagicSize]) {
		return inflateSnappyBlock(dst, src)
	}
	if len(src) < len(snappyFraming) {
		return nil, io.ErrUnexpectedEOF
	}
	src = src[len(snappyFraming):]
	for len(src) > 0 {
		if len(src) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		n := binary.BigEndian.Uint32(src)
		if src = src[4:]; int64(n) > int64(len(src)) {
			return nil, io.ErrUnexpectedEOF
		}
		var err error
		if dst, err = inflateSnappyBlock(dst, src[:n]); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return dst, nil
}

func inflateSnappyBlock(dst, block []byte) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	if n > MaxInflated-len(dst) {
		return nil, errInflated
	}
	// The format makes at most 64 bytes of 3, so that a block which claims more lies.
	if n > 64*len(block) {
		return nil, s2.ErrCorrupt
	}
	at := len(dst)
	dst = append(dst, make([]byte, n)...)
	if _, err = s2.Decode(dst[at:], block); err != nil {
		return nil, err
	}
	return dst, nil
}

// Deflate appends the compressed records to dst.
func Deflate(dst, src []byte, codec int16) ([]byte, error) {
	switch codec {
	case CodecNone:
		return append(dst, src...), nil
	case CodecGzip:
		w, _ := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		out := bytes.NewBuffer(dst)
		w.Reset(out)
		return writeAll(out, w, src)
	case CodecSnappy:
		return deflateSnappy(dst, src), nil
	case CodecLZ4:
		out := bytes.NewBuffer(dst)
		w := lz4.NewWriter(out)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil {
			return nil, err
		}
		return writeAll(out, w, src)
	case CodecZstd:
		e, err := zstdEncoder()
		if err != nil {
			return nil, err
		}
		return e.EncodeAll(src, dst), nil
	}
	return nil, fmt.Errorf("its compression %d is unknown", codec)
}

func writeAll(out *bytes.Buffer, w io.WriteCloser, src []byte) ([]byte, error) {
	_, err := w.Write(src)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	return out.Bytes(), err
}

func deflateSnappy(dst, src []byte) []byte {
	dst = append(dst, snappyFraming...)
	for len(src) > 0 {
		n := min(len(src), snappyBlock)
		block := s2.EncodeSnappy(nil, src[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = append(dst, block...)
		src = src[n:]
	}
	return dst
}

// inflaters is how many batches are decompressed at a time, whoever asks; it bounds the memory that this takes.
const inflaters = 2

// inflateBuffers are what the batches are decompressed into. They are taken one for each decompression, and given back.
var inflateBuffers = func() chan []byte {
	c := make(chan []byte, inflaters)
	for range inflaters {
		c <- nil
	}
	return c
}()

// keptBuffer is how large a buffer is kept.
const keptBuffer = 4 << 20

// Inflated calls fn with the decompressed records of a batch, which are valid until fn returns.
func Inflated(batch []byte, h *Header, fn func(records []byte) error) error {
	if !h.compressed() {
		return fn(batch[HeaderSize:h.Size])
	}
	b := <-inflateBuffers
	defer func() {
		if cap(b) > keptBuffer {
			b = nil
		}
		inflateBuffers <- b
	}()
	records, err := Inflate(b[:0], batch[HeaderSize:h.Size], h.Attributes&AttrCompression)
	if err != nil {
		return err
	}
	b = records
	return fn(records)
}
