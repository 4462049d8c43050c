"""FQ-CoDel (RFC 8290), with CoDel (RFC 8289) in each queue: which packets leave, and which are dropped.

Written from the RFCs, without the code of the crate. The hash, the number of queues and the quantum are those of
docs/link-model.md. Input: a line "RANDOM LIMIT PACE" (the random number of the hash, the limit in packets, the
nanoseconds that the link needs for a byte), then a line "TIME SIZE IDENTITY" for each packet that arrives, in ns and
bytes. Output: a line "NUMBER FATE TIME" for each packet; the fate is "sent", "early" (dropped by CoDel) or "full".
"""

import math
import sys
from collections import deque

TARGET = 5_000_000
INTERVAL = 100_000_000
MAXPACKET = 1500
QUEUES = 1024
QUANTUM = 1500
MASK = 2**64 - 1


class Packet:
    def __init__(self, number, arrived, size, identity):
        self.number, self.arrived, self.size, self.identity = number, arrived, size, identity


def index(identity, random_number):
    mixed = identity ^ random_number
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MASK
    return (mixed ^ mixed >> 31) % QUEUES


class CoDelQueue:
    """One queue with the state of RFC 8289 §5; 0 means that there is no time."""

    def __init__(self, drop):
        self.packets = deque()
        self.bytes = 0
        self.credits = 0
        self.active = False
        self.drop = drop
        self.first_above_time = self.drop_next = 0
        self.count = self.lastcount = 0
        self.dropping = False

    def enqueue(self, packet):
        self.packets.append(packet)
        self.bytes += packet.size

    def remove(self):
        packet = self.packets.popleft()
        self.bytes -= packet.size
        return packet

    def dodequeue(self, now):
        if not self.packets:
            self.first_above_time = 0
            return None, False
        packet = self.remove()
        if now - packet.arrived < TARGET or self.bytes <= MAXPACKET:
            self.first_above_time = 0
            return packet, False
        if self.first_above_time == 0:
            self.first_above_time = now + INTERVAL
            return packet, False
        return packet, now >= self.first_above_time

    def control_law(self, time):
        return time + int(INTERVAL / math.sqrt(self.count))

    def dequeue(self, now):
        packet, ok_to_drop = self.dodequeue(now)
        if self.dropping:
            if not ok_to_drop:
                self.dropping = False
            while self.dropping and now >= self.drop_next:
                self.drop(packet, "early", now)
                self.count += 1
                packet, ok_to_drop = self.dodequeue(now)
                if ok_to_drop:
                    self.drop_next = self.control_law(self.drop_next)
                else:
                    self.dropping = False
        elif ok_to_drop:
            self.drop(packet, "early", now)
            packet, _ = self.dodequeue(now)
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = delta if delta > 1 and now - self.drop_next < 16 * INTERVAL else 1
            self.drop_next = self.control_law(now)
            self.lastcount = self.count
        return packet


class FqCoDel:
    """RFC 8290 §4."""

    def __init__(self, random_number, limit, drop):
        self.random_number, self.limit, self.drop = random_number, limit, drop
        self.queues = [CoDelQueue(drop) for _ in range(QUEUES)]
        self.new, self.old = deque(), deque()

    def length(self):
        return sum(len(queue.packets) for queue in {*self.new, *self.old})

    def add(self, packet):
        queue = self.queues[index(packet.identity, self.random_number)]
        queue.enqueue(packet)
        if not queue.active:
            queue.active = True
            queue.credits = QUANTUM
            self.new.append(queue)

    def enqueue(self, now, packet):
        self.add(packet)
        if self.length() > self.limit:
            # The first of those with the most bytes.
            fattest = max(self.queues, key=lambda queue: queue.bytes)
            self.drop(fattest.remove(), "full", now)

    def dequeue(self, now):
        while self.new or self.old:
            queues = self.new or self.old
            queue = queues[0]
            # "It has already dequeued at least a quantum of bytes."
            if queue.credits <= 0:
                queue.credits += QUANTUM
                queues.popleft()
                self.old.append(queue)
                continue
            packet = queue.dequeue(now)
            if packet is not None:
                queue.credits -= packet.size
                return packet
            queues.popleft()
            if queues is self.new:
                self.old.append(queue)
            else:
                queue.active = False
        return None


def main():
    random_number, limit, pace = map(int, sys.stdin.readline().split())
    fates = {}

    def end(packet, fate, time):
        fates[packet.number] = (fate, time)

    fair = FqCoDel(random_number, limit, end)
    sending, free = None, 0

    def start(now):
        nonlocal sending, free
        sending = fair.dequeue(now)
        if sending is not None:
            free = now + sending.size * pace
            end(sending, "sent", free)

    for number, line in enumerate(sys.stdin):
        now, size, identity = map(int, line.split())
        packet = Packet(number, now, size, identity)
        # A transmission that ends now has ended before the packet arrives.
        while sending is not None and free <= now:
            start(free)
        if sending is None:
            fair.add(packet)
            start(now)
        else:
            fair.enqueue(now, packet)
    while sending is not None:
        start(free)
    for number, (fate, time) in sorted(fates.items()):
        print(number, fate, time)


main()
