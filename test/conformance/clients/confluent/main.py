# SPDX-License-Identifier: Apache-2.0
"""Checks a broker with confluent-kafka, and so with librdkafka."""

import sys
import threading

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, KafkaError, KafkaException
from confluent_kafka import Producer, TopicCollection, TopicPartition, admin

import check
import member
from check import Record, expect

TIMEOUT = 30


class Checks(check.Program):
    """The checks and what they share."""

    def __init__(self):
        super().__init__("confluent-kafka (Python), librdkafka", f"{confluent_kafka.__version__}, {confluent_kafka.libversion()[0]}")
        self.admin = admin.AdminClient({"bootstrap.servers": self.bootstrap})

    # What the checks are made of.

    def topic(self, name, partitions):
        """Creates a topic."""
        self.admin.create_topics([admin.NewTopic(name, partitions, 1)])[name].result(TIMEOUT)

    def send(self, topic, records, **options):
        """Writes records and waits for their acknowledgements."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, **options})
        errors = []
        for r in records:
            extra = {} if r.timestamp is None else {"timestamp": r.timestamp}
            producer.produce(topic, r.value, r.key, r.partition, headers=r.headers or None, on_delivery=lambda e, _: errors.append(e), **extra)
        expect(producer.flush(TIMEOUT) == 0, "records were not acknowledged in time")
        expect(not any(errors), f"{[e for e in errors if e][:1]}")

    def read(self, topic, count, offsets):
        """Reads records from the given offsets on, by partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"})
        try:
            consumer.assign([TopicPartition(topic, p, o) for p, o in offsets.items()])
            return self.poll(consumer, count)
        finally:
            consumer.close()

    @staticmethod
    def poll(consumer, count):
        """Reads until it has the records."""
        records = []
        while len(records) < count:
            batch = consumer.consume(count, timeout=TIMEOUT)
            expect(batch, f"no record for {TIMEOUT} s after {len(records)} of {count}")
            for m in batch:
                if m.error():
                    raise KafkaException(m.error())
                records.append(Record(m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp()[1]))
        return records

    # Produce.

    def round_trip(self, name, **options):
        """Writes data, reads them back and compares."""
        topic = self.name(name)
        self.topic(topic, check.PARTITIONS)
        self.send(topic, check.data(), **options)
        check.same(check.data(), self.read(topic, check.DATA_RECORDS, dict.fromkeys(range(check.PARTITIONS), 0)))

    def large(self):
        """Writes and reads a record just below max.message.bytes."""
        topic = self.name("large")
        self.topic(topic, 1)
        self.send(topic, check.large(), **{"message.max.bytes": 1048588})
        check.same(check.large(), self.read(topic, 1, {0: 0}))

    def transactional(self):
        """A transactional id must be refused."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.name("txn")})
        error = None
        try:
            producer.init_transactions(20)
        except KafkaException as e:
            error = e.args[0]
        check.refused(error, error is not None and error.code() in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE))

    def auto_create(self):
        """Writes to a topic that nobody created."""
        topic, want = self.name("auto"), [Record(0, 0, b"k", b"v")]
        self.send(topic, want)
        check.same(want, self.read(topic, 1, {0: 0}))

    def unknown_topic(self):
        """Describes a topic that does not exist."""
        name = self.name("nowhere")
        try:
            self.admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT)[name].result(TIMEOUT)
        except KafkaException as e:
            expect(e.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART, f"{e}")
            return
        raise AssertionError("it was described")

    # Consume.

    def order(self):
        """Writes records with times and reads them in order."""
        topic = self.name("order")
        self.topic(topic, 1)
        self.send(topic, check.ordered())
        got = self.read(topic, check.ORDER_RECORDS, {0: 0})
        expect([r.offset for r in got] == list(range(check.ORDER_RECORDS)), "they were not read in order")
        check.same(check.ordered(), got)

    def seek_offset(self):
        """Reads from an offset."""
        check.same(check.ordered()[check.MIDDLE:], self.read(self.name("order"), check.ORDER_RECORDS - check.MIDDLE, {0: check.MIDDLE}))

    def seek_time(self):
        """Finds an offset by time."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none"})
        found = consumer.offsets_for_times([TopicPartition(self.name("order"), 0, check.EPOCH + check.MIDDLE * 1000 - 1)], TIMEOUT)[0]
        consumer.close()
        expect(found.error is None and found.offset == check.MIDDLE, f"{found}, want {check.MIDDLE}")

    # Groups.

    def never_seen(self):
        """Asks for the offsets of a group that never was."""
        place = TopicPartition(self.name("order"), 0)
        request = ConsumerGroupTopicPartitions(self.name("never"), [place])
        got = self.admin.list_consumer_group_offsets([request])[self.name("never")].result(TIMEOUT).topic_partitions[0]
        expect(got.error is None and got.offset == confluent_kafka.OFFSET_INVALID, f"{got}, want {confluent_kafka.OFFSET_INVALID}")

    def read_in_group(self, group, topic, count):
        """Reads as the only member, commits and leaves."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([topic])
            records = self.poll(consumer, count)
            consumer.commit(asynchronous=False)
            return records
        finally:
            consumer.close()

    def commit(self):
        """A second reader begins where the first one has committed."""
        name = self.name("commit")
        self.topic(name, check.PARTITIONS)
        self.send(name, check.data())
        check.same(check.data(), self.read_in_group(name, name, check.DATA_RECORDS))
        self.send(name, check.data()[:check.MORE])
        check.same(check.after(check.data()[:check.MORE]), self.read_in_group(name, name, check.MORE))

    def member(self, ledger, name, stop):
        """Reads until stop, and commits after each batch."""
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": self.name("rebalance"), "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 300, "partition.assignment.strategy": "range",
        })
        try:
            consumer.subscribe([self.name("rebalance")])
            while not stop.is_set():
                batch = consumer.consume(50, timeout=0.2)
                ledger.has(name, len(consumer.assignment()))
                for m in batch:
                    if m.error():
                        raise KafkaException(m.error())
                    ledger.read(m.partition(), m.offset())
                if batch:
                    try:
                        for p in consumer.commit(asynchronous=False):
                            if p.error is None:
                                ledger.committed(p.partition, p.offset)
                    except KafkaException as e:
                        if e.args[0].code() not in (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError._NO_OFFSET):
                            raise
        finally:
            consumer.close()

    def rebalance(self):
        """Two members read, and one leaves."""
        topic = self.name("rebalance")
        self.topic(topic, check.GROUP_PARTITIONS)
        self.send(topic, check.spread())
        check.rebalance(self.member, lambda: self.send(topic, check.spread()))

    def describe_group(self):
        """Describes and lists a group."""
        name = self.name("commit")
        group = self.admin.describe_consumer_groups([name], request_timeout=TIMEOUT)[name].result(TIMEOUT)
        expect(group.state == ConsumerGroupState.EMPTY, f"state {group.state}")
        listed = self.admin.list_consumer_groups(request_timeout=TIMEOUT).result(TIMEOUT).valid
        expect(name in [g.group_id for g in listed], "it is not listed")

    def lag(self):
        """Computes a group's lag from its offsets and the ends."""
        name = self.name("commit")
        self.send(name, check.data()[:check.MORE])
        committed = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(TIMEOUT).topic_partitions
        ends = self.admin.list_offsets({TopicPartition(name, p): admin.OffsetSpec.latest() for p in range(check.PARTITIONS)})
        lag = sum(f.result(TIMEOUT).offset for f in ends.values()) - sum(p.offset for p in committed)
        expect(lag == check.MORE, f"lag {lag}, want {check.MORE}")

    def delete_group(self):
        """Deletes a group."""
        name = self.name("commit")
        self.admin.delete_consumer_groups([name], request_timeout=TIMEOUT)[name].result(TIMEOUT)
        listed = self.admin.list_consumer_groups(request_timeout=TIMEOUT).result(TIMEOUT).valid
        expect(name not in [g.group_id for g in listed], "it is still listed")

    def administer(self):
        """Describes a KIP-848 group with a member, lists it by its type, and resets its offsets and deletes it without one."""
        name = self.name("administer")
        self.topic(name, check.PARTITIONS)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": name, "group.protocol": "consumer", "group.remote.assignor": "range"})
        try:
            consumer.subscribe([name])

            def described():
                consumer.poll(0.05)
                group = self.admin.describe_consumer_groups([name], request_timeout=TIMEOUT)[name].result(TIMEOUT)
                parts = [p.partition for m in group.members for p in m.assignment.topic_partitions]
                expect(group.state == ConsumerGroupState.STABLE and group.type == ConsumerGroupType.CONSUMER and group.partition_assignor == "range"
                       and sorted(parts) == list(range(check.PARTITIONS)), f"{group.state}, {group.type}, {group.partition_assignor}, {parts}")

            check.wait(described)
            for kind, want in ((ConsumerGroupType.CONSUMER, True), (ConsumerGroupType.CLASSIC, False)):
                listed = self.admin.list_consumer_groups(request_timeout=TIMEOUT, types={kind}).result(TIMEOUT).valid
                expect((name in [g.group_id for g in listed]) == want, f"listed as {kind}: {not want}")
            try:
                self.admin.delete_consumer_groups([name], request_timeout=TIMEOUT)[name].result(TIMEOUT)
            except KafkaException as e:
                expect(e.args[0].code() == KafkaError.NON_EMPTY_GROUP, f"{e}")
            else:
                raise AssertionError("it was deleted with a member")
        finally:
            consumer.close()
        place = TopicPartition(name, 1, 7)
        self.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, [place])])[name].result(TIMEOUT)
        got = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name, [TopicPartition(name, 1)])])[name].result(TIMEOUT)
        expect(got.topic_partitions[0].offset == 7, f"{got.topic_partitions}, want 7")
        self.admin.delete_consumer_groups([name], request_timeout=TIMEOUT)[name].result(TIMEOUT)

    # Topics.

    def create_again(self):
        """A topic that exists is not created."""
        try:
            self.topic(self.name("topic"), 2)
        except KafkaException as e:
            expect(e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, f"{e}")
            return
        raise AssertionError("the topic was created a second time")

    def partitions(self, count):
        """Describes a topic."""
        name = self.name("topic")
        got = self.admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT)[name].result(TIMEOUT).partitions
        expect(len(got) == count and all(p.leader.id >= 1 for p in got), f"{len(got)} partitions, want {count}, each with a leader")

    def add_partitions(self):
        """Adds partitions."""
        name = self.name("topic")
        self.admin.create_partitions([admin.NewPartitions(name, 5)])[name].result(TIMEOUT)
        check.wait(lambda: self.partitions(5))

    def retention(self, value):
        """Describes a topic's configs."""
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, self.name("topic"))
        got = self.admin.describe_configs([resource])[resource].result(TIMEOUT)["retention.ms"].value
        expect(got == value, f"retention.ms is {got}, want {value}")

    def alter_configs(self):
        """Alters a topic's configs."""
        entry = admin.ConfigEntry("retention.ms", "3600000", incremental_operation=admin.AlterConfigOpType.SET)
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, self.name("topic"), incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT)
        check.wait(lambda: self.retention("3600000"))

    def delete_records(self):
        """Deletes records below an offset."""
        place = TopicPartition(self.name("order"), 0, check.MIDDLE)
        low = self.admin.delete_records([place])[place].result(TIMEOUT).low_watermark
        expect(low == check.MIDDLE, f"the first offset is {low}, want {check.MIDDLE}")
        start = self.admin.list_offsets({TopicPartition(self.name("order"), 0): admin.OffsetSpec.earliest()})
        expect([f.result(TIMEOUT).offset for f in start.values()] == [check.MIDDLE], "the first offset is another one")

    def delete_topic(self):
        """Deletes a topic."""
        name = self.name("topic")
        self.admin.delete_topics([name])[name].result(TIMEOUT)
        check.wait(lambda: expect(name not in self.admin.list_topics(timeout=TIMEOUT).topics, "it is still listed"))


# Errors of a commit that a rebalance has overtaken: it counts for nothing, and the next owner reads again.
OVERTAKEN = (
    KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH, KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST, KafkaError._WAIT_COORD, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT, KafkaError._DESTROY,
)


def member_options(asked):
    """The options of a member."""
    options = {"bootstrap.servers": sys.argv[1], "group.id": asked["group"], "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    if asked["session_ms"]:
        options |= {"topic.metadata.refresh.interval.ms": 1000, "fetch.wait.max.ms": 200}
    if asked["client_id"]:
        options["client.id"] = asked["client_id"]
    if asked["instance"]:
        options["group.instance.id"] = asked["instance"]
    if asked["protocol"] == "consumer":
        options["group.protocol"] = "consumer"
        if asked["assignor"]:
            options["group.remote.assignor"] = asked["assignor"]
        return options
    options["partition.assignment.strategy"] = "cooperative-sticky" if asked["protocol"] == "cooperative" else "range"
    if asked["session_ms"]:
        options["session.timeout.ms"], options["heartbeat.interval.ms"] = asked["session_ms"], asked["heartbeat_ms"]
    return options


def be_member(asked):
    """Is a member of a group until it is told to leave."""
    leaving = member.leaving()
    consumer = Consumer(member_options(asked))
    consumer.subscribe(
        [asked["pattern"]] if asked["pattern"] else asked["topics"],
        on_assign=lambda _, p: member.moved("assigned", p), on_revoke=lambda _, p: member.moved("revoked", p), on_lost=lambda _, p: member.moved("lost", p))
    try:
        while not leaving.is_set():
            batch = []
            for m in consumer.consume(100, timeout=(asked["commit_ms"] or 200) / 1000):
                if not m.error():
                    batch.append((m.topic(), m.partition(), m.offset()))
                elif m.error().fatal() or not m.error().retriable() and m.error().code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    member.show("error", error=f"{m.error().name()}: {m.error().str()}")
            member.show_read(batch)
            if batch:
                commit_batch(consumer)
            elif asked["commit_ms"] and consumer.assignment():
                place = min(consumer.assignment(), key=lambda p: p.partition)
                member.timed(lambda: consumer.commit(offsets=[TopicPartition(place.topic, place.partition, 0)], asynchronous=False))
    except KafkaException as e:
        member.show("error", error=f"{e.args[0].name()}: {e.args[0].str()}")
    finally:
        consumer.close()


def commit_batch(consumer):
    """Commits what was read."""
    try:
        done = consumer.commit(asynchronous=False)
    except KafkaException as e:
        if e.args[0].code() not in OVERTAKEN:
            raise
        return
    for p in done:
        if p.error is None and p.offset >= 0:
            member.show("committed", topic=p.topic, partition=p.partition, next=p.offset, member=consumer.memberid() or "")


def main():
    """Runs all checks."""
    if member.asked():
        be_member(member.asked())
        return
    c = Checks()
    plain = {"enable.idempotence": False}
    c.run("produce acks=0", c.round_trip, "acks-0", acks=0, **plain)
    c.run("produce acks=1", c.round_trip, "acks-1", acks=1, **plain)
    c.run("produce acks=all", c.round_trip, "acks-all", acks="all", **plain)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        c.run("compression " + codec, c.round_trip, codec, **{"compression.type": codec})
    c.run("order and offsets", c.order)
    c.run("seek by offset", c.seek_offset)
    c.run("seek by time", c.seek_time)
    c.run("large record", c.large)
    c.run("idempotent producer", c.round_trip, "idempotent", **{"enable.idempotence": True, "batch.num.messages": 10})
    c.run("transactional id refused", c.transactional)
    c.run("auto-created topic", c.auto_create)
    c.run("unknown topic", c.unknown_topic)
    c.run("group never seen", c.never_seen)
    c.run("group commits", c.commit)
    c.run("group rebalance", c.rebalance)
    c.run("describe group", c.describe_group)
    c.run("lag", c.lag)
    c.run("delete group", c.delete_group)
    c.run("administer KIP-848 group", c.administer)
    c.run("create topic", c.topic, c.name("topic"), 2)
    c.run("create topic again", c.create_again)
    c.run("describe topic", check.wait, lambda: c.partitions(2))
    c.run("add partitions", c.add_partitions)
    c.run("describe configs", c.retention, "604800000")
    c.run("alter configs", c.alter_configs)
    c.run("delete records", c.delete_records)
    c.run("delete topic", c.delete_topic)


main()
