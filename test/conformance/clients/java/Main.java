// SPDX-License-Identifier: Apache-2.0

import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Checks a broker with the Java client. */
public final class Main {
    private static final long LIMIT = 60;
    private static final Duration HALF = Duration.ofSeconds(30);

    private final String bootstrap;
    private final String prefix;
    private final Admin admin;
    private final ExecutorService threads = Executors.newCachedThreadPool(r -> {
        Thread t = new Thread(r);
        t.setDaemon(true);
        return t;
    });

    private Main(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    /** A check. */
    private interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws IOException {
        if (args.length == 3) {
            Member.run(args[0], args[2]);
            return;
        }
        if (args.length != 2) {
            System.err.println("usage: Main BOOTSTRAP PREFIX");
            System.exit(2);
        }
        print("client", "Java kafka-clients", "version", version());
        new Main(args[0], args[1]).all();
        System.exit(0);
    }

    /** The client's version, as its jar says. */
    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream in = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(in);
        }
        return properties.getProperty("version");
    }

    private void all() {
        Map<String, String> plain = Map.of("enable.idempotence", "false");
        for (String acks : List.of("0", "1", "all")) {
            run("produce acks=" + acks, () -> roundTrip("acks-" + acks, with(plain, "acks", acks)));
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            run("compression " + codec, () -> roundTrip(codec, Map.of("compression.type", codec)));
        }
        run("order and offsets", this::order);
        run("seek by offset", () -> Data.same(
                Data.ordered().subList(Data.MIDDLE, Data.ORDER_RECORDS),
                read(name("order"), Data.ORDER_RECORDS - Data.MIDDLE, Map.of(0, (long) Data.MIDDLE))));
        run("seek by time", this::seekTime);
        run("large record", this::large);
        run("idempotent producer", () -> roundTrip("idempotent", Map.of("enable.idempotence", "true", "batch.size", "1000")));
        run("transactional id refused", this::transactional);
        run("auto-created topic", this::autoCreate);
        run("unknown topic", () -> fails(UnknownTopicOrPartitionException.class, () -> partitions(name("nowhere"), 1)));
        run("group never seen", this::neverSeen);
        run("group commits", this::commit);
        run("group rebalance", this::rebalance);
        run("describe group", this::describeGroup);
        run("lag", this::lag);
        run("delete group", this::deleteGroup);
        run("administer KIP-848 group", this::administer);
        run("create topic", () -> topic(name("topic"), 2));
        run("create topic again", () -> fails(TopicExistsException.class, () -> topic(name("topic"), 2)));
        run("describe topic", () -> await(() -> partitions(name("topic"), 2)));
        run("add partitions", () -> {
            admin.createPartitions(Map.of(name("topic"), NewPartitions.increaseTo(5))).all().get();
            await(() -> partitions(name("topic"), 5));
        });
        run("describe configs", () -> retention("604800000"));
        run("alter configs", this::alterConfigs);
        run("delete records", this::deleteRecords);
        run("delete topic", () -> {
            admin.deleteTopics(Set.of(name("topic"))).all().get();
            await(() -> Data.expect(!admin.listTopics().names().get().contains(name("topic")), "it is still listed"));
        });
    }

    // What the checks are made of.

    private String name(String of) {
        return prefix + "-" + of;
    }

    private static Map<String, String> with(Map<String, String> base, String... pairs) {
        Map<String, String> all = new HashMap<>(base);
        for (int i = 0; i < pairs.length; i += 2) {
            all.put(pairs[i], pairs[i + 1]);
        }
        return all;
    }

    private void topic(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    /** Writes records and waits for their acknowledgements. */
    private void send(String topic, List<Data.Rec> records, Map<String, String> options) throws Exception {
        Map<String, Object> config = new HashMap<>(options);
        config.put("bootstrap.servers", bootstrap);
        config.putIfAbsent("linger.ms", "20");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (Data.Rec r : records) {
                ProducerRecord<byte[], byte[]> out = new ProducerRecord<>(topic, r.partition(), r.time(), r.key(), r.value());
                r.headers().forEach(h -> out.headers().add(h.name(), h.value()));
                sent.add(producer.send(out));
            }
            for (Future<RecordMetadata> s : sent) {
                s.get();
            }
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, String> options) {
        Map<String, Object> config = new HashMap<>(options);
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", "false");
        config.putIfAbsent("auto.offset.reset", "none");
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Reads records from the given offsets on, by partition. */
    private List<Data.Rec> read(String topic, int count, Map<Integer, Long> offsets) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(offsets.keySet().stream().map(p -> new TopicPartition(topic, p)).toList());
            offsets.forEach((p, o) -> consumer.seek(new TopicPartition(topic, p), o));
            return poll(consumer, count);
        }
    }

    private static List<Data.Rec> poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<Data.Rec> records = new ArrayList<>();
        long end = System.nanoTime() + HALF.toNanos();
        while (records.size() < count) {
            Data.expect(System.nanoTime() < end, records.size() + " of " + count + " records after " + HALF);
            for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                List<Data.Header> headers = new ArrayList<>();
                r.headers().forEach(h -> headers.add(new Data.Header(h.key(), h.value())));
                records.add(new Data.Rec(r.partition(), r.offset(), r.key(), r.value(), headers, r.timestamp()));
            }
        }
        return records;
    }

    private static Map<Integer, Long> start(int partitions) {
        return IntStream.range(0, partitions).boxed().collect(Collectors.toMap(p -> p, p -> 0L));
    }

    /** Runs body until it no longer fails. */
    private static void await(Check body) throws Exception {
        long end = System.nanoTime() + HALF.toNanos();
        while (true) {
            try {
                body.run();
                return;
            } catch (Exception | AssertionError e) {
                if (System.nanoTime() > end) {
                    throw e;
                }
                Thread.sleep(50);
            }
        }
    }

    private static void fails(Class<? extends Exception> want, Check body) throws Exception {
        try {
            body.run();
        } catch (ExecutionException e) {
            Data.expect(want.isInstance(e.getCause()), "want " + want.getSimpleName() + ", not " + e.getCause());
            return;
        }
        throw new AssertionError("want " + want.getSimpleName());
    }

    // Produce and consume.

    private void roundTrip(String of, Map<String, String> options) throws Exception {
        topic(name(of), Data.PARTITIONS);
        send(name(of), Data.all(), options);
        Data.same(Data.all(), read(name(of), Data.RECORDS, start(Data.PARTITIONS)));
    }

    private void large() throws Exception {
        topic(name("large"), 1);
        send(name("large"), Data.large(), Map.of("max.request.size", "1048588"));
        Data.same(Data.large(), read(name("large"), 1, start(1)));
    }

    private void order() throws Exception {
        topic(name("order"), 1);
        send(name("order"), Data.ordered(), Map.of());
        List<Data.Rec> got = read(name("order"), Data.ORDER_RECORDS, start(1));
        for (int i = 0; i < got.size(); i++) {
            Data.expect(got.get(i).offset() == i, "they were not read in order");
        }
        Data.same(Data.ordered(), got);
    }

    private void seekTime() {
        TopicPartition place = new TopicPartition(name("order"), 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, Data.EPOCH + Data.MIDDLE * 1000L - 1)).get(place);
            Data.expect(found != null && found.offset() == Data.MIDDLE && found.timestamp() == Data.EPOCH + Data.MIDDLE * 1000L,
                    found + ", want offset " + Data.MIDDLE);
        }
    }

    private void transactional() {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", name("txn"), "max.block.ms", "20000");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
        } catch (org.apache.kafka.common.errors.TimeoutException e) {
            throw new AssertionError("no refusal, but " + e.getMessage(), e);
        } catch (org.apache.kafka.common.KafkaException e) {
            return;
        }
        throw new AssertionError("a transactional id was accepted");
    }

    private void autoCreate() throws Exception {
        List<Data.Rec> want = List.of(new Data.Rec(0, 0, Data.bytes("k"), Data.bytes("v"), List.of(), null));
        send(name("auto"), want, Map.of());
        Data.same(want, read(name("auto"), 1, start(1)));
    }

    // Groups.

    private void neverSeen() throws Exception {
        TopicPartition place = new TopicPartition(name("order"), 0);
        Map<String, ListConsumerGroupOffsetsSpec> spec = Map.of(name("never"), new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(place)));
        Map<TopicPartition, OffsetAndMetadata> got = admin.listConsumerGroupOffsets(spec).partitionsToOffsetAndMetadata(name("never")).get();
        Data.expect(got.containsKey(place) && got.get(place) == null, "offsets " + got + ", want none for the partition");
    }

    private List<Data.Rec> readInGroup(String name, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", name, "auto.offset.reset", "earliest"))) {
            consumer.subscribe(List.of(name));
            List<Data.Rec> records = poll(consumer, count);
            consumer.commitSync();
            return records;
        }
    }

    private void commit() throws Exception {
        String name = name("commit");
        topic(name, Data.PARTITIONS);
        send(name, Data.all(), Map.of());
        Data.same(Data.all(), readInGroup(name, Data.RECORDS));
        List<Data.Rec> more = Data.all().subList(0, Data.MORE);
        send(name, more, Map.of());
        Data.same(Data.after(more), readInGroup(name, Data.MORE));
    }

    /** Is a member that reads until stop, and commits after each poll. */
    private void member(Data.Ledger ledger, String id, AtomicBoolean stop) {
        Map<String, String> options = Map.of("group.id", name("rebalance"), "auto.offset.reset", "earliest", "heartbeat.interval.ms", "300",
                "max.poll.records", "50");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(options)) {
            consumer.subscribe(List.of(name("rebalance")), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    ledger.has(id, 0);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    ledger.has(id, consumer.assignment().size());
                }
            });
            while (!stop.get()) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(200));
                polled.forEach(r -> ledger.read(r.partition(), r.offset()));
                Map<TopicPartition, OffsetAndMetadata> next = polled.nextOffsets();
                if (next.isEmpty()) {
                    continue;
                }
                try {
                    consumer.commitSync(next);
                    next.forEach((p, o) -> ledger.committed(p.partition(), o.offset()));
                } catch (CommitFailedException | RebalanceInProgressException e) {
                    continue; // the next owner reads them again
                }
            }
        }
    }

    private void rebalance() throws Exception {
        topic(name("rebalance"), Data.GROUP_PARTITIONS);
        send(name("rebalance"), Data.spread(), Map.of());
        Data.Ledger ledger = new Data.Ledger();
        List<AtomicBoolean> stops = List.of(new AtomicBoolean(), new AtomicBoolean());
        List<Future<?>> members = new ArrayList<>();
        for (int i = 0; i < stops.size(); i++) {
            int id = i;
            members.add(threads.submit(() -> member(ledger, "member-" + id, stops.get(id))));
        }
        try {
            await(() -> {
                ledger.even(2);
                ledger.check(Data.GROUP_RECORDS);
            });
            send(name("rebalance"), Data.spread(), Map.of());
            stops.get(1).set(true);
            await(() -> ledger.check(2 * Data.GROUP_RECORDS));
        } finally {
            stops.forEach(s -> s.set(true));
        }
        for (Future<?> m : members) {
            m.get(15, TimeUnit.SECONDS);
        }
        ledger.check(2 * Data.GROUP_RECORDS);
    }

    private boolean listed(String group) throws Exception {
        return admin.listGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group));
    }

    private void describeGroup() throws Exception {
        String name = name("commit");
        ConsumerGroupDescription got = admin.describeConsumerGroups(Set.of(name)).describedGroups().get(name).get();
        Data.expect(got.groupState() == GroupState.EMPTY, "state " + got.groupState());
        Data.expect(listed(name), "it is not listed");
    }

    private void lag() throws Exception {
        String name = name("commit");
        send(name, Data.all().subList(0, Data.MORE), Map.of());
        Map<TopicPartition, OffsetAndMetadata> committed = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
        Map<TopicPartition, OffsetSpec> latest = committed.keySet().stream().collect(Collectors.toMap(p -> p, p -> OffsetSpec.latest()));
        long lag = admin.listOffsets(latest).all().get().entrySet().stream()
                .mapToLong(e -> e.getValue().offset() - committed.get(e.getKey()).offset())
                .sum();
        Data.expect(lag == Data.MORE, "lag " + lag + ", want " + Data.MORE);
    }

    private void deleteGroup() throws Exception {
        admin.deleteConsumerGroups(Set.of(name("commit"))).all().get();
        Data.expect(!listed(name("commit")), "it is still listed");
    }

    /** Describes a KIP-848 group with a member, lists it by its type, and resets its offsets and deletes it without one. */
    private void administer() throws Exception {
        String name = name("administer");
        topic(name, Data.PARTITIONS);
        Map<String, String> options = Map.of("group.id", name, "group.protocol", "consumer", "group.remote.assignor", "range", "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(options)) {
            consumer.subscribe(List.of(name));
            await(() -> {
                consumer.poll(Duration.ofMillis(50));
                ConsumerGroupDescription got = admin.describeConsumerGroups(Set.of(name)).describedGroups().get(name).get();
                boolean whole = got.members().size() == 1 && got.members().iterator().next().assignment().topicPartitions().size() == Data.PARTITIONS;
                Data.expect(whole && got.groupState() == GroupState.STABLE && got.type() == GroupType.CONSUMER
                        && got.partitionAssignor().equals("range") && got.groupEpoch().isPresent(), got.toString());
            });
            for (GroupType type : List.of(GroupType.CONSUMER, GroupType.CLASSIC)) {
                boolean listed = admin.listGroups(new ListGroupsOptions().withTypes(Set.of(type))).all().get().stream().anyMatch(g -> g.groupId().equals(name));
                Data.expect(listed == (type == GroupType.CONSUMER), "listed as " + type + ": " + listed);
            }
            fails(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(Set.of(name)).all().get());
        }
        TopicPartition place = new TopicPartition(name, 1);
        admin.alterConsumerGroupOffsets(name, Map.of(place, new OffsetAndMetadata(7))).all().get();
        long offset = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().get(place).offset();
        Data.expect(offset == 7, "offset " + offset + ", want 7");
        admin.deleteConsumerGroups(Set.of(name)).all().get();
    }

    // Topics.

    private void partitions(String topic, int count) throws Exception {
        List<TopicPartitionInfo> got = admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions();
        boolean led = got.stream().allMatch(p -> p.leader() != null && p.leader().id() >= 1);
        Data.expect(got.size() == count && led, got + ", want " + count + " partitions, each with a leader");
    }

    private ConfigResource resource() {
        return new ConfigResource(ConfigResource.Type.TOPIC, name("topic"));
    }

    private void retention(String want) throws Exception {
        String got = admin.describeConfigs(Set.of(resource())).all().get().get(resource()).get("retention.ms").value();
        Data.expect(got.equals(want), "retention.ms is " + got + ", want " + want);
    }

    private void alterConfigs() throws Exception {
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource(), List.of(set))).all().get();
        await(() -> retention("3600000"));
    }

    private void deleteRecords() throws Exception {
        TopicPartition place = new TopicPartition(name("order"), 0);
        admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(Data.MIDDLE))).all().get();
        long first = admin.listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place).get().offset();
        Data.expect(first == Data.MIDDLE, "the first offset is " + first + ", want " + Data.MIDDLE);
    }

    // Results.

    private void run(String check, Check body) {
        Callable<Optional<Throwable>> guarded = () -> {
            try {
                body.run();
                return Optional.empty();
            } catch (Throwable e) {
                return Optional.of(e);
            }
        };
        Optional<Throwable> failed;
        Future<Optional<Throwable>> result = threads.submit(guarded);
        try {
            failed = result.get(LIMIT + 5, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            failed = Optional.of(new AssertionError("no end after " + (LIMIT + 5) + " s"));
        } catch (InterruptedException | ExecutionException e) {
            failed = Optional.of(e);
        }
        if (failed.isEmpty()) {
            System.out.println("{\"check\": " + quote(check) + ", \"ok\": true}");
        } else {
            System.out.println("{\"check\": " + quote(check) + ", \"ok\": false, \"detail\": " + quote(failed.get().toString()) + "}");
        }
    }

    private static void print(String key1, String value1, String key2, String value2) {
        System.out.println("{" + quote(key1) + ": " + quote(value1) + ", " + quote(key2) + ": " + quote(value2) + "}");
    }

    private static String quote(String s) {
        StringBuilder b = new StringBuilder("\"");
        for (char c : s.toCharArray()) {
            if (c == '"' || c == '\\') {
                b.append('\\').append(c);
            } else if (c < ' ') {
                b.append(String.format("\\u%04x", (int) c));
            } else {
                b.append(c);
            }
        }
        return b.append('"').toString();
    }
}
