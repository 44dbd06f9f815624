# SPDX-License-Identifier: Apache-2.0
"""A consumer of "make rebalance" with librdkafka; ../../member/main.go says what it is asked, ../../member/journal.go what it writes."""

import os
import signal
import socket
import sys
import threading
import time

from confluent_kafka import Consumer

kind, bootstrap, group, topic = sys.argv[1:]
session = int(os.environ["SESSION_MS"])
path = f"{os.environ['JOURNAL']}/{os.environ['POD_NAME']}.{time.time_ns()}.log"
journal = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND)
stopped = False


def told(event):
    """Returns a callback that writes which partitions came or went."""

    def write(_, partitions):
        if partitions:
            numbers = ",".join(str(p.partition) for p in partitions)
            os.write(journal, f"{time.time_ns()} {event} {numbers}\n".encode())

    return write


def stop(*_):
    """Has the consumer leave."""
    global stopped
    stopped = True


def answer(ready):
    """Answers the pod's readiness probe."""
    while True:
        ready.accept()[0].close()


signal.signal(signal.SIGTERM, stop)
options = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "latest"}
if kind == "librdkafka-848":
    options["group.protocol"] = "consumer"
else:
    options["partition.assignment.strategy"] = "cooperative-sticky" if kind == "librdkafka-cooperative" else "range"
    if session:
        options |= {"session.timeout.ms": session, "heartbeat.interval.ms": session // 3}
consumer = Consumer(options)
consumer.subscribe([topic], on_assign=told("G"), on_revoke=told("R"), on_lost=told("L"))
threading.Thread(target=answer, args=[socket.create_server(("", 8080))], daemon=True).start()
while not stopped:
    m = consumer.poll(0.2)
    if m is None:
        continue
    if m.error():
        print(m.error(), file=sys.stderr, flush=True)
    else:
        os.write(journal, f"{time.time_ns()} D {m.partition()} {m.offset()}\n".encode())
consumer.close()
