//! Bursts on the wired leg, and the forward data that make them.

use std::collections::BTreeMap;

use midspan_link::DropReason;
use midspan_model::papers::shikama::SEGMENT;
use midspan_sim::{LinkId, Observer, Packet, Segment};
use midspan_units::{Time, TimeSpan};

use super::scenario::NARROW;

/// Half of the pacing gap: 1,500 bytes at 5 Mbit/s take 2.4 ms.
const HALF_GAP: TimeSpan = TimeSpan::from_nanoseconds(1_200_000);
/// The first slow start is over.
const START: TimeSpan = TimeSpan::from_seconds(10);
/// The leg from the proxy on.
const WIRED: u32 = 1;

/// Runs of segments on the wired leg whose gaps are under half the pacing gap, and forward data.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    /// How many bursts there are of each length, without the one that goes on; after the first
    /// slow start.
    lengths: BTreeMap<u64, u64>,
    /// The one that goes on.
    length: u64,
    last: Option<Time>,
    /// In segments.
    pub(super) largest_forward_data: u64,
    /// Packets that found the queue of n2 full after the first slow start.
    pub(super) late_drops: u64,
}

/// How long bursts are, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    /// The length that 999 of 1,000 bursts do not exceed.
    pub(super) most: u64,
    /// The longest.
    pub(super) longest: u64,
}

impl Observer for Bursts {
    fn sent(&mut self, now: Time, packet: &Packet) {
        let data = matches!(packet.segment, Segment::Data(_));
        if packet.connection != WIRED || !data || now.since(Time::ZERO) < START {
            return;
        }
        if self.last.is_some_and(|last| now.since(last) < HALF_GAP) {
            self.length += 1;
        } else {
            self.finish();
            self.length = 1;
        }
        self.last = Some(now);
    }

    fn dropped(&mut self, at: Time, link: LinkId, up: bool, _: &Packet, reason: DropReason) {
        let late = at.since(Time::ZERO) >= START;
        if late && up && link == NARROW && reason == DropReason::QueueFull {
            self.late_drops += 1;
        }
    }

    fn forwarded(&mut self, _: Time, _: u32, bytes: u64) {
        let segments = bytes.div_ceil(u64::from(SEGMENT));
        self.largest_forward_data = self.largest_forward_data.max(segments);
    }
}

impl Bursts {
    fn finish(&mut self) {
        if self.length > 0 {
            *self.lengths.entry(self.length).or_default() += 1;
            self.length = 0;
        }
    }

    /// Adds those of another run.
    pub(super) fn add(&mut self, mut other: Self) {
        self.finish();
        other.finish();
        for (length, count) in other.lengths {
            *self.lengths.entry(length).or_default() += count;
        }
        self.largest_forward_data = self.largest_forward_data.max(other.largest_forward_data);
        self.late_drops += other.late_drops;
    }

    /// `None` where there was no burst.
    pub(super) fn summary(&mut self) -> Option<Summary> {
        self.finish();
        let longest = *self.lengths.keys().next_back()?;
        let rank = (self.lengths.values().sum::<u64>() - 1) * 999 / 1000;
        let mut below = 0;
        let most = self.lengths.iter().find(|(_, count)| {
            below += **count;
            below > rank
        });
        most.map(|(most, _)| Summary {
            most: *most,
            longest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_thousand_may_be_longer() {
        let of = |lengths: &[(u64, u64)]| {
            let mut bursts = Bursts {
                lengths: lengths.iter().copied().collect(),
                ..Bursts::default()
            };
            bursts.summary().map(|found| (found.most, found.longest))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(1, 1)]), Some((1, 1)));
        assert_eq!(of(&[(2, 1999), (43, 1)]), Some((2, 43)));
        assert_eq!(of(&[(2, 1990), (43, 10)]), Some((43, 43)));
    }
}
