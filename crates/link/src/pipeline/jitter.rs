//! Jitter: each packet has an additional delay of its own, and keeps its place in the order.

use std::collections::VecDeque;

use midspan_units::{Time, TimeSpan};
use rand_pcg::rand_core::Rng;

use crate::seed::Stream;
use crate::stage::{Output, Stage};

/// Delays each packet by a time from zero to a limit, drawn uniformly and independently. A packet
/// that would overtake the one before it leaves together with that packet.
///
/// `netem` draws uniformly too if it has no table of a distribution (Hemminger, "Network Emulation with
/// NetEm", 2005). If the time between packets is longer than the limit, they are delayed by half of the limit
/// on average. Closer packets are delayed by more, because they wait for the ones before them, but
/// never by more than the limit.
///
/// One random number is drawn for each packet, so the draws for other packets do not depend on when
/// packets arrive. The stage before this one limits the number of packets that it holds.
#[derive(Debug, Clone)]
pub(super) struct Jitter<P> {
    most: TimeSpan,
    stream: Stream,
    latest_due: Time,
    on_the_way: VecDeque<(Time, P)>,
}

impl<P> Jitter<P> {
    /// Additional delays from zero to `most`, with random numbers from `stream`.
    pub(super) const fn new(most: TimeSpan, stream: Stream) -> Self {
        Self {
            most,
            stream,
            latest_due: Time::ZERO,
            on_the_way: VecDeque::new(),
        }
    }

    /// A whole number of nanoseconds from zero to the limit, both included. The product's upper
    /// half differs from a uniform number by less than one part in 2⁶⁴ / limit.
    fn draw(&mut self) -> TimeSpan {
        let values = u128::from(self.most.nanoseconds()) + 1;
        let scaled = (u128::from(self.stream.next_u64()) * values) >> 64;
        TimeSpan::from_nanoseconds(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

impl<P> Stage<P> for Jitter<P> {
    fn handle(&mut self, now: Time, packet: P) {
        self.latest_due = self.latest_due.max(now + self.draw());
        self.on_the_way.push_back((self.latest_due, packet));
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        let (due, packet) = self.on_the_way.pop_front_if(|(due, _)| *due <= now)?;
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
    use proptest::prelude::*;

    use super::super::{Configuration, LinkError, Pipeline, build};
    use super::*;
    use crate::schedule::State;
    use crate::seed::{Direction, Streams};

    const STREAMS: Streams<'_> = Streams {
        seed: 7,
        link: "link",
        direction: Direction::Up,
    };
    const DELAY: TimeSpan = TimeSpan::from_milliseconds(20);
    /// 100 bytes at 8 Mbit/s.
    const SENDING: u64 = 100_000;

    fn configuration(jitter: TimeSpan) -> Configuration {
        Configuration {
            state: State {
                rate: Some("8 Mbit/s".parse().unwrap()),
                delay: DELAY,
                ..State::default()
            },
            jitter,
            ..Configuration::default()
        }
    }

    /// The delays of packets beyond sending time and propagation, if each has the link for itself;
    /// and their order.
    fn delays(seed: u64, jitter: TimeSpan, gaps: &[u64]) -> (Vec<TimeSpan>, Vec<u8>) {
        let streams = Streams { seed, ..STREAMS };
        let mut link = Pipeline::new(&configuration(jitter), streams).unwrap();
        let (mut now, mut arrived) = (Time::ZERO, Vec::new());
        for (number, gap) in gaps.iter().enumerate() {
            now += TimeSpan::from_nanoseconds(SENDING + gap);
            arrived.push(now);
            link.handle(now, vec![u8::try_from(number % 256).unwrap(); 100]);
        }
        let (mut delays, mut order) = (Vec::new(), Vec::new());
        while let Some(at) = link.poll_timeout() {
            while let Some(Output::Delivered { due, packet }) = link.poll(at) {
                let sent = arrived[delays.len()] + TimeSpan::from_nanoseconds(SENDING);
                assert!(due >= sent + DELAY, "{due:?} for a packet sent at {sent:?}");
                delays.push(due.since(sent + DELAY));
                order.push(packet[0]);
            }
        }
        assert_eq!((delays.len(), link.held()), (gaps.len(), 0));
        (delays, order)
    }

    #[test]
    fn packets_far_apart_are_delayed_uniformly() {
        let jitter = TimeSpan::from_milliseconds(5);
        let (delays, _) = delays(1, jitter, &[jitter.nanoseconds(); 20_000]);
        // Twenty parts of the range: 1,000 packets in each, standard deviation 31; a fixed seed.
        let mut parts = [0; 20];
        for delay in delays {
            parts[usize::try_from(delay.nanoseconds() / 250_000)
                .unwrap()
                .min(19)] += 1;
        }
        let even = |count: &i32| (880..=1120).contains(count);
        assert!(parts.iter().all(even), "{parts:?}");
    }

    #[test]
    fn no_jitter_leaves_the_fast_path() {
        let none = build::<Vec<u8>>(&configuration(TimeSpan::ZERO), STREAMS).unwrap();
        assert!(none.body.stage().is_none());
        let jitter = configuration(TimeSpan::from_nanoseconds(1));
        let some = build::<Vec<u8>>(&jitter, STREAMS).unwrap();
        assert!(some.body.stage().is_some());
        assert!(!jitter.suits_a_shared_medium());
        let compressed = Configuration {
            header_compression: true,
            ..jitter
        };
        let refused = build::<Vec<u8>>(&compressed, STREAMS).unwrap_err();
        assert_eq!(refused, LinkError::Compression);
    }

    proptest! {
        #[test]
        fn the_order_is_kept_within_the_bounds(
            seed: u64,
            jitter in 1u64..50_000_000,
            gaps in proptest::collection::vec(prop_oneof![Just(0), 0u64..10_000_000], 1..200),
        ) {
            let jitter = TimeSpan::from_nanoseconds(jitter);
            let (found, order) = delays(seed, jitter, &gaps);
            prop_assert!(order.iter().zip(0u8..).all(|(packet, number)| *packet == number));
            prop_assert!(found.iter().all(|delay| *delay <= jitter), "{found:?}");
            prop_assert_eq!(delays(seed, jitter, &gaps).0, found);
        }
    }
}
