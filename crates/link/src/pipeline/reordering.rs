//! Reordering: some packets arrive earlier or later than their place in the order.

use std::collections::BTreeMap;

use midspan_units::{Probability, Time, TimeSpan};
use rand_pcg::rand_core::Rng;

use crate::seed::Stream;
use crate::stage::{Output, Stage};

/// Which packets leave their place in the order, and by how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reordering {
    /// The share of packets that are selected.
    pub share: Probability,
    /// How much the choice depends on the choice before it: the coefficient of correlation of both.
    pub correlation: Probability,
    /// The difference of a selected packet's delay.
    pub shift: Shift,
}

/// The difference of a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// The packet arrives this much earlier, at most by the delay of the link.
    Earlier(TimeSpan),
    /// The packet arrives this much later.
    Later(TimeSpan),
}

impl Reordering {
    /// The time by which all packets leave the link earlier, so that selected ones can arrive
    /// earlier: the stage holds the others for this time.
    pub(super) const fn advance(&self) -> TimeSpan {
        match self.shift {
            Shift::Earlier(span) => span,
            Shift::Later(_) => TimeSpan::ZERO,
        }
    }

    /// The mean delay of packets with this stage, on a link with `delay`.
    pub(super) fn mean_delay(&self, delay: TimeSpan) -> TimeSpan {
        let part = |span: TimeSpan| {
            let nanoseconds = span.nanoseconds() as f64 * self.share.as_f64();
            TimeSpan::from_nanoseconds(nanoseconds as u64)
        };
        match self.shift {
            Shift::Earlier(span) => delay - part(span),
            Shift::Later(span) => delay + part(span),
        }
    }

    /// The probability that a packet is selected, if the packet before it was or was not.
    fn probability(&self, before: Option<bool>) -> Probability {
        let (share, correlation) = (self.share.as_f64(), self.correlation.as_f64());
        let probability = match before {
            None => return self.share,
            Some(true) => share + correlation * (1.0 - share),
            Some(false) => share * (1.0 - correlation),
        };
        // Between 0 and 1 already, apart from rounding.
        Probability::from_f64(probability.clamp(0.0, 1.0)).unwrap_or(self.share)
    }
}

/// Holds some packets for longer than others, so that packets overtake each other.
///
/// The choices are a Markov chain: their share and their correlation are exactly those of the
/// [`Reordering`]. One random number is drawn for each packet, so the choices do not depend on when
/// packets arrive. The stage before it limits the number of packets that it holds.
#[derive(Debug, Clone)]
pub(super) struct Reorder<P> {
    reordering: Reordering,
    stream: Stream,
    /// Whether the packet before was selected.
    before: Option<bool>,
    arrived: u64,
    /// By due time; of packets with one due time, the one that arrived first comes first.
    on_the_way: BTreeMap<(Time, u64), P>,
}

impl<P> Reorder<P> {
    pub(super) const fn new(reordering: Reordering, stream: Stream) -> Self {
        Self {
            reordering,
            stream,
            before: None,
            arrived: 0,
            on_the_way: BTreeMap::new(),
        }
    }

    fn selects(&mut self) -> bool {
        let probability = self.reordering.probability(self.before);
        let selects = probability.happens(self.stream.next_u64());
        self.before = Some(selects);
        selects
    }
}

impl<P> Stage<P> for Reorder<P> {
    fn handle(&mut self, now: Time, packet: P) {
        let held_for = match (self.reordering.shift, self.selects()) {
            (Shift::Earlier(span), false) | (Shift::Later(span), true) => span,
            (Shift::Earlier(_), true) | (Shift::Later(_), false) => TimeSpan::ZERO,
        };
        self.on_the_way
            .insert((now + held_for, self.arrived), packet);
        self.arrived += 1;
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        let first = self.on_the_way.first_entry()?;
        let (due, _) = *first.key();
        (due <= now).then(|| Output::Delivered {
            due,
            packet: first.remove(),
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.on_the_way.first_key_value().map(|((due, _), _)| *due)
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
    use crate::schedule::{Schedule, State, Step};
    use crate::seed::{Direction, Streams};

    const STREAMS: Streams<'_> = Streams {
        seed: 7,
        link: "link",
        direction: Direction::Up,
    };
    const DELAY: TimeSpan = TimeSpan::from_milliseconds(20);

    fn reordering(share: &str, correlation: &str, shift: Shift) -> Reordering {
        Reordering {
            share: share.parse().unwrap(),
            correlation: correlation.parse().unwrap(),
            shift,
        }
    }

    fn configuration(reordering: Reordering) -> Configuration {
        Configuration {
            state: State {
                delay: DELAY,
                ..State::default()
            },
            reordering: Some(reordering),
            ..Configuration::default()
        }
    }

    /// The delays of packets that arrive at these distances, and their order at the far end.
    fn delays(seed: u64, reordering: Reordering, gaps: &[u64]) -> (Vec<TimeSpan>, Vec<usize>) {
        let streams = Streams { seed, ..STREAMS };
        let mut link = Pipeline::new(&configuration(reordering), streams).unwrap();
        let (mut now, mut arrived) = (Time::ZERO, Vec::new());
        for (number, gap) in gaps.iter().enumerate() {
            now += TimeSpan::from_nanoseconds(*gap);
            arrived.push(now);
            link.handle(now, (number as u64).to_le_bytes().to_vec());
        }
        let mut delays = vec![TimeSpan::ZERO; gaps.len()];
        let (mut order, mut last) = (Vec::new(), Time::ZERO);
        while let Some(at) = link.poll_timeout() {
            while let Some(Output::Delivered { due, packet }) = link.poll(at) {
                assert!(due >= last, "deliveries come in order of time");
                last = due;
                let number = u64::from_le_bytes(packet.try_into().unwrap()) as usize;
                delays[number] = due.since(arrived[number]);
                order.push(number);
            }
        }
        assert_eq!((order.len(), link.held()), (gaps.len(), 0));
        (delays, order)
    }

    #[test]
    fn the_share_and_the_correlation_are_exact() {
        let span = TimeSpan::from_milliseconds(5);
        for (correlation, expected) in [("0 %", 0.0), ("60 %", 0.6), ("100 %", 1.0)] {
            let reordering = reordering("20 %", correlation, Shift::Later(span));
            let (delays, _) = delays(3, reordering, &[10_000_000; 40_000]);
            let selected: Vec<f64> = delays
                .iter()
                .map(|delay| f64::from(u8::from(*delay == DELAY + span)))
                .collect();
            assert!(
                delays
                    .iter()
                    .all(|delay| [DELAY, DELAY + span].contains(delay))
            );
            let count = selected.len() as f64;
            let share = selected.iter().sum::<f64>() / count;
            if expected == 1.0 {
                // All choices are the first one.
                assert!(share == 0.0 || share == 1.0, "{share}");
                continue;
            }
            assert!((share - 0.2).abs() < 0.01, "{correlation}: {share}");
            let pairs = selected
                .windows(2)
                .map(|pair| (pair[0] - share) * (pair[1] - share));
            let found = pairs.sum::<f64>() / count / (share * (1.0 - share));
            assert!((found - expected).abs() < 0.03, "{correlation}: {found}");
        }
    }

    #[test]
    fn packets_overtake_or_are_overtaken() {
        // The gap is 1 ms: a packet that is 5 ms earlier overtakes five, one that is later lets
        // five pass.
        let span = TimeSpan::from_milliseconds(5);
        let gaps = [1_000_000; 2_000];
        for shift in [Shift::Earlier(span), Shift::Later(span)] {
            let reordering = reordering("1 %", "0 %", shift);
            let (delays, order) = delays(1, reordering, &gaps);
            let other = match shift {
                Shift::Earlier(_) => DELAY - span,
                Shift::Later(_) => DELAY + span,
            };
            assert!(delays.iter().all(|delay| [DELAY, other].contains(delay)));
            let selected: Vec<usize> = (0..delays.len())
                .filter(|number| delays[*number] == other)
                .collect();
            assert!((8..40).contains(&selected.len()), "{selected:?}");
            let lonely = selected
                .windows(3)
                .find(|three| three[0] + 10 < three[1] && three[1] + 10 < three[2])
                .unwrap()[1];
            let place = order.iter().position(|number| *number == lonely).unwrap();
            match shift {
                // It arrives with the packet five places ahead, which arrived at the link first.
                Shift::Earlier(_) => assert_eq!(order[place - 1], lonely - 5),
                Shift::Later(_) => assert_eq!(order[place + 1], lonely + 5),
            }
            let mean = configuration(reordering).mean_delay().as_milliseconds();
            let expected = match shift {
                Shift::Earlier(_) => 19.95,
                Shift::Later(_) => 20.05,
            };
            assert!((mean - expected).abs() < 1e-5, "{mean}");
        }
    }

    #[test]
    fn a_packet_is_not_earlier_than_the_link_allows() {
        let error =
            |configuration: &Configuration| build::<Vec<u8>>(configuration, STREAMS).unwrap_err();
        let too_early = Shift::Earlier(DELAY + TimeSpan::from_nanoseconds(1));
        let too_early = configuration(reordering("1 %", "0 %", too_early));
        assert_eq!(error(&too_early), LinkError::TooEarly);
        let mut shorter = configuration(reordering("1 %", "0 %", Shift::Earlier(DELAY)));
        assert!(build::<Vec<u8>>(&shorter, STREAMS).is_ok());
        shorter.schedule = Schedule {
            steps: vec![Step {
                delay: Some(DELAY / 2),
                ..Step::default()
            }],
            repeat: None,
        };
        assert_eq!(error(&shorter), LinkError::TooEarly);
        assert!(!shorter.is_fixed() && !shorter.suits_a_shared_medium());
    }

    proptest! {
        #[test]
        fn every_packet_arrives_once_with_one_of_two_delays(
            seed: u64,
            earlier: bool,
            share in 0.0..=1.0,
            correlation in 0.0..=1.0,
            span in 0u64..20_000_000,
            gaps in proptest::collection::vec(prop_oneof![Just(0), 0u64..10_000_000], 1..200),
        ) {
            let span = TimeSpan::from_nanoseconds(span);
            let (shift, other) = match earlier {
                true => (Shift::Earlier(span), DELAY - span),
                false => (Shift::Later(span), DELAY + span),
            };
            let reordering = Reordering {
                share: Probability::from_f64(share).unwrap(),
                correlation: Probability::from_f64(correlation).unwrap(),
                shift,
            };
            let (found, _) = delays(seed, reordering, &gaps);
            prop_assert!(found.iter().all(|delay| [DELAY, other].contains(delay)));
            prop_assert_eq!(delays(seed, reordering, &gaps).0, found);
        }
    }
}
