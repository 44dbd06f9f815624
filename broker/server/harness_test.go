// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata/file"
	"github.com/ringmaster-dev/ringmaster/broker/server"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/local"
	"github.com/ringmaster-dev/ringmaster/test/testengine"
)

// deadline is how long a test waits for what has to happen.
const deadline = 30 * time.Second

// broker is a server with real metadata and a real engine, in a directory of the test.
type broker struct {
	*server.Server
	t      testing.TB
	dir    string
	addr   string
	meta   *file.Metadata
	engine *faultyEngine
	disk   *brittleFS
	logs   *logBuffer
	stop   func() // stops the server and waits for it
}

// option changes a broker before it starts.
type option func(*server.Config, *file.Options)

// start starts a broker in a new directory.
func start(t testing.TB, opts ...option) *broker {
	t.Helper()
	return startIn(t, t.TempDir(), opts...)
}

// startIn starts a broker in a directory.
func startIn(t testing.TB, dir string, opts ...option) *broker {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the listener's address is %T", listener.Addr())
	}
	logs := &logBuffer{}
	cfg := server.Config{NodeID: 1, Listener: listener, Logger: slog.New(slog.NewTextHandler(logs, nil)), ShutdownTimeout: 5 * time.Second}
	fileOpts := file.Options{NodeID: 1, Host: "127.0.0.1", Port: int32(tcp.Port), AutoCreateTopics: true, OffsetsPartitions: 2}
	for _, o := range opts {
		o(&cfg, &fileOpts)
	}
	meta, err := file.Open(dir+"/meta", fileOpts)
	if err != nil {
		t.Fatal(err)
	}
	disk := &brittleFS{}
	engine := testengine.Open(t, dir+"/data", disk)
	b := &broker{t: t, dir: dir, addr: listener.Addr().String(), meta: meta, engine: &faultyEngine{Engine: engine}, disk: disk, logs: logs}
	cfg.Engine = b.engine
	if cfg.Metadata == nil {
		cfg.Metadata = meta
	}
	if b.Server, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	b.run()
	return b
}

// run serves until stop, which the end of the test calls too.
func (b *broker) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				b.t.Errorf("Serve returned %v", err)
			}
		case <-time.After(deadline):
			b.t.Errorf("the server did not stop")
		}
		if err := b.engine.Close(); err != nil {
			b.t.Errorf("close the engine: %v", err)
		}
	})
	b.t.Cleanup(func() {
		b.stop()
		if b.t.Failed() {
			b.t.Logf("the broker's log:\n%s", b.logs)
		}
	})
}

// ctx ends before the test's own deadline.
func (b *broker) ctx() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), deadline)
	b.t.Cleanup(cancel)
	return ctx
}

// client makes a client of the broker.
func (b *broker) client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.addr)}, opts...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

func (b *broker) admin() *kadm.Client { return kadm.NewClient(b.client()) }

// create creates a topic and returns its id.
func (b *broker) create(topic string, partitions int32) [16]byte {
	b.t.Helper()
	resp, err := b.admin().CreateTopic(b.ctx(), partitions, 1, nil, topic)
	if err != nil {
		b.t.Fatalf("create topic %s: %v", topic, err)
	}
	return resp.ID
}

// wire is a connection on which a test writes and reads frames.
type wire struct {
	t  testing.TB
	nc net.Conn
	r  *bufio.Reader
	id int32
}

// dial opens a connection.
func (b *broker) dial() *wire {
	b.t.Helper()
	nc, err := new(net.Dialer).DialContext(b.t.Context(), "tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(deadline)); err != nil {
		b.t.Fatal(err)
	}
	return &wire{t: b.t, nc: nc, r: bufio.NewReader(nc)}
}

// write writes raw bytes.
func (w *wire) write(b []byte) {
	w.t.Helper()
	if _, err := w.nc.Write(b); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

// send sends a request and returns its correlation id.
func (w *wire) send(req kmsg.Request, version int16) int32 {
	w.t.Helper()
	w.id++
	req.SetVersion(version)
	w.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, w.id))
	return w.id
}

// receive reads the response to a request.
func (w *wire) receive(req kmsg.Request, id int32) (kmsg.Response, error) {
	frame, err := w.frame()
	if err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != id {
		return nil, fmt.Errorf("a response has correlation id %d, not %d", got, id)
	}
	frame = frame[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		if frame[0] != 0 {
			return nil, fmt.Errorf("a response header has tags")
		}
		frame = frame[1:]
	}
	if err := resp.ReadFrom(frame); err != nil {
		return nil, fmt.Errorf("decode %T v%d: %w", resp, resp.GetVersion(), err)
	}
	return resp, nil
}

// frame reads a frame without its length.
func (w *wire) frame() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(w.r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(w.r, frame)
	return frame, err
}

// closed waits until the broker has closed the connection, and fails where it sends something instead.
func (w *wire) closed() {
	w.t.Helper()
	n, err := w.r.Read(make([]byte, 1))
	var timeout net.Error
	if n > 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		w.t.Fatalf("the connection is open: %d bytes, %v", n, err)
	}
}

// call sends a request and returns its response.
func call[T kmsg.Response](w *wire, req kmsg.Request, version int16) T {
	w.t.Helper()
	resp, err := w.receive(req, w.send(req, version))
	if err != nil {
		w.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	typed, ok := resp.(T)
	if !ok {
		w.t.Fatalf("the response is a %T", resp)
	}
	return typed
}

// batchOf makes a record batch with these values, one second apart from ts on.
func batchOf(ts int64, values ...string) []byte {
	var records []byte
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), TimestampDelta64: int64(i) * 1000, Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // one byte for a length of zero
		records = r.AppendTo(records)
	}
	last := int32(len(values) - 1)
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: last, FirstTimestamp: ts, MaxTimestamp: ts + int64(last)*1000,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(values)), Records: records,
	}
	return seal(batch.AppendTo(nil))
}

// seal puts the right length and checksum into a batch.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// produceRequest is a produce of a batch for each of the partitions from 0 on.
func produceRequest(topic string, acks int16, batches ...[]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 1000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for i, b := range batches {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(i), b
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// produced returns the only partition of a produce's response.
func produced(resp *kmsg.ProduceResponse) kmsg.ProduceResponseTopicPartition {
	return resp.Topics[0].Partitions[0]
}

// logBuffer keeps the lines of a log.
type logBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// count returns how many lines hold a text.
func (l *logBuffer) count(text string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// brittleFS is a file system whose syncs fail while a test says so.
type brittleFS struct {
	local.OSFS
	broken atomic.Bool
}

func (f *brittleFS) Open(name string, flag int) (local.File, error) {
	opened, err := f.OSFS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &brittleFile{File: opened, fs: f}, nil
}

type brittleFile struct {
	local.File
	fs *brittleFS
}

func (f *brittleFile) Sync() error {
	if f.fs.broken.Load() {
		return syscall.EIO
	}
	return f.File.Sync()
}

// faultyEngine is an engine whose logs fail as a test says.
type faultyEngine struct {
	storage.Engine
	mu        sync.Mutex
	faultsNow faults
}

// faults are the errors of an engine's methods, and what happens before an append.
type faults struct {
	appendErr error
	readErr   error
	deleteErr error
	onAppend  func()
}

// set changes the faults.
func (e *faultyEngine) set(change func(*faults)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.faultsNow)
}

func (e *faultyEngine) faults() faults {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faultsNow
}

func (e *faultyEngine) Open(ctx context.Context, p storage.Partition, epoch int32, c storage.Config) (storage.Log, error) {
	l, err := e.Engine.Open(ctx, p, epoch, c)
	if err != nil {
		return nil, err
	}
	return &faultyLog{Log: l, e: e}, nil
}

func (e *faultyEngine) Delete(ctx context.Context, p storage.Partition) error {
	if err := e.faults().deleteErr; err != nil {
		return err
	}
	return e.Engine.Delete(ctx, p)
}

type faultyLog struct {
	storage.Log
	e *faultyEngine
}

func (l *faultyLog) Append(ctx context.Context, b []byte, d storage.Durability) (int64, error) {
	f := l.e.faults()
	if f.onAppend != nil {
		f.onAppend()
	}
	if f.appendErr != nil {
		return 0, f.appendErr
	}
	return l.Log.Append(ctx, b, d)
}

func (l *faultyLog) AppendThen(b []byte, d storage.Durability, done func(int64, error)) {
	f := l.e.faults()
	if f.onAppend != nil {
		f.onAppend()
	}
	if f.appendErr != nil {
		done(-1, f.appendErr)
		return
	}
	l.Log.AppendThen(b, d, done)
}

func (l *faultyLog) Read(ctx context.Context, offset int64, n int) (storage.Batches, error) {
	if err := l.e.faults().readErr; err != nil {
		return storage.Batches{}, err
	}
	return l.Log.Read(ctx, offset, n)
}

// eventually waits until f returns nil.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	end := time.Now().Add(deadline)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
