# SPDX-License-Identifier: Apache-2.0
"""What the programs in Python that are members of a group share; the Go package member says what they are asked and what they print."""

import json
import sys
import threading
import time

_lock = threading.Lock()


def asked():
    """Returns what the program is asked to do as a member, and None where it is asked for its checks."""
    return json.loads(sys.argv[3]) if len(sys.argv) == 4 else None


def show(event, **fields):
    """Prints an event."""
    with _lock:
        print(json.dumps({"event": event, "time": time.time_ns() // 1000, **fields}), flush=True)


def moved(event, partitions):
    """Prints that partitions came or went; they have a topic and a partition."""
    show(event, partitions=[{"topic": p.topic, "partition": p.partition} for p in partitions])


def leaving():
    """Returns an event that is set when the member is to leave."""
    event = threading.Event()

    def wait():
        sys.stdin.read()
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def timed(commit):
    """Commits, and prints how long that took."""
    begin = time.perf_counter_ns()
    commit()
    show("timed", micros=(time.perf_counter_ns() - begin) // 1000)


def show_read(places):
    """Prints the records of a poll, given as (topic, partition, offset), by partition."""
    ranges = {}
    for topic, partition, offset in places:
        first, last = ranges.get((topic, partition), (offset, offset))
        ranges[topic, partition] = (min(first, offset), max(last, offset))
    for (topic, partition), (first, last) in ranges.items():
        show("read", topic=topic, partition=partition, first=first, last=last)
