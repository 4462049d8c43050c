//! Counters for one direction of a link.

use serde::{Deserialize, Serialize};

use crate::drop_reason::DropReason;

/// Packets and their bytes at the network layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes at the network layer, overhead not counted.
    pub bytes: u64,
}

impl Count {
    const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, size: u32) {
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(u64::from(size));
    }
}

/// Counters of one direction of a link, since its start.
///
/// `handled` = `delivered` + all dropped packets + the packets that the link still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that arrived at the link.
    pub handled: Count,
    /// Packets that left it at the far end.
    pub delivered: Count,
    /// Packets for which the queue had no room.
    pub queue_full: Count,
    /// Packets that active queue management dropped before the queue was full.
    #[serde(default)]
    pub early: Count,
    /// Packets that were sent and lost during propagation.
    pub lost: Count,
    /// Packets that collided too often on a shared medium.
    pub contention: Count,
    /// Packets that arrived with a header that could not be restored.
    pub damaged: Count,
    /// ACKs that a later ACK replaced.
    pub filtered: Count,
    /// Fragments on a link that drops them, and packets that are too large and cannot be cut.
    pub refused: Count,
    /// The largest number of packets that waited at the same time.
    pub queue_peak_packets: u64,
    /// The largest number of bytes that waited at the same time.
    pub queue_peak_bytes: u64,
}

impl Counters {
    /// The packets that were dropped for `reason`.
    #[must_use]
    pub const fn dropped(&self, reason: DropReason) -> Count {
        match reason {
            DropReason::QueueFull => self.queue_full,
            DropReason::Early => self.early,
            DropReason::Lost => self.lost,
            DropReason::Contention => self.contention,
            DropReason::Damaged => self.damaged,
            DropReason::Filtered => self.filtered,
            DropReason::Refused => self.refused,
            // Does not happen on a link.
            DropReason::Incomplete => Count {
                packets: 0,
                bytes: 0,
            },
        }
    }

    /// Packets that arrived and have neither been delivered nor dropped.
    #[must_use]
    pub const fn held_packets(&self) -> u64 {
        self.handled.packets - self.passed().packets
    }

    /// All delivered and all dropped packets.
    pub(crate) const fn passed(&self) -> Count {
        self.delivered
            .plus(self.queue_full)
            .plus(self.early)
            .plus(self.lost)
            .plus(self.contention)
            .plus(self.damaged)
            .plus(self.filtered)
            .plus(self.refused)
    }

    /// These counters for a link that continues with a further stage, which has delivered and
    /// dropped what `after` counts.
    pub(crate) fn followed_by(mut self, after: &Self) -> Self {
        self.delivered = after.delivered;
        for (count, more) in [
            (&mut self.queue_full, after.queue_full),
            (&mut self.early, after.early),
            (&mut self.lost, after.lost),
            (&mut self.contention, after.contention),
            (&mut self.damaged, after.damaged),
            (&mut self.filtered, after.filtered),
            (&mut self.refused, after.refused),
        ] {
            *count = count.plus(more);
        }
        self
    }

    /// These counters for a link whose entrance has refused further packets.
    #[must_use]
    pub fn with_refused(mut self, refused: Count) -> Self {
        self.handled = self.handled.plus(refused);
        self.refused = self.refused.plus(refused);
        self
    }

    #[cold]
    pub(crate) fn add_dropped(&mut self, size: u32, reason: DropReason) {
        match reason {
            DropReason::QueueFull => self.queue_full.add(size),
            DropReason::Early => self.early.add(size),
            DropReason::Lost => self.lost.add(size),
            DropReason::Contention => self.contention.add(size),
            DropReason::Damaged => self.damaged.add(size),
            DropReason::Filtered => self.filtered.add(size),
            DropReason::Refused => self.refused.add(size),
            DropReason::Incomplete => {}
        }
    }

    #[inline]
    pub(crate) fn see_queue(&mut self, packets: usize, bytes: u64) {
        // The branches are rarely taken. A combined update of both as one vector would have to wait
        // for the two numbers, which have just been written one by one.
        if packets as u64 > self.queue_peak_packets {
            self.queue_peak_packets = packets as u64;
        }
        if bytes > self.queue_peak_bytes {
            self.queue_peak_bytes = bytes;
        }
    }
}
