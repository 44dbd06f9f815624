// SPDX-License-Identifier: Apache-2.0

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** What is written and read; the Go package check holds the same data. */
final class Data {
    static final int PARTITIONS = 3;
    static final int RECORDS = 300;
    static final int ORDER_RECORDS = 2000;
    static final int LARGE_BYTES = 1_000_000;
    static final int GROUP_PARTITIONS = 6;
    static final int GROUP_RECORDS = 600;
    static final int MIDDLE = 1234;
    static final int MORE = 30;
    static final long EPOCH = 1_700_000_000_000L;

    private Data() {}

    /** A record's header. */
    record Header(String name, byte[] value) {}

    /** A record; time is null where it is not compared. */
    record Rec(int partition, long offset, byte[] key, byte[] value, List<Header> headers, Long time) {
        String text() {
            StringBuilder b = new StringBuilder();
            b.append("partition ").append(partition).append(", offset ").append(offset).append(": ").append(Arrays.toString(key));
            b.append(" ").append(Arrays.toString(value));
            headers.forEach(h -> b.append(" ").append(h.name()).append("=").append(Arrays.toString(h.value())));
            return b.toString();
        }
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    /** Records with every kind of content. */
    static List<Rec> all() {
        List<Rec> records = new ArrayList<>();
        for (int i = 0; i < RECORDS; i++) {
            byte[] key = i % 5 == 4 ? null : bytes("key-" + i);
            byte[] value = null;
            if (i % 7 != 6 || key == null) {
                value = new byte[100 + i % 50];
                for (int j = 0; j < value.length; j++) {
                    value[j] = (byte) (i * 31 + j * 7);
                }
            }
            List<Header> headers = i % 3 == 0 ? List.of(new Header("n", bytes("" + i)), new Header("empty", new byte[0])) : List.of();
            records.add(new Rec(i % PARTITIONS, i / PARTITIONS, key, value, headers, null));
        }
        return records;
    }

    /** Moves the first records of all() behind all of them. */
    static List<Rec> after(List<Rec> records) {
        return records.stream()
                .map(r -> new Rec(r.partition(), r.offset() + RECORDS / PARTITIONS, r.key(), r.value(), r.headers(), null))
                .toList();
    }

    /** Records of one partition, each a second younger than the one before. */
    static List<Rec> ordered() {
        List<Rec> records = new ArrayList<>();
        for (int i = 0; i < ORDER_RECORDS; i++) {
            records.add(new Rec(0, i, bytes("" + i), bytes("value-" + i), List.of(), EPOCH + 1000L * i));
        }
        return records;
    }

    /** Records for the partitions of the rebalanced group. */
    static List<Rec> spread() {
        List<Rec> records = new ArrayList<>();
        for (int i = 0; i < GROUP_RECORDS; i++) {
            records.add(new Rec(i % GROUP_PARTITIONS, i / GROUP_PARTITIONS, null, bytes("value-" + i), List.of(), null));
        }
        return records;
    }

    /** A record just below max.message.bytes. */
    static List<Rec> large() {
        return List.of(new Rec(0, 0, null, bytes("ring".repeat(LARGE_BYTES / 4)), List.of(), null));
    }

    /** Fails unless what was read is what was written. */
    static void same(List<Rec> want, List<Rec> got) {
        expect(want.size() == got.size(), got.size() + " records, want " + want.size());
        Comparator<Rec> order = Comparator.comparingInt(Rec::partition).thenComparingLong(Rec::offset);
        List<Rec> w = want.stream().sorted(order).toList();
        List<Rec> g = got.stream().sorted(order).toList();
        for (int i = 0; i < w.size(); i++) {
            String wanted = w.get(i).text();
            String read = g.get(i).text();
            expect(wanted.equals(read), "read " + cut(read) + ", want " + cut(wanted));
            Long time = w.get(i).time();
            expect(time == null || time.equals(g.get(i).time()), "offset " + i + ": time " + g.get(i).time() + ", want " + time);
        }
    }

    private static String cut(String s) {
        return s.substring(0, Math.min(300, s.length()));
    }

    static void expect(boolean condition, String message) {
        if (!condition) {
            throw new AssertionError(message);
        }
    }

    /** What the members of a group read and committed. */
    static final class Ledger {
        private final Set<String> places = new HashSet<>();
        private final Map<Integer, Long> next = new HashMap<>();
        private final Map<String, Integer> owned = new HashMap<>();
        private String wrong;

        synchronized void read(int partition, long offset) {
            if (wrong == null && offset < next.getOrDefault(partition, 0L)) {
                wrong = "partition " + partition + ", offset " + offset + " was read after " + next.get(partition) + " was committed";
            }
            places.add(partition + "/" + offset);
        }

        synchronized void committed(int partition, long offset) {
            next.merge(partition, offset, Math::max);
        }

        synchronized void has(String member, int partitions) {
            owned.put(member, partitions);
        }

        synchronized void even(int members) {
            int share = GROUP_PARTITIONS / members;
            boolean all = owned.size() == members && owned.values().stream().allMatch(n -> n == share);
            expect(all, "the members have " + owned + " partitions, want " + share + " each");
        }

        synchronized void check(int records) {
            expect(wrong == null, wrong);
            expect(places.size() == records, places.size() + " records were read, want " + records);
        }
    }
}
