// SPDX-License-Identifier: Apache-2.0

// Command wire asks a broker, byte by byte, what clients are known to have stumbled over.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// program is the checks and what they share.
type program struct {
	*check.Program
	client *kgo.Client
	admin  *kadm.Client
}

func main() {
	p := &program{Program: check.Start("wire", "-")}
	var err error
	if p.client, err = kgo.NewClient(kgo.SeedBrokers(p.Bootstrap)); err != nil {
		fmt.Fprintln(os.Stderr, "wire:", err)
		os.Exit(1)
	}
	defer p.client.Close()
	p.admin = kadm.NewClient(p.client)
	p.Run(check.TrapAPIVersions, p.unknownVersion)
	p.Run(check.TrapProduceFetch, p.produceFetch)
	p.Run(check.TrapNodeIDs, p.nodeIDs)
	p.Run(check.TrapProducerID, func(ctx context.Context) error {
		_, err := p.producerID(ctx, nil)
		return err
	})
	p.Run(check.TrapTransactional, p.transactional)
	p.Run(check.TrapOffsetFetch, p.offsetFetch)
	p.Run(check.TrapTimeCompressed, p.timeCompressed)
	p.Run(check.TrapFirstBatchLarge, p.firstBatch)
	p.Run(check.TrapDuplicate, p.duplicate)
	p.Run(check.TrapSequenceGap, p.sequenceGap)
	p.Run(check.TrapChecksum, p.checksum)
	p.Run(check.TrapUnknownKey, p.unknownKey)
	p.Run(check.TrapHugeFrame, p.hugeFrame)
	p.Run(check.TrapLostJoin, p.lostJoin)
	p.Run(check.TrapLostStaticJoin, p.lostStaticJoin)
	p.Run(check.TrapReturningLeader, p.returningLeader)
	p.Run(check.TrapUnknownMember, p.unknownMember)
	p.Run(check.TrapWrongEpoch, p.wrongEpoch)
	p.Run(check.TrapLostAnswer, p.lostAnswer)
	p.Run(check.TrapBadHeartbeat, p.badHeartbeat)
	p.Run(check.TrapStaleCommit, p.staleCommit)
	p.Run(check.TrapKeptCommit, p.keptCommit)
	p.Run(check.TrapBadPattern, p.badPattern)
	p.Run(check.TrapBadAssignor, p.badAssignor)
	p.Run(check.TrapStaticReturn, p.staticReturn)
	p.Run(check.TrapUsedInstance, p.usedInstance)
	p.Run(check.TrapNotMigratable, p.notMigratable)
	p.Run(check.TrapDescribeOther, p.describeOther)
	p.Run(check.TrapDeleteUsed, p.deleteUsed)
}

// code turns an error code into an error.
func code(c int16) error { return kerr.ErrorForCode(c) }

// keys asks for the versions that are offered.
func (p *program) keys(ctx context.Context) ([]kmsg.ApiVersionsResponseApiKey, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	req.ClientSoftwareName, req.ClientSoftwareVersion = "wire", "1"
	resp, err := once[*kmsg.ApiVersionsResponse](ctx, p.Bootstrap, req)
	if err != nil {
		return nil, err
	}
	return resp.ApiKeys, code(resp.ErrorCode)
}

// unknownVersion asks for ApiVersions in a version that nobody has yet.
func (p *program) unknownVersion(ctx context.Context) error {
	want, err := p.keys(ctx)
	if err != nil {
		return err
	}
	c, err := dial(ctx, p.Bootstrap)
	if err != nil {
		return err
	}
	defer c.Close()
	body := binary.BigEndian.AppendUint16(nil, 18)
	body = binary.BigEndian.AppendUint16(body, 100)
	body = binary.BigEndian.AppendUint32(body, 7)
	body = append(body, 0, 1, 'x', 0, 2, 'x', 2, '1', 0)
	raw, err := c.frame(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	if err != nil {
		return err
	}
	if len(raw) < 4 || binary.BigEndian.Uint32(raw) != 7 {
		return fmt.Errorf("the response begins with % x, want correlation id 7", raw[:min(4, len(raw))])
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(raw[4:]); err != nil {
		return fmt.Errorf("the response is not of version 0: %w", err)
	}
	if err := code(resp.ErrorCode); !errors.Is(err, kerr.UnsupportedVersion) {
		return fmt.Errorf("error %s, want UNSUPPORTED_VERSION", check.Why(err))
	}
	same := slices.EqualFunc(resp.ApiKeys, want, func(a, b kmsg.ApiVersionsResponseApiKey) bool {
		return a.ApiKey == b.ApiKey && a.MinVersion == b.MinVersion && a.MaxVersion == b.MaxVersion
	})
	if !same {
		return fmt.Errorf("%d keys, want the same %d as in version 3", len(resp.ApiKeys), len(want))
	}
	if _, err := c.ask(kmsg.NewPtrMetadataRequest()); err != nil {
		return fmt.Errorf("the connection is of no use after it: %w", err)
	}
	return nil
}

func (p *program) produceFetch(ctx context.Context) error {
	keys, err := p.keys(ctx)
	if err != nil {
		return err
	}
	offers := func(key, version int16) bool {
		return slices.ContainsFunc(keys, func(k kmsg.ApiVersionsResponseApiKey) bool {
			return k.ApiKey == key && k.MinVersion <= version && version <= k.MaxVersion
		})
	}
	if !offers(0, 3) || !offers(1, 4) {
		return errors.New("they are not")
	}
	return nil
}

func (p *program) nodeIDs(ctx context.Context) error {
	m, err := p.admin.Metadata(ctx)
	if err != nil {
		return err
	}
	ids := m.Brokers.NodeIDs()
	if len(ids) == 0 || slices.Min(ids) < 1 || !slices.Contains(ids, m.Controller) {
		return fmt.Errorf("brokers %v, controller %d", ids, m.Controller)
	}
	return nil
}

// producerID asks for a producer id.
func (p *program) producerID(ctx context.Context, transactional *string) (*kmsg.InitProducerIDResponse, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(4)
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = transactional, 10000, -1, -1
	resp, err := once[*kmsg.InitProducerIDResponse](ctx, p.Bootstrap, req)
	if err == nil {
		err = code(resp.ErrorCode)
	}
	if err == nil && (resp.ProducerID < 0 || resp.ProducerEpoch < 0) {
		err = fmt.Errorf("producer id %d, epoch %d", resp.ProducerID, resp.ProducerEpoch)
	}
	return resp, err
}

// transactional asks as a client does: for the coordinator, and then for a producer id. Either must refuse for good.
func (p *program) transactional(ctx context.Context) error {
	id := p.Name("txn")
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.SetVersion(3)
	find.CoordinatorKey, find.CoordinatorType = id, 1
	found, err := once[*kmsg.FindCoordinatorResponse](ctx, p.Bootstrap, find)
	if err != nil {
		return err
	}
	err = code(found.ErrorCode)
	if err == nil {
		_, err = p.producerID(ctx, &id)
	}
	switch {
	case err == nil:
		return errors.New("it was accepted")
	case kerr.IsRetriable(err):
		return fmt.Errorf("clients try again after %w", err)
	}
	return nil
}

func (p *program) offsetFetch(ctx context.Context) error {
	topic, _, err := p.topic(ctx, "never")
	if err != nil {
		return err
	}
	group := p.Name("never")
	address, err := p.coordinator(ctx, group)
	if err != nil {
		return err
	}
	for version := int16(1); version <= 8; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.SetVersion(version)
		req.Group = group
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberEpoch = group, -1
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{0}}}
		req.Groups = []kmsg.OffsetFetchRequestGroup{g}
		resp, err := once[*kmsg.OffsetFetchResponse](ctx, address, req)
		if err != nil {
			return fmt.Errorf("version %d: %w", version, err)
		}
		offset, failed, err := committed(resp)
		if err != nil || failed != nil || offset != -1 {
			return fmt.Errorf("version %d: offset %d, error %s; want -1 and none", version, offset, check.Why(errors.Join(err, failed)))
		}
	}
	return nil
}

// committed is the only partition's offset and error.
func committed(resp *kmsg.OffsetFetchResponse) (offset int64, failed, err error) {
	switch {
	case resp.Version >= 8 && len(resp.Groups) == 1 && len(resp.Groups[0].Topics) == 1 && len(resp.Groups[0].Topics[0].Partitions) == 1:
		x := resp.Groups[0].Topics[0].Partitions[0]
		return x.Offset, errors.Join(code(resp.Groups[0].ErrorCode), code(x.ErrorCode)), nil
	case resp.Version < 8 && len(resp.Topics) == 1 && len(resp.Topics[0].Partitions) == 1:
		x := resp.Topics[0].Partitions[0]
		return x.Offset, errors.Join(code(resp.ErrorCode), code(x.ErrorCode)), nil
	}
	return 0, nil, errors.New("the partition is not in the response")
}

// topic creates a topic of one partition, and returns its name and its leader's address.
func (p *program) topic(ctx context.Context, of string) (topic, address string, err error) {
	topic = p.Name(of)
	if _, err := p.admin.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return "", "", err
	}
	err = check.Await(ctx, func() error {
		m, err := p.admin.Metadata(ctx, topic)
		if err != nil {
			return err
		}
		d, ok := m.Topics[topic].Partitions[0]
		if !ok || d.Err != nil || d.Leader < 0 {
			return fmt.Errorf("partition 0 has no leader: %w", d.Err)
		}
		for _, b := range m.Brokers {
			if b.NodeID == d.Leader {
				address = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
			}
		}
		return nil
	})
	if err == nil {
		err = check.Served(ctx, p.admin, topic)
	}
	return topic, address, err
}

// timeCompressed looks for a time in the middle of a compressed batch, and expects the record that has it, as Kafka answers.
func (p *program) timeCompressed(ctx context.Context) error {
	for codec, option := range map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		topic, _, err := p.topic(ctx, "time-"+codec)
		if err != nil {
			return err
		}
		c, err := kgo.NewClient(kgo.SeedBrokers(p.Bootstrap), kgo.ProducerBatchCompression(option))
		if err != nil {
			return err
		}
		var records []*kgo.Record
		for i := range 1000 {
			records = append(records, &kgo.Record{Topic: topic, Timestamp: check.Time(i), Value: []byte("value")})
		}
		err = c.ProduceSync(ctx, records...).FirstErr()
		c.Close()
		if err != nil {
			return err
		}
		offsets, err := p.admin.ListOffsetsAfterMilli(ctx, check.Time(678).UnixMilli()-1, topic)
		if err != nil {
			return err
		}
		if o, _ := offsets.Lookup(topic, 0); o.Err != nil || o.Offset != 678 || o.Timestamp != check.Time(678).UnixMilli() {
			return fmt.Errorf("%s: offset %d, time %d, error %s; want offset 678 and its time", codec, o.Offset, o.Timestamp, check.Why(o.Err))
		}
	}
	return nil
}

// produce sends a batch to a topic's only partition.
func (p *program) produce(ctx context.Context, address, topic string, raw []byte) (kmsg.ProduceResponseTopicPartition, error) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(7)
	req.Acks, req.TimeoutMillis = -1, 10000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: raw}}}}
	resp, err := once[*kmsg.ProduceResponse](ctx, address, req)
	if err != nil {
		return kmsg.ProduceResponseTopicPartition{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return kmsg.ProduceResponseTopicPartition{}, errors.New("the partition is not in the response")
	}
	out := resp.Topics[0].Partitions[0]
	return out, code(out.ErrorCode)
}

func (p *program) firstBatch(ctx context.Context) error {
	topic, address, err := p.topic(ctx, "large")
	if err != nil {
		return err
	}
	raw := batch(-1, -1, -1, make([]byte, 100_000))
	if _, err := p.produce(ctx, address, topic, raw); err != nil {
		return err
	}
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(4)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 1000, 1, 1
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{{PartitionMaxBytes: 1}}}}
	resp, err := once[*kmsg.FetchResponse](ctx, address, req)
	if err != nil {
		return err
	}
	got := resp.Topics[0].Partitions[0]
	if err := code(got.ErrorCode); err != nil || len(got.RecordBatches) != len(raw) {
		return fmt.Errorf("%d bytes, error %s; want %d", len(got.RecordBatches), check.Why(err), len(raw))
	}
	return nil
}

func (p *program) duplicate(ctx context.Context) error {
	topic, address, err := p.topic(ctx, "duplicate")
	if err != nil {
		return err
	}
	producer, err := p.producerID(ctx, nil)
	if err != nil {
		return err
	}
	for i, sequence := range []int32{0, 1, 2, 1} {
		got, err := p.produce(ctx, address, topic, batch(producer.ProducerID, producer.ProducerEpoch, sequence, []byte("v")))
		if err != nil {
			return fmt.Errorf("batch %d: %w", i, err)
		}
		if got.BaseOffset != int64(sequence) {
			return fmt.Errorf("batch %d has offset %d, want %d", i, got.BaseOffset, sequence)
		}
	}
	ends, err := p.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	if o, _ := ends.Lookup(topic, 0); o.Offset != 3 {
		return fmt.Errorf("the end is %d, want 3", o.Offset)
	}
	return nil
}

func (p *program) sequenceGap(ctx context.Context) error {
	topic, address, err := p.topic(ctx, "gap")
	if err != nil {
		return err
	}
	producer, err := p.producerID(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.produce(ctx, address, topic, batch(producer.ProducerID, producer.ProducerEpoch, 0, []byte("v"))); err != nil {
		return err
	}
	_, err = p.produce(ctx, address, topic, batch(producer.ProducerID, producer.ProducerEpoch, 5, []byte("v")))
	if !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		return fmt.Errorf("error %s", check.Why(err))
	}
	return nil
}

func (p *program) checksum(ctx context.Context) error {
	topic, address, err := p.topic(ctx, "checksum")
	if err != nil {
		return err
	}
	raw := batch(-1, -1, -1, []byte("value"))
	raw[len(raw)-2] ^= 1
	if _, err = p.produce(ctx, address, topic, raw); !errors.Is(err, kerr.CorruptMessage) {
		return fmt.Errorf("error %s", check.Why(err))
	}
	return nil
}

// unknownKey sends a request of a key that does not exist while another connection goes on.
func (p *program) unknownKey(ctx context.Context) error {
	body := binary.BigEndian.AppendUint16(nil, 12345)
	body = append(body, 0, 0, 0, 0, 0, 1, 0xff, 0xff)
	return p.hostile(ctx, append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

// hugeFrame announces a frame of 2 GB and sends nothing of it.
func (p *program) hugeFrame(ctx context.Context) error {
	return p.hostile(ctx, []byte{0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0})
}

// hostile sends bytes that must end their own connection and nothing else.
func (p *program) hostile(ctx context.Context, raw []byte) error {
	other, err := dial(ctx, p.Bootstrap)
	if err != nil {
		return err
	}
	defer other.Close()
	c, err := dial(ctx, p.Bootstrap)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.frame(raw); !errors.Is(err, io.EOF) && !isReset(err) {
		return fmt.Errorf("the connection was not ended, but %w", err)
	}
	if _, err := other.ask(kmsg.NewPtrMetadataRequest()); err != nil {
		return fmt.Errorf("another connection was harmed: %w", err)
	}
	return nil
}

// isReset says whether the broker ended a connection with bytes of it unread.
func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}
