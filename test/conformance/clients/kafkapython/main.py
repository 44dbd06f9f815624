# SPDX-License-Identifier: Apache-2.0
"""Checks a broker with kafka-python."""

import sys
import time

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, KafkaAdminClient, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError, RebalanceInProgressError
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

import check
import member
from check import Record, expect

TIMEOUT = 30


class Checks(check.Program):
    """The checks and what they share."""

    def __init__(self):
        super().__init__("kafka-python", kafka.__version__)
        self.admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)

    def release(self):
        """The client guesses the broker's release from the versions that it offers."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        guess = consumer.config["api_version"]
        consumer.close()
        expect(guess >= (2, 5), f"it guesses {guess}")

    # What the checks are made of.

    def topic(self, name, partitions):
        """Creates a topic."""
        self.admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}}, wait_for_metadata=True)

    def send(self, topic, records, **options):
        """Writes records and waits for their acknowledgements."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=20, **options)
        try:
            futures = [
                producer.send(topic, value=r.value, key=r.key, partition=r.partition, headers=r.headers, timestamp_ms=r.timestamp)
                for r in records
            ]
            producer.flush(TIMEOUT)
            for future in futures:
                future.get(TIMEOUT)
        finally:
            producer.close(TIMEOUT)

    def read(self, topic, count, offsets):
        """Reads records from the given offsets on, by partition."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="none")
        try:
            places = [TopicPartition(topic, p) for p in offsets]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, offsets[place.partition])
            return self.poll(consumer, count)
        finally:
            consumer.close()

    @staticmethod
    def poll(consumer, count):
        """Reads until it has the records."""
        records, end = [], time.monotonic() + TIMEOUT
        while len(records) < count:
            expect(time.monotonic() < end, f"{len(records)} of {count} records after {TIMEOUT} s")
            for batch in consumer.poll(500).values():
                records += [Record(m.partition, m.offset, m.key, m.value, m.headers, m.timestamp) for m in batch]
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
        self.send(topic, check.large(), max_request_size=1048588)
        check.same(check.large(), self.read(topic, 1, {0: 0}))

    def transactional(self):
        """A transactional id must be refused."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.name("txn"), max_block_ms=20000)
        error = None
        try:
            producer.init_transactions()
        except KafkaError as e:
            error = e
        finally:
            producer.close(0)
        check.refused(error, isinstance(error, KafkaTimeoutError))

    def auto_create(self):
        """Writes to a topic that nobody created."""
        topic, want = self.name("auto"), [Record(0, 0, b"k", b"v")]
        self.send(topic, want)
        check.same(want, self.read(topic, 1, {0: 0}))

    def unknown_topic(self):
        """Describes a topic that does not exist."""
        got = self.admin.describe_topics([self.name("nowhere")])[0]["error_code"]
        expect(for_code(got) is UnknownTopicOrPartitionError, f"error {got}")

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
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        place = TopicPartition(self.name("order"), 0)
        found = consumer.offsets_for_times({place: check.EPOCH + check.MIDDLE * 1000 - 1})[place]
        consumer.close()
        want = check.EPOCH + check.MIDDLE * 1000
        expect(found.offset == check.MIDDLE and found.timestamp == want, f"{found}, want {check.MIDDLE} at {want}")

    # Groups.

    def never_seen(self):
        """Asks for the offsets of a group that never was."""
        place = TopicPartition(self.name("order"), 0)
        got = self.admin.list_group_offsets({self.name("never"): [place]})[self.name("never")]
        expect(got[place].offset == -1, f"{got}, want -1")

    def consumer(self, group, **options):
        """Is a consumer that is a member of a group."""
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest", heartbeat_interval_ms=300, **options
        )

    def read_in_group(self, name, count):
        """Reads as the only member, commits and leaves."""
        consumer = self.consumer(name)
        try:
            consumer.subscribe([name])
            records = self.poll(consumer, count)
            consumer.commit()
            return records
        finally:
            consumer.close()

    def commit(self):
        """A second reader begins where the first one has committed."""
        name = self.name("commit")
        self.topic(name, check.PARTITIONS)
        self.send(name, check.data())
        check.same(check.data(), self.read_in_group(name, check.DATA_RECORDS))
        self.send(name, check.data()[:check.MORE])
        check.same(check.after(check.data()[:check.MORE]), self.read_in_group(name, check.MORE))

    def member(self, ledger, name, stop):
        """Reads until stop, and commits after each poll."""
        consumer = self.consumer(self.name("rebalance"), max_poll_records=50, session_timeout_ms=6000)
        try:
            know(consumer, [self.name("rebalance")])
            consumer.subscribe([self.name("rebalance")])
            while not stop.is_set():
                polled = consumer.poll(200)
                ledger.has(name, len(consumer.assignment()))
                for batch in polled.values():
                    for m in batch:
                        ledger.read(m.partition, m.offset)
                if polled:
                    try:
                        consumer.commit()
                        for place, batch in polled.items():
                            ledger.committed(place.partition, batch[-1].offset + 1)
                    except (CommitFailedError, RebalanceInProgressError):
                        pass  # the next owner reads them again
        finally:
            consumer.close()

    def rebalance(self):
        """Two members read, and one leaves."""
        topic = self.name("rebalance")
        self.topic(topic, check.GROUP_PARTITIONS)
        self.send(topic, check.spread())
        check.rebalance(self.member, lambda: self.send(topic, check.spread()))

    def listed(self, name):
        """Is whether a group is listed."""
        return name in [g["group_id"] for g in self.admin.list_groups()]

    def describe_group(self):
        """Describes and lists a group."""
        name = self.name("commit")
        group = self.admin.describe_groups([name])[name]
        expect(group["group_state"] == "Empty" and group["protocol_type"] == "consumer", f"{group}")
        expect(self.listed(name), "it is not listed")

    def lag(self):
        """Computes a group's lag from its offsets and the ends."""
        name = self.name("commit")
        self.send(name, check.data()[:check.MORE])
        committed = self.admin.list_group_offsets({name: None})[name]
        ends = self.admin.list_partition_offsets({TopicPartition(name, p): OffsetSpec.LATEST for p in range(check.PARTITIONS)})
        lag = sum(e.offset for e in ends.values()) - sum(c.offset for c in committed.values())
        expect(lag == check.MORE, f"lag {lag}, want {check.MORE}")

    def delete_group(self):
        """Deletes a group."""
        name = self.name("commit")
        self.admin.delete_groups([name])
        expect(not self.listed(name), "it is still listed")

    # Topics.

    def create_again(self):
        """A topic that exists is not created."""
        try:
            self.topic(self.name("topic"), 2)
        except TopicAlreadyExistsError:
            return
        raise AssertionError("the topic was created a second time")

    def partitions(self, count):
        """Describes a topic."""
        got = self.admin.describe_topics([self.name("topic")])[0]
        leaders = [p["leader_id"] for p in got["partitions"]]
        expect(len(leaders) == count and min(leaders) >= 1, f"{got}, want {count} partitions, each with a leader")

    def add_partitions(self):
        """Adds partitions."""
        self.admin.create_partitions({self.name("topic"): 5})
        check.wait(lambda: self.partitions(5))

    def retention(self, value):
        """Describes a topic's configs."""
        name = self.name("topic")
        got = self.admin.describe_configs([ConfigResource("TOPIC", name)], config_filter="all")["topic"][name]["retention.ms"]
        expect(str(got["value"]) == value, f"{got}, want {value}")

    def alter_configs(self):
        """Alters a topic's configs, with either request."""
        for value, incremental in (("3600000", True), ("7200000", False)):
            resource = ConfigResource("TOPIC", self.name("topic"), {"retention.ms": value})
            result = self.admin.alter_configs([resource], incremental=incremental)["topic"][self.name("topic")]
            expect("error" not in str(result).lower() or "NoError" in str(result), f"{result}")
            check.wait(lambda: self.retention(value), 10)

    def delete_records(self):
        """Deletes records below an offset."""
        place = TopicPartition(self.name("order"), 0)
        self.admin.delete_records({place: check.MIDDLE})
        got = self.admin.list_partition_offsets({place: OffsetSpec.EARLIEST})[place].offset
        expect(got == check.MIDDLE, f"the first offset is {got}, want {check.MIDDLE}")

    def delete_topic(self):
        """Deletes a topic."""
        name = self.name("topic")
        self.admin.delete_topics([name])
        check.wait(lambda: expect(name not in self.admin.list_topics(), "it is still listed"))


def know(consumer, topics):
    """Has a consumer know its topics' partitions. One that joins a group before it does joins again at once, and may hang there."""
    for topic in topics:
        consumer.partitions_for_topic(topic)


class Listener(kafka.ConsumerRebalanceListener):
    """Prints what comes and goes."""

    def on_partitions_assigned(self, assigned):
        """Is called when partitions have come."""
        member.moved("assigned", assigned)

    def on_partitions_revoked(self, revoked):
        """Is called when partitions are about to go."""
        member.moved("revoked", revoked)

    def on_partitions_lost(self, lost):
        """Is called when partitions have gone."""
        member.moved("lost", lost)


def be_member(asked):
    """Is a member of a group until it is told to leave."""
    leaving = member.leaving()
    assignor = CooperativeStickyAssignor if asked["protocol"] == "cooperative" else RangePartitionAssignor
    options = {"group_instance_id": asked["instance"]} if asked["instance"] else {}
    if asked["client_id"]:
        options["client_id"] = asked["client_id"]
    if asked["session_ms"]:
        options |= {"session_timeout_ms": asked["session_ms"], "heartbeat_interval_ms": asked["heartbeat_ms"]}
        options |= {"metadata_max_age_ms": 1000, "fetch_max_wait_ms": 200}
    consumer = KafkaConsumer(
        bootstrap_servers=sys.argv[1], group_id=asked["group"], enable_auto_commit=False, auto_offset_reset="earliest",
        partition_assignment_strategy=[assignor], **options)
    try:
        know(consumer, asked["topics"])
        consumer.subscribe(asked["topics"], listener=Listener())
        while not leaving.is_set():
            polled = consumer.poll(asked["commit_ms"] or 200)
            member.show_read((p.topic, p.partition, r.offset) for p, records in polled.items() for r in records)
            if polled:
                commit_polled(consumer, polled)
            elif asked["commit_ms"] and consumer.assignment():
                place = {min(consumer.assignment()): kafka.OffsetAndMetadata(0, "", -1)}
                member.timed(lambda: consumer.commit(place))
    except KafkaError as e:
        member.show("error", error=f"{type(e).__name__}: {e}")
    finally:
        consumer.close()


def commit_polled(consumer, polled):
    """Commits what was read."""
    offsets = {p: kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1) for p, records in polled.items()}
    try:
        consumer.commit(offsets)
    except (CommitFailedError, RebalanceInProgressError):
        return  # a rebalance has overtaken it: the next owner reads again
    me = consumer.group_metadata()
    for p, offset in offsets.items():
        member.show("committed", topic=p.topic, partition=p.partition, next=offset.offset, member=me.member_id, generation=me.generation_id)


def main():
    """Runs all checks."""
    if member.asked():
        be_member(member.asked())
        return
    c = Checks()
    c.run("kafka-python guesses one real release from the versions that are offered, 2.5 or later", c.release)
    plain = {"enable_idempotence": False}
    c.run("produce acks=0", c.round_trip, "acks-0", acks=0, **plain)
    c.run("produce acks=1", c.round_trip, "acks-1", acks=1, **plain)
    c.run("produce acks=all", c.round_trip, "acks-all", acks="all", **plain)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        c.run("compression " + codec, c.round_trip, codec, compression_type=None if codec == "none" else codec)
    c.run("order and offsets", c.order)
    c.run("seek by offset", c.seek_offset)
    c.run("seek by time", c.seek_time)
    c.run("large record", c.large)
    c.run("idempotent producer", c.round_trip, "idempotent", enable_idempotence=True, batch_size=1000)
    c.run("transactional id refused", c.transactional)
    c.run("auto-created topic", c.auto_create)
    c.run("unknown topic", c.unknown_topic)
    c.run("group never seen", c.never_seen)
    c.run("group commits", c.commit)
    c.run("group rebalance", c.rebalance)
    c.run("describe group", c.describe_group)
    c.run("lag", c.lag)
    c.run("delete group", c.delete_group)
    c.skip("administer KIP-848 group", "the client has no KIP-848")
    c.run("create topic", c.topic, c.name("topic"), 2)
    c.run("create topic again", c.create_again)
    c.run("describe topic", check.wait, lambda: c.partitions(2))
    c.run("add partitions", c.add_partitions)
    c.run("describe configs", c.retention, "604800000")
    c.run("alter configs", c.alter_configs)
    c.run("delete records", c.delete_records)
    c.run("delete topic", c.delete_topic)


main()
