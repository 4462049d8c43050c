//! Propagation: a packet arrives at the far end some time after it was sent.

use std::collections::VecDeque;

use midspan_units::{Time, TimeSpan};

use crate::stage::{Output, Stage};

/// Delays every packet by the delay that holds when it enters. Packets never overtake each
/// other: after the delay has shrunk, a packet that would arrive before an earlier one arrives
/// together with it.
///
/// The number of packets in propagation has no limit here: the transmitter before this stage limits
/// it, or, without one, the caller (see [`Stage::held`]).
#[derive(Debug, Clone)]
pub struct Delay<P> {
    delay: TimeSpan,
    latest_due: Time,
    on_the_way: VecDeque<(Time, P)>,
}

impl<P> Delay<P> {
    /// A propagation delay of `delay`.
    #[must_use]
    pub const fn new(delay: TimeSpan) -> Self {
        Self {
            delay,
            latest_due: Time::ZERO,
            on_the_way: VecDeque::new(),
        }
    }

    /// Packets that enter from now on are delayed by `delay`; packets in propagation are not
    /// affected.
    pub const fn set_delay(&mut self, delay: TimeSpan) {
        self.delay = delay;
    }

    fn check_invariants(&self) {
        debug_assert!(
            self.on_the_way
                .back()
                .is_none_or(|(due, _)| *due == self.latest_due),
            "the last packet on the way is the last one due"
        );
        debug_assert!(
            self.on_the_way.len() < 2
                || self.on_the_way[self.on_the_way.len() - 2].0 <= self.latest_due,
            "packets on the way are in order of their due times"
        );
    }
}

impl<P> Stage<P> for Delay<P> {
    fn handle(&mut self, now: Time, packet: P) {
        self.latest_due = self.latest_due.max(now + self.delay);
        self.on_the_way.push_back((self.latest_due, packet));
        self.check_invariants();
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        let (due, packet) = self.on_the_way.pop_front_if(|(due, _)| *due <= now)?;
        self.check_invariants();
        Some(Output::Delivered { due, packet })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.on_the_way.front().map(|(due, _)| *due)
    }

    fn held(&self) -> usize {
        self.on_the_way.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(milliseconds: u64) -> Time {
        Time::from_nanoseconds(milliseconds * MS)
    }

    fn delivered(milliseconds: u64, packet: char) -> Option<Output<char>> {
        Some(Output::Delivered {
            due: at(milliseconds),
            packet,
        })
    }

    #[test]
    fn a_packet_arrives_exactly_after_the_delay() {
        let mut delay = Delay::new(TimeSpan::from_milliseconds(250));
        delay.handle(at(10), 'a');
        assert_eq!(delay.poll_timeout(), Some(at(260)));
        assert_eq!(delay.poll(Time::from_nanoseconds(260 * MS - 1)), None);
        assert_eq!(delay.poll(at(260)), delivered(260, 'a'));
        assert_eq!(delay.poll_timeout(), None);
    }

    #[test]
    fn a_shorter_delay_does_not_let_packets_overtake() {
        let mut delay = Delay::new(TimeSpan::from_milliseconds(100));
        delay.handle(at(0), 'a');
        delay.set_delay(TimeSpan::from_milliseconds(20));
        delay.handle(at(10), 'b'); // would arrive at 30, before a
        delay.handle(at(90), 'c'); // arrives at 110 by itself
        assert_eq!(delay.poll(at(99)), None);
        assert_eq!(delay.poll(at(200)), delivered(100, 'a'));
        assert_eq!(delay.poll(at(200)), delivered(100, 'b'));
        assert_eq!(delay.poll(at(200)), delivered(110, 'c'));
        assert_eq!(delay.poll(at(200)), None);
    }

    #[test]
    fn a_longer_delay_leaves_packets_on_the_way_alone() {
        let mut delay = Delay::new(TimeSpan::from_milliseconds(20));
        delay.handle(at(0), 'a');
        delay.set_delay(TimeSpan::from_milliseconds(100));
        delay.handle(at(1), 'b');
        assert_eq!(delay.poll(at(500)), delivered(20, 'a'));
        assert_eq!(delay.poll(at(500)), delivered(101, 'b'));
    }
}
