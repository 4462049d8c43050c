//! Replay of delivery opportunities: packets leave when a recorded trace lets them.

use std::sync::Arc;

use midspan_units::Time;

use crate::counters::Counters;
use crate::packet::Packet;
use crate::queue::Queue;
use crate::recorded_trace::{Opportunities, Position};
use crate::stage::{Output, Outputs, Stage, Waiting};

/// A queue, and a transmitter that sends at the opportunities of a trace, as Mahimahi's `mm-link`
/// does (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", 2015).
///
/// - At each opportunity, [`Opportunities::BYTES`] may leave. A packet takes its size, the overhead
///   and [`Opportunities::FRAMING`]. Several small packets leave at one opportunity.
/// - A packet that is larger than the rest of an opportunity uses this rest, and leaves when later
///   opportunities have taken its other bytes.
/// - What an opportunity could send while no packet waits is lost.
/// - A packet that arrives at the very time of an opportunity waits for the next one.
///
/// Every packet waits in the queue, also if the link is idle. The packet of which a part has left
/// no longer counts in the queue.
#[derive(Debug, Clone)]
pub(super) struct Replay<P, Q> {
    trace: Arc<Opportunities>,
    /// The next opportunity, as long as a packet waits.
    next: Position,
    queue: Q,
    overhead: u32,
    /// The packet of which a part has left, and the number of bytes that are left.
    partly_sent: Option<(P, u64)>,
    outputs: Outputs<P>,
    counters: Counters,
    now: Time,
}

impl<P: Packet, Q: Queue<P>> Replay<P, Q> {
    /// An idle link with this trace, which begins at time zero. Each packet has `overhead` additional
    /// bytes.
    pub(super) fn new(trace: Arc<Opportunities>, queue: Q, overhead: u32) -> Self {
        Self {
            next: trace.after(Time::ZERO),
            trace,
            queue,
            overhead,
            partly_sent: None,
            outputs: Outputs::default(),
            counters: Counters::default(),
            now: Time::ZERO,
        }
    }

    fn is_idle(&self) -> bool {
        self.partly_sent.is_none() && self.queue.packets() == 0
    }

    /// Uses the next opportunity, if it has come and a packet waits.
    fn use_opportunity(&mut self) -> bool {
        let at = self.trace.time(self.next);
        if self.is_idle() || at > self.now {
            return false;
        }
        self.next = self.trace.next(self.next);
        let mut left = u64::from(Opportunities::BYTES);
        while left > 0 {
            let sending = self.partly_sent.take().or_else(|| {
                let packet = self.queue.dequeue(at, &mut self.outputs)?;
                let framing = u64::from(self.overhead) + u64::from(Opportunities::FRAMING);
                let bytes = u64::from(packet.size()) + framing;
                Some((packet, bytes))
            });
            let Some((packet, bytes)) = sending else {
                break;
            };
            if bytes > left {
                self.partly_sent = Some((packet, bytes - left));
                break;
            }
            left -= bytes;
            self.outputs.push(Output::Delivered { due: at, packet });
        }
        true
    }
}

impl<P: Packet, Q: Queue<P>> Stage<P> for Replay<P, Q> {
    fn handle(&mut self, now: Time, packet: P) {
        self.now = self.now.max(now);
        while self.use_opportunity() {}
        if self.is_idle() {
            // The opportunities up to now have passed unused.
            self.next = self.trace.after(self.now);
        }
        self.counters.handled.add(packet.size());
        self.queue.enqueue(self.now, packet, &mut self.outputs);
        self.counters
            .see_queue(self.queue.packets(), self.queue.bytes());
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        self.now = self.now.max(now);
        loop {
            if let Some(output) = self.outputs.pop() {
                output.count(&mut self.counters);
                return Some(output);
            }
            if !self.use_opportunity() {
                return None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let next = || (!self.is_idle()).then(|| self.trace.time(self.next));
        self.outputs.due().or_else(next)
    }

    fn held(&self) -> usize {
        self.outputs.len() + self.queue.packets() + usize::from(self.partly_sent.is_some())
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            packets: self.queue.packets(),
            bytes: self.queue.bytes(),
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Configuration, LinkError, Pipeline, build};
    use super::*;
    use crate::drop_reason::DropReason;
    use crate::queue::QueueLimit;
    use crate::recorded_trace::Trace;
    use crate::schedule::State;
    use crate::seed::{Direction, Streams};

    const STREAMS: Streams<'_> = Streams {
        seed: 7,
        link: "link",
        direction: Direction::Up,
    };
    const END: Time = Time::from_nanoseconds(u64::MAX);

    fn at(milliseconds: u64) -> Time {
        Time::from_nanoseconds(milliseconds * 1_000_000)
    }

    fn configuration(trace: &[u32]) -> Configuration {
        let opportunities = Opportunities::new(trace.to_vec()).unwrap();
        Configuration {
            trace: Some(Trace {
                file: "trace".into(),
                sha256: "".into(),
                opportunities: Some(Arc::new(opportunities)),
            }),
            ..Configuration::default()
        }
    }

    fn packet(number: usize, size: usize) -> Vec<u8> {
        let mut packet = vec![0; size.max(8)];
        packet[..8].copy_from_slice(&(number as u64).to_le_bytes());
        packet
    }

    /// Runs packets (time of arrival, size) through a link that is polled at its deadlines. Returns
    /// for each packet when it came out, and why it was dropped.
    fn run(
        configuration: &Configuration,
        arrivals: &[(Time, usize)],
    ) -> Vec<(Time, Option<DropReason>)> {
        let mut link = Pipeline::new(configuration, STREAMS).unwrap();
        let mut fates = vec![None; arrivals.len()];
        let mut take = |link: &mut Pipeline<Vec<u8>>, end: Time| {
            loop {
                let now = link.poll_timeout().unwrap_or(end).min(end);
                while let Some(output) = link.poll(now) {
                    let (due, packet, reason) = match output {
                        Output::Delivered { due, packet } => (due, packet, None),
                        Output::Dropped {
                            due,
                            packet,
                            reason,
                        } => (due, packet, Some(reason)),
                    };
                    let number = u64::from_le_bytes(packet[..8].try_into().unwrap());
                    let fate = &mut fates[usize::try_from(number).unwrap()];
                    assert_eq!(*fate, None, "packet {number} comes out once");
                    *fate = Some((due, reason));
                }
                if link.poll_timeout().is_none_or(|at| at > end) {
                    return;
                }
            }
        };
        for (number, (now, size)) in arrivals.iter().enumerate() {
            take(&mut link, *now);
            link.handle(*now, packet(number, *size));
        }
        take(&mut link, END);
        assert_eq!((link.held(), link.poll_timeout()), (0, None));
        assert_eq!(link.counters().held_packets(), 0);
        fates.into_iter().map(Option::unwrap).collect()
    }

    fn delivered(configuration: &Configuration, arrivals: &[(u64, usize)]) -> Vec<u64> {
        let arrivals: Vec<(Time, usize)> = arrivals
            .iter()
            .map(|(milliseconds, size)| (at(*milliseconds), *size))
            .collect();
        let fates = run(configuration, &arrivals);
        assert!(
            fates.iter().all(|(_, reason)| reason.is_none()),
            "{fates:?}"
        );
        let milliseconds = |(due, _): &(Time, _)| due.nanoseconds() / 1_000_000;
        fates.iter().map(milliseconds).collect()
    }

    #[test]
    fn deliveries_by_hand() {
        let trace = configuration(&[0, 4, 4, 10]);
        // Full packets: one for each opportunity. The one at 0 has passed, and 10 is 0 again.
        let full = [(0, 1500); 7];
        assert_eq!(delivered(&trace, &full), [4, 4, 10, 10, 14, 14, 20]);
        // An arrival at 4 waits for the one at 10.
        assert_eq!(
            delivered(&trace, &[(4, 1500), (11, 1500), (500, 40)]),
            [10, 14, 504]
        );
        // 752 bytes each with the framing of Mahimahi: two at once. 1,504 and 1 more: not at once.
        assert_eq!(delivered(&trace, &[(1, 748); 5]), [4, 4, 4, 4, 10]);
        assert_eq!(
            delivered(&trace, &[(1, 748), (1, 749), (1, 747)]),
            [4, 4, 4]
        );
        assert_eq!(
            delivered(&trace, &[(5, 748), (5, 749), (5, 747)]),
            [10, 10, 10]
        );
        // The third packet leaves 1 byte to the next opportunity, at 14.
        assert_eq!(
            delivered(&trace, &[(5, 1500), (5, 748), (5, 749), (5, 748)]),
            [10, 10, 14, 14]
        );
        // The rest of an opportunity without waiting packets is lost.
        assert_eq!(
            delivered(&trace, &[(1, 40), (4, 1500), (4, 1500)]),
            [4, 10, 10]
        );
        // A packet larger than an opportunity takes several: 4,000 + 4 bytes take three.
        assert_eq!(
            delivered(&trace, &[(0, 4000), (0, 496), (0, 1500)]),
            [10, 10, 10]
        );
        // With an overhead, a full packet takes more than one opportunity.
        let framed = Configuration {
            overhead: 20,
            ..trace
        };
        assert_eq!(delivered(&framed, &[(0, 1500), (0, 1461)]), [4, 10]);
    }

    #[test]
    fn the_queue_is_bounded_and_the_packet_that_leaves_does_not_count() {
        let limited = Configuration {
            queue: QueueLimit::Packets(2),
            ..configuration(&[10])
        };
        let full = Some(DropReason::QueueFull);
        let fates = run(
            &limited,
            // The first packet has left by a part at 10; then two more find room.
            &[(at(0), 2000), (at(11), 1500), (at(11), 1500), (at(11), 40)],
        );
        let expected = [
            (at(20), None),
            (at(30), None),
            (at(40), None),
            (at(11), full),
        ];
        assert_eq!(fates, expected);
    }

    #[test]
    fn loss_delay_and_jitter_come_after_the_opportunities() {
        let trace = configuration(&[10]);
        let lossy = Configuration {
            state: State {
                delay: "25 ms".parse().unwrap(),
                loss: "50 %".parse().unwrap(),
                ..State::default()
            },
            ..trace.clone()
        };
        let arrivals = [(at(0), 1500); 200];
        let fates = run(&lossy, &arrivals);
        for ((due, reason), number) in fates.iter().zip(1u64..) {
            match reason {
                None => assert_eq!(*due, at(number * 10 + 25)),
                Some(reason) => {
                    assert_eq!((*due, *reason), (at(number * 10), DropReason::Lost))
                }
            }
        }
        let lost = fates.iter().filter(|(_, reason)| reason.is_some()).count();
        assert!((70..130).contains(&lost), "{lost}");
        let jitter = Configuration {
            jitter: "3 ms".parse().unwrap(),
            ..trace
        };
        let fates = run(&jitter, &arrivals);
        for ((due, _), number) in fates.iter().zip(1u64..) {
            assert!((at(number * 10)..=at(number * 10 + 3)).contains(due));
        }
    }

    #[test]
    fn the_fast_path_and_its_effects_do_not_fit() {
        let trace = configuration(&[10]);
        assert!(!trace.is_fixed() && !trace.suits_a_shared_medium());
        let compressed = Configuration {
            header_compression: true,
            ..trace
        };
        let refused = build::<Vec<u8>>(&compressed, STREAMS).unwrap_err();
        assert_eq!(refused, LinkError::Compression);
    }

    /// The rule of `mm-link`, millisecond by millisecond, written without the code above: packets
    /// that have arrived before an opportunity share its bytes.
    fn reference(trace: &[u32], overhead: u64, arrivals: &[(Time, usize)]) -> Vec<u64> {
        let mut due = vec![0; arrivals.len()];
        let mut missing: Vec<u64> = arrivals
            .iter()
            .map(|(_, size)| *size as u64 + 4 + overhead)
            .collect();
        let mut first = 0;
        let length = u64::from(*trace.last().unwrap());
        let mut repetition = 0;
        while first < arrivals.len() {
            for time in trace {
                let now = repetition * length + u64::from(*time);
                let mut budget = 1504;
                while first < arrivals.len() && budget > 0 && arrivals[first].0 < at(now) {
                    let used = budget.min(missing[first]);
                    budget -= used;
                    missing[first] -= used;
                    if missing[first] == 0 {
                        due[first] = now;
                        first += 1;
                    }
                }
            }
            repetition += 1;
        }
        due
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn deliveries_equal_those_of_an_independent_reference(
            gaps in proptest::collection::vec(prop_oneof![2 => Just(0u32), 3 => 1u32..40], 1..40),
            overhead in prop_oneof![Just(0u32), 1u32..60],
            packets in proptest::collection::vec(
                (
                    prop_oneof![
                        3 => Just(0u64), 3 => 0u64..30_000_000, 2 => (0u64..20).prop_map(|ms| ms * 1_000_000),
                    ],
                    prop_oneof![2 => Just(40usize), 3 => Just(1500), 2 => 20usize..1500, 1 => 1501usize..9000],
                ),
                1..150,
            ),
        ) {
            let mut time = 0;
            let mut trace: Vec<u32> = gaps.iter().map(|gap| { time += gap; time }).collect();
            if time == 0 {
                trace.push(1);
            }
            let mut now = Time::ZERO;
            let arrivals: Vec<(Time, usize)> = packets
                .iter()
                .map(|(gap, size)| {
                    now += midspan_units::TimeSpan::from_nanoseconds(*gap);
                    (now, *size)
                })
                .collect();
            let configuration = Configuration { overhead, ..configuration(&trace) };
            let found: Vec<u64> = run(&configuration, &arrivals)
                .into_iter()
                .map(|(due, reason)| {
                    assert_eq!(reason, None);
                    due.nanoseconds()
                })
                .collect();
            let expected: Vec<u64> = reference(&trace, u64::from(overhead), &arrivals)
                .into_iter()
                .map(|milliseconds| milliseconds * 1_000_000)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
