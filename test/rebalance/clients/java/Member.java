// SPDX-License-Identifier: Apache-2.0

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.FutureTask;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer of "make rebalance" with Kafka's own client; ../../member/main.go says what it is asked, ../../member/journal.go what it writes. */
final class Member implements ConsumerRebalanceListener {
    private final FileOutputStream journal;

    private Member() throws IOException {
        journal = new FileOutputStream(System.getenv("JOURNAL") + "/" + System.getenv("POD_NAME") + "." + now() + ".log", true);
    }

    public static void main(String[] args) throws Exception {
        Member member = new Member();
        Thread main = Thread.currentThread();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(options(args[0], args[1], args[2]), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                consumer.wakeup();
                try {
                    main.join();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }));
            consumer.subscribe(List.of(args[3]), member);
            Thread ready = new Thread(new FutureTask<>(() -> answer(new ServerSocket(8080))));
            ready.setDaemon(true);
            ready.start();
            while (true) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    member.write("D", r.partition() + " " + r.offset());
                }
            }
        } catch (WakeupException e) {
            return;
        }
    }

    private static Map<String, Object> options(String kind, String bootstrap, String group) {
        int session = Integer.parseInt(System.getenv("SESSION_MS"));
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", bootstrap);
        options.put("group.id", group);
        options.put("auto.offset.reset", "latest");
        if (kind.equals("java-848")) {
            options.put("group.protocol", "consumer");
            return options;
        }
        boolean cooperative = kind.equals("java-cooperative");
        options.put("partition.assignment.strategy", (cooperative ? CooperativeStickyAssignor.class : RangeAssignor.class).getName());
        if (session > 0) {
            options.put("session.timeout.ms", session);
            options.put("heartbeat.interval.ms", session / 3);
        }
        return options;
    }

    /** Answers the pod's readiness probe. */
    private static Void answer(ServerSocket ready) throws IOException {
        while (true) {
            ready.accept().close();
        }
    }

    private static long now() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000 + now.getNano();
    }

    private void write(String event, String rest) {
        try {
            journal.write((now() + " " + event + " " + rest + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void told(String event, Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            write(event, partitions.stream().map(p -> Integer.toString(p.partition())).collect(Collectors.joining(",")));
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        told("G", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        told("R", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        told("L", partitions);
    }
}
