// SPDX-License-Identifier: Apache-2.0

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Is a member of a group until its standard input ends; the Go package member says what it is asked and what it prints. */
final class Member implements ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final KafkaConsumer<byte[], byte[]> consumer;

    private Member(Map<String, Object> options) {
        consumer = new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void run(String bootstrap, String config) throws IOException {
        JsonNode asked = JSON.readTree(config);
        Member member = new Member(options(bootstrap, asked));
        Thread leave = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException e) {
                print(event("error").put("error", e.toString()));
            }
            member.consumer.wakeup();
        });
        leave.setDaemon(true);
        leave.start();
        try (member.consumer) {
            member.subscribe(asked);
            while (true) {
                member.poll(asked.get("commit_ms").asInt());
            }
        } catch (WakeupException e) {
            return;
        } catch (KafkaException e) {
            print(event("error").put("error", e.toString()));
        }
    }

    private static Map<String, Object> options(String bootstrap, JsonNode asked) {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", bootstrap);
        options.put("group.id", asked.get("group").asText());
        options.put("enable.auto.commit", "false");
        options.put("auto.offset.reset", "earliest");
        boolean own = asked.get("session_ms").asInt() == 0; // the client's own defaults
        if (!own) {
            options.put("metadata.max.age.ms", "1000");
        }
        if (!asked.get("client_id").asText().isEmpty()) {
            options.put("client.id", asked.get("client_id").asText());
        }
        if (!asked.get("instance").asText().isEmpty()) {
            options.put("group.instance.id", asked.get("instance").asText());
        }
        if (asked.get("protocol").asText().equals("consumer")) {
            options.put("group.protocol", "consumer");
            if (!asked.get("assignor").asText().isEmpty()) {
                options.put("group.remote.assignor", asked.get("assignor").asText());
            }
            return options;
        }
        boolean cooperative = asked.get("protocol").asText().equals("cooperative");
        options.put("partition.assignment.strategy", (cooperative ? CooperativeStickyAssignor.class : RangeAssignor.class).getName());
        if (!own) {
            options.put("session.timeout.ms", asked.get("session_ms").asInt());
            options.put("heartbeat.interval.ms", asked.get("heartbeat_ms").asInt());
        }
        return options;
    }

    private void subscribe(JsonNode asked) {
        if (!asked.get("pattern").asText().isEmpty()) {
            consumer.subscribe(new SubscriptionPattern(asked.get("pattern").asText()), this);
            return;
        }
        List<String> topics = new ArrayList<>();
        asked.get("topics").forEach(t -> topics.add(t.asText()));
        consumer.subscribe(topics, this);
    }

    /** Reads once, and commits what was read. A commit that a rebalance overtakes counts for nothing: the next owner reads again. */
    private void poll(int commitMillis) {
        ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(commitMillis > 0 ? commitMillis : 200));
        for (TopicPartition place : polled.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> records = polled.records(place);
            print(at("read", place).put("first", records.get(0).offset()).put("last", records.get(records.size() - 1).offset()));
        }
        Map<TopicPartition, OffsetAndMetadata> next = polled.nextOffsets();
        if (next.isEmpty()) {
            if (commitMillis > 0 && !consumer.assignment().isEmpty()) {
                long begin = System.nanoTime();
                consumer.commitSync(Map.of(consumer.assignment().iterator().next(), new OffsetAndMetadata(0)));
                print(event("timed").put("micros", (System.nanoTime() - begin) / 1000));
            }
            return;
        }
        try {
            consumer.commitSync(next);
        } catch (CommitFailedException | RebalanceInProgressException e) {
            return;
        }
        ConsumerGroupMetadata me = consumer.groupMetadata();
        next.forEach((place, offset) ->
                print(at("committed", place).put("next", offset.offset()).put("member", me.memberId()).put("generation", me.generationId())));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        moved("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        moved("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        moved("lost", partitions);
    }

    private static void moved(String kind, Collection<TopicPartition> partitions) {
        ObjectNode event = event(kind);
        ArrayNode list = event.putArray("partitions");
        partitions.forEach(p -> list.addObject().put("topic", p.topic()).put("partition", p.partition()));
        print(event);
    }

    private static ObjectNode at(String kind, TopicPartition place) {
        return event(kind).put("topic", place.topic()).put("partition", place.partition());
    }

    private static ObjectNode event(String kind) {
        return JSON.createObjectNode().put("event", kind);
    }

    private static synchronized void print(ObjectNode event) {
        System.out.println(event.put("time", ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now())));
    }
}
