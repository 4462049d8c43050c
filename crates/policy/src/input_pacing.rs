//! Pacing at the input of TCP, coupled with flow control (Shikama §3.2).

use midspan_units::{BitRate, Time, TimeSpan};

/// Cuts forward data into chunks of one segment and issues them at a rate.
///
/// While any chunk remains, nothing more is read from the inbound leg, so no data can accumulate
/// between the legs: data that arrives meanwhile stays in the inbound leg's receive buffer, whose
/// advertised window holds the sender back.
///
/// | kind | calls |
/// | --- | --- |
/// | input | [`handle_read`](Self::handle_read): forward data was read |
/// | output | [`poll_chunk`](Self::poll_chunk) until `None`: the next chunk to be written; [`poll_timeout`](Self::poll_timeout): when to ask again |
/// | getters | [`may_read`](Self::may_read), [`remaining`](Self::remaining) |
///
/// ```
/// use midspan_policy::InputPacing;
/// use midspan_units::{Time, TimeSpan};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut pacing = InputPacing::new("12 Mbit/s".parse()?, 1460, 40);
/// pacing.handle_read(2000);
/// let now = Time::ZERO;
/// assert_eq!(pacing.poll_chunk(now, u64::MAX), Some(1460));
/// assert_eq!(pacing.poll_chunk(now, u64::MAX), None);
/// // 1,500 bytes at 12 Mbit/s take a millisecond.
/// let next = Time::ZERO + TimeSpan::from_milliseconds(1);
/// assert_eq!(pacing.poll_timeout(), Some(next));
/// assert_eq!(pacing.poll_chunk(next, u64::MAX), Some(540));
/// assert!(pacing.may_read());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputPacing {
    rate: BitRate,
    /// Bytes of data in a full chunk; above zero.
    segment_size: u64,
    /// IP and TCP headers of a segment, which the rate counts.
    header_size: u64,
    remaining: u64,
    next_issue: Time,
    /// How much later than planned a chunk may be issued without delaying the next chunk.
    lateness: TimeSpan,
    /// Bytes of the flight that are still to be issued, and how many of them leave without waiting;
    /// `None`: no flight, pacing has no end.
    flight: Option<(u64, u64)>,
}

impl InputPacing {
    /// Nothing has been read yet. Chunks have `segment_size` bytes (0 counts as 1). `rate` covers
    /// these bytes and `header_size` bytes for each chunk.
    #[must_use]
    pub fn new(rate: BitRate, segment_size: u32, header_size: u32) -> Self {
        Self {
            rate,
            segment_size: u64::from(segment_size.max(1)),
            header_size: u64::from(header_size),
            remaining: 0,
            next_issue: Time::ZERO,
            lateness: TimeSpan::ZERO,
            flight: None,
        }
    }

    /// The same pacing for one flight of `bytes`, of which the first `at_once` bytes do not wait.
    #[must_use]
    pub const fn of_flight(mut self, bytes: u64, at_once: u64) -> Self {
        self.flight = Some((bytes, at_once));
        self
    }

    /// Whether the flight has been issued: the remaining data is then no longer held back.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.flight, Some((0, _)))
    }

    /// The same pacing for a caller whose timers are late by up to `lateness`: after a late chunk,
    /// the next ones wait less, so data worth at most `lateness` leaves at once. Without this call,
    /// time lost by lateness is not made up.
    #[must_use]
    pub const fn with_lateness(mut self, lateness: TimeSpan) -> Self {
        self.lateness = lateness;
        self
    }

    /// Whether all that was read has been issued, so that forward data may be read again.
    #[must_use]
    pub const fn may_read(&self) -> bool {
        self.remaining == 0
    }

    /// Bytes that were read and not yet issued.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The rate at which chunks are issued.
    #[must_use]
    pub const fn rate(&self) -> BitRate {
        self.rate
    }

    /// Bytes of data in a full chunk.
    #[must_use]
    pub const fn segment_size(&self) -> u64 {
        self.segment_size
    }

    /// Bytes of the headers that the rate counts for each chunk.
    #[must_use]
    pub const fn header_size(&self) -> u64 {
        self.header_size
    }

    /// Whether it paces a flight only.
    #[must_use]
    pub const fn has_end(&self) -> bool {
        self.flight.is_some()
    }

    /// From the next chunk on, this rate holds, and pacing has no end.
    pub const fn set_rate(&mut self, rate: BitRate) {
        self.rate = rate;
        self.flight = None;
    }

    /// From the next chunk on, segments have this size.
    pub fn set_segment_size(&mut self, segment_size: u32) {
        self.segment_size = u64::from(segment_size.max(1));
    }

    /// Forward data of `bytes` was read from the inbound leg. To be called only while
    /// [`may_read`](Self::may_read) is true; otherwise the bytes add to what remains.
    pub const fn handle_read(&mut self, bytes: u64) {
        self.remaining = self.remaining.saturating_add(bytes);
    }

    /// The next chunk, to be written to the outbound leg now; `None` before its time, or while the
    /// outbound leg has no `room` (bytes) for all of it.
    pub fn poll_chunk(&mut self, now: Time, room: u64) -> Option<u64> {
        let chunk = self.chunk();
        if chunk == 0 || now < self.next_issue || room < chunk {
            return None;
        }
        self.remaining -= chunk;
        if let Some((bytes, at_once)) = &mut self.flight {
            *bytes = bytes.saturating_sub(chunk);
            let waits = *at_once <= chunk;
            *at_once = at_once.saturating_sub(chunk);
            if !waits {
                self.next_issue = now;
                return Some(chunk);
            }
        }
        let size = chunk.saturating_add(self.header_size);
        let late = now.since(self.next_issue).min(self.lateness);
        // As if the chunk had been on time, which may be in the past.
        let issued = Time::from_nanoseconds(now.nanoseconds() - late.nanoseconds());
        self.next_issue = issued + self.rate.transmission_time(size);
        Some(chunk)
    }

    /// When the next chunk may be issued, if the outbound leg has room; `None` if none
    /// remains.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        (self.remaining > 0).then_some(self.next_issue)
    }

    /// Size of the next chunk; zero where none remains.
    #[must_use]
    pub fn chunk(&self) -> u64 {
        self.remaining.min(self.segment_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pacing(rate: u64) -> InputPacing {
        InputPacing::new(BitRate::from_bits_per_second(rate).unwrap(), 1000, 40)
    }

    #[test]
    fn a_chunk_waits_for_room_and_is_not_late_for_it() {
        let mut pacing = pacing(8_000_000);
        pacing.handle_read(1000);
        assert_eq!(pacing.poll_chunk(Time::ZERO, 999), None);
        let later = Time::ZERO + TimeSpan::from_seconds(1);
        assert_eq!(pacing.poll_chunk(later, 1000), Some(1000));
        assert_eq!(pacing.poll_timeout(), None);
        // The chunk was issued late. The gap before the next chunk still has its full length from then on: no
        // burst makes up for the delay.
        pacing.handle_read(5000);
        let gap = TimeSpan::from_nanoseconds(1_040_000);
        assert_eq!(pacing.poll_timeout(), Some(later + gap));
    }

    #[test]
    fn late_timers_do_not_lower_the_rate() {
        let millisecond = TimeSpan::from_milliseconds(1);
        // A chunk takes a tenth of a millisecond.
        let mut pacing = pacing(83_200_000).with_lateness(millisecond);
        let (mut now, mut issued) = (Time::ZERO, 0);
        let end = Time::ZERO + TimeSpan::from_seconds(1);
        while now < end {
            pacing.handle_read(1000);
            now = pacing.poll_timeout().unwrap().max(now) + TimeSpan::from_nanoseconds(300_000);
            while pacing.poll_chunk(now, u64::MAX).is_some() {
                issued += 1;
                pacing.handle_read(1000);
            }
        }
        assert!((9_900..=10_020).contains(&issued), "{issued}");
    }

    #[test]
    fn a_new_rate_holds_from_the_next_chunk_on() {
        let mut pacing = pacing(8_320_000);
        pacing.handle_read(3000);
        pacing.poll_chunk(Time::ZERO, u64::MAX);
        pacing.set_rate(BitRate::from_bits_per_second(83_200).unwrap());
        let next = pacing.poll_timeout().unwrap();
        assert_eq!(next, Time::ZERO + TimeSpan::from_milliseconds(1));
        pacing.poll_chunk(next, u64::MAX);
        assert_eq!(
            pacing.poll_timeout(),
            Some(next + TimeSpan::from_milliseconds(100))
        );
    }

    proptest! {
        #[test]
        fn every_byte_is_issued_once_and_never_faster_than_the_rate(
            rate in 1_000_u64..1_000_000_000,
            reads in proptest::collection::vec(1_u64..20_000, 1..20),
            step in 1_u64..50_000_000,
        ) {
            let mut pacing = pacing(rate);
            let mut now = Time::ZERO;
            let (mut issued, mut on_the_wire) = (0, 0);
            let mut last = 0;
            for read in &reads {
                prop_assert!(pacing.may_read());
                pacing.handle_read(*read);
                while let Some(at) = pacing.poll_timeout() {
                    // The caller is late, as a real one is.
                    now = now.max(at) + TimeSpan::from_nanoseconds(step);
                    let chunk = pacing.poll_chunk(now, u64::MAX).unwrap();
                    prop_assert!((1..=1000).contains(&chunk));
                    issued += chunk;
                    on_the_wire += chunk + 40;
                    last = chunk + 40;
                }
            }
            prop_assert_eq!(issued, reads.iter().sum::<u64>());
            let sent = BitRate::from_bits_per_second(rate).unwrap();
            prop_assert!(
                sent.transmission_time(on_the_wire - last) <= now.since(Time::ZERO)
            );
        }
    }
}
