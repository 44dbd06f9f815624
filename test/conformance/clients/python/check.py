# SPDX-License-Identifier: Apache-2.0
"""What the checks in Python share; the Go package check says what a program prints, and holds the same data."""

import json
import sys
import threading
import time
import traceback

PARTITIONS = 3
DATA_RECORDS = 300
ORDER_RECORDS = 2000
LARGE_BYTES = 1_000_000
GROUP_PARTITIONS = 6
GROUP_RECORDS = 600
MIDDLE = 1234
MORE = 30
LIMIT = 60
EPOCH = 1_700_000_000_000


class Record:
    """A record as a client writes or reads it; headers are (name, bytes)."""

    def __init__(self, partition, offset, key, value, headers=(), timestamp=None):
        self.partition, self.offset, self.key, self.value = partition, offset, key, value
        self.headers = [(name, bytes(value or b"")) for name, value in headers or ()]
        self.timestamp = timestamp

    def content(self):
        """All but the time."""
        return (self.partition, self.offset, self.key, self.value, self.headers)


def data():
    """Records with every kind of content."""
    records = []
    for i in range(DATA_RECORDS):
        key = None if i % 5 == 4 else b"key-%d" % i
        value = None if i % 7 == 6 and key else bytes((i * 31 + j * 7) & 255 for j in range(100 + i % 50))
        headers = [("n", b"%d" % i), ("empty", b"")] if i % 3 == 0 else []
        records.append(Record(i % PARTITIONS, i // PARTITIONS, key, value, headers))
    return records


def after(records):
    """Moves the first records of data behind all of data."""
    return [Record(r.partition, r.offset + DATA_RECORDS // PARTITIONS, r.key, r.value, r.headers) for r in records]


def ordered():
    """Records of one partition, each a second younger than the one before."""
    return [Record(0, i, b"%d" % i, b"value-%d" % i, timestamp=EPOCH + 1000 * i) for i in range(ORDER_RECORDS)]


def spread():
    """Records for the partitions of the rebalanced group."""
    return [Record(i % GROUP_PARTITIONS, i // GROUP_PARTITIONS, None, b"value-%d" % i) for i in range(GROUP_RECORDS)]


def large():
    """A record just below max.message.bytes."""
    return [Record(0, 0, None, b"ring" * (LARGE_BYTES // 4))]


def same(want, got):
    """Fails unless what was read is what was written."""
    want = sorted(want, key=lambda r: (r.partition, r.offset))
    got = sorted(got, key=lambda r: (r.partition, r.offset))
    expect(len(got) == len(want), f"{len(got)} records, want {len(want)}")
    for w, g in zip(want, got):
        expect(g.content() == w.content(), f"read {g.content()!r:.300}, want {w.content()!r:.300}")
        if w.timestamp is not None:
            expect(g.timestamp == w.timestamp, f"offset {w.offset}: time {g.timestamp}, want {w.timestamp}")


def expect(condition, message):
    """Fails with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def wait(condition, seconds=LIMIT):
    """Calls condition until it no longer fails."""
    end = time.monotonic() + seconds
    while True:
        try:
            return condition()
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def refused(error, timed_out=False):
    """What a transactional id must meet."""
    expect(error is not None, "a transactional id was accepted")
    expect(not timed_out, f"no refusal, but {error}")


class Ledger:
    """What the members of a group read and committed."""

    def __init__(self):
        self.lock = threading.Lock()
        self.places, self.next, self.owned, self.wrong = set(), {}, {}, None

    def read(self, partition, offset):
        """Notes a record that was read."""
        with self.lock:
            if offset < self.next.get(partition, 0) and self.wrong is None:
                self.wrong = f"partition {partition}, offset {offset} was read after {self.next[partition]} was committed"
            self.places.add((partition, offset))

    def committed(self, partition, offset):
        """Notes a commit that succeeded."""
        with self.lock:
            self.next[partition] = max(self.next.get(partition, 0), offset)

    def has(self, member, partitions):
        """Notes how many partitions a member has."""
        with self.lock:
            self.owned[member] = partitions

    def even(self, members):
        """Fails unless every member has its share."""
        with self.lock:
            share = GROUP_PARTITIONS // members
            expect(list(self.owned.values()) == [share] * members, f"the members have {self.owned} partitions, want {share} each")

    def check(self, records):
        """Fails unless so many records were read, and none after it had been committed."""
        with self.lock:
            expect(self.wrong is None, self.wrong)
            expect(len(self.places) == records, f"{len(self.places)} records were read, want {records}")


class Program:
    """Runs checks and prints what became of them."""

    def __init__(self, client, version):
        if len(sys.argv) != 3:
            sys.exit(f"usage: {sys.argv[0]} BOOTSTRAP PREFIX")
        self.bootstrap, self.prefix = sys.argv[1:]
        self._print(client=client, version=version)

    def name(self, of):
        """A topic's or group's full name."""
        return f"{self.prefix}-{of}"

    def run(self, name, check, *args, **options):
        """Runs one check."""
        result = {}

        def body():
            try:
                check(*args, **options)
                result["ok"] = True
            except Exception as e:  # whatever a client raises is the check's result
                result.update(ok=False, detail=f"{type(e).__name__}: {e}"[:2000])
                traceback.print_exc()

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        thread.join(LIMIT + 5)
        self._print(check=name, **(result or {"ok": False, "detail": f"no end after {LIMIT + 5} s"}))

    def skip(self, name, why):
        """Says that the client cannot do a check."""
        self._print(check=name, skip=why)

    @staticmethod
    def _print(**line):
        print(json.dumps(line), flush=True)


def rebalance(member, send_more):
    """Runs member(ledger, name, stop) twice, has one leave while records are written, and checks that nothing was lost or read again."""
    ledger, errors = Ledger(), []
    stops = [threading.Event(), threading.Event()]

    def body(name, stop):
        try:
            member(ledger, name, stop)
        except Exception as e:  # whatever a client raises is the check's result
            errors.append(e)

    threads = [threading.Thread(target=body, args=(name, stop), daemon=True) for name, stop in zip("ab", stops)]
    for thread in threads:
        thread.start()

    def fair():
        ledger.even(len(threads))
        ledger.check(GROUP_RECORDS)

    try:
        wait(fair, LIMIT / 2)
        send_more()
        stops[1].set()
        wait(lambda: ledger.check(2 * GROUP_RECORDS), LIMIT / 2)
    finally:
        for stop in stops:
            stop.set()
        for thread in threads:
            thread.join(15)
    if errors:
        raise errors[0]
    ledger.check(2 * GROUP_RECORDS)
