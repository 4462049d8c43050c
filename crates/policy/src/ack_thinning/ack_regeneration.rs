//! ACK regeneration (AR): behind the narrow link, an ACK that covers many segments becomes several
//! (Balakrishnan et al. 1997 §4.4 “ACK reconstruction”; Tam §2.5; RFC 3449 §5.3.2).
//!
//! Simulated only: it undoes at the far end of the link what thinning did at the near end, so it
//! needs a device there. Midspan's thinning needs none.

use midspan_units::{Time, TimeSpan};

/// Largest number of ACKs that one ACK may become: bounds the cost of a nonsensical number.
const MOST: u32 = 64;

/// An ACK to be sent: its time and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegeneratedAck {
    /// Not before this time.
    pub at: Time,
    /// Acknowledgement number in bytes, not wrapped, as a simulator or an unwrapped TCP counts it.
    pub number: u64,
}

/// Turns each ACK into as many as its receiver would have sent: one for every `segments` segments,
/// spread over the time between ACKs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckRegeneration {
    /// Bytes that one ACK covers.
    step: u64,
    /// The highest number that has arrived.
    number: u64,
    last: Option<Time>,
    /// Mean time from one ACK to the next.
    gap: Option<TimeSpan>,
    /// When the last ACK leaves that was generated.
    busy_until: Time,
}

impl AckRegeneration {
    /// An ACK for every `segments` segments of `segment_size` bytes (zeros count as one).
    #[must_use]
    pub fn new(segments: u32, segment_size: u32) -> Self {
        Self {
            step: u64::from(segments.max(1)) * u64::from(segment_size.max(1)),
            number: 0,
            last: None,
            gap: None,
            busy_until: Time::ZERO,
        }
    }

    /// An ACK has arrived. Returns the ACKs to send instead, in order of time; the last one has the
    /// number of the original. A duplicate is sent unchanged, after those generated before it.
    pub fn handle_ack(&mut self, now: Time, number: u64) -> Vec<RegeneratedAck> {
        if let Some(last) = self.last.replace(now) {
            let new = now.since(last);
            // Smoothed as in RFC 6298.
            self.gap = Some(self.gap.map_or(new, |gap| (gap * 7 + new) / 8));
        }
        let covered = number.saturating_sub(self.number);
        let count = u32::try_from(covered.div_ceil(self.step)).unwrap_or(MOST);
        let count = count.clamp(1, MOST);
        let first = now.max(self.busy_until);
        // All except the first are spread over the time to the next ACK.
        let apart = self.gap.unwrap_or(TimeSpan::ZERO) / u64::from(count);
        let mut made = Vec::new();
        for index in 1..count {
            let number = self.number + u64::from(index) * self.step;
            made.push(RegeneratedAck {
                at: first + apart * u64::from(index - 1),
                number,
            });
        }
        let last = first + apart * u64::from(count - 1);
        made.push(RegeneratedAck { at: last, number });
        self.number = self.number.max(number);
        self.busy_until = last;
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn made(regeneration: &mut AckRegeneration, time: u64, number: u64) -> Vec<(u64, u64)> {
        let made = regeneration.handle_ack(at(time), number);
        made.iter()
            .map(|ack| {
                (
                    ack.at.since(Time::ZERO).nanoseconds() / 1_000_000,
                    ack.number,
                )
            })
            .collect()
    }

    #[test]
    fn an_ack_of_six_segments_becomes_three_of_two() {
        let mut regeneration = AckRegeneration::new(2, 1000);
        assert_eq!(made(&mut regeneration, 0, 2000), [(0, 2000)]);
        // 30 ms after the first.
        let three = [(30, 4000), (40, 6000), (50, 8000)];
        assert_eq!(made(&mut regeneration, 30, 8000), three);
        // Duplicates and old ACKs pass one by one, behind the generated ones.
        assert_eq!(made(&mut regeneration, 40, 8000), [(50, 8000)]);
        assert_eq!(made(&mut regeneration, 60, 2000), [(60, 2000)]);
    }

    proptest! {
        #[test]
        fn numbers_and_times_never_go_back_and_the_last_is_that_which_came(
            acks in proptest::collection::vec((0_u64..100, 0_u64..50_000), 1..50),
        ) {
            let mut regeneration = AckRegeneration::new(2, 1460);
            let (mut time, mut number) = (0, 0);
            let mut last = (at(0), 0);
            for (gap, more) in acks {
                time += gap;
                number += more;
                let made = regeneration.handle_ack(at(time), number);
                prop_assert!(made.len() <= MOST as usize);
                for ack in &made {
                    prop_assert!(ack.at >= last.0 && ack.number >= last.1 && ack.at >= at(time));
                    last = (ack.at, ack.number);
                }
                prop_assert_eq!(last.1, number);
            }
        }
    }
}
