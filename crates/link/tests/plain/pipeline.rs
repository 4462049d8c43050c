//! A link made from its configuration: the fast path and the stages give the same results, and
//! every packet comes out once, whatever the effects.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crate::common::{self, END, cases, span};
use midspan_link::{
    Body, Configuration, Counters, Direction, DropReason, FRAGMENT_HEADER, LinkError, LossPattern,
    Management, Opportunities, Output, Packet, Piece, Pipeline, PureAck, QueueDiscipline,
    QueueLimit, QueueManagement, Reordering, Schedule, Shift, Stage, State, Step, Streams, Trace,
    build,
};
use midspan_policy::ack_thinning::{AckFilter, AckFirst};
use midspan_units::{BitRate, ByteSize, Probability, Time, TimeSpan};
use proptest::prelude::*;

const STREAMS: Streams<'_> = Streams {
    seed: 7,
    link: "link",
    direction: Direction::Up,
};

/// A packet that can be cut; those of 40 bytes are ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    number: u32,
    size: u32,
    offset: u16,
    more: bool,
}

impl Packet for Numbered {
    fn size(&self) -> u32 {
        self.size
    }

    fn acknowledgement(&self) -> Option<PureAck> {
        (self.size == 40).then_some(PureAck {
            number: self.number,
            window: 1,
            selective: false,
            marked: false,
        })
    }

    fn piece(&self) -> Piece {
        Piece {
            identification: 1,
            offset: self.offset,
            more: self.more,
        }
    }

    fn cut(&self, piece: Piece, _skip: u32, bytes: u32) -> Option<Self> {
        Some(Self {
            number: self.number,
            size: FRAGMENT_HEADER + bytes,
            offset: piece.offset,
            more: piece.more,
        })
    }
}

fn patterns() -> impl Strategy<Value = LossPattern> {
    let probability = |value| Probability::from_f64(value).unwrap();
    prop_oneof![
        Just(LossPattern::Independent),
        proptest::collection::vec(1u64..60, 0..10).prop_map(LossPattern::Scripted),
        (0.0..1e-4).prop_map(move |bit| LossPattern::PerBit(probability(bit))),
        (0.0..0.3, 0.1..1.0).prop_map(move |(to_bad, to_good)| LossPattern::GilbertElliott {
            to_bad: probability(to_bad),
            to_good: probability(to_good),
            good: Probability::ZERO,
            bad: probability(0.5),
        }),
    ]
}

prop_compose! {
    /// Links without a schedule and with a plain queue.
    fn plain()(
        rate in proptest::option::weighted(0.8, 100_000u64..50_000_000),
        delay in 0u64..20_000_000,
        loss in prop_oneof![Just(0.0), 0.0..0.5],
        queue in 0u32..12,
        overhead in 0u32..60,
        losses in patterns(),
        mtu in proptest::option::of(68u32..2_000),
        drops_fragments in proptest::bool::weighted(0.2),
    ) -> Configuration {
        Configuration {
            state: State {
                rate: rate.and_then(BitRate::from_bits_per_second),
                delay: TimeSpan::from_nanoseconds(delay),
                loss: Probability::from_f64(loss).unwrap(),
            },
            queue: QueueLimit::Packets(queue),
            overhead,
            losses,
            mtu,
            drops_fragments,
            ..Configuration::default()
        }
    }
}

/// For each packet: the time since the previous one, and its size.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gap = prop_oneof![2 => Just(0u64), 1 => 0u64..3_000, 3 => 0u64..3_000_000];
    let size = prop_oneof![3 => Just(40u32), 2 => Just(1500), 2 => 21u32..4_000];
    proptest::collection::vec((gap, size), 1..100)
}

type Event = (Numbered, Time, Option<DropReason>);

/// Runs packets through a link. Returns what came out, in order of the packets, and the counters.
fn run(configuration: &Configuration, arrivals: &[(u64, u32)]) -> (Vec<Event>, Counters) {
    let mut link = Pipeline::new(configuration, STREAMS).unwrap();
    let (mut now, mut events) = (Time::ZERO, Vec::new());
    for ((gap, size), number) in arrivals.iter().zip(0..) {
        now += TimeSpan::from_nanoseconds(*gap);
        take(&mut link, now, &mut events);
        let packet = Numbered {
            number,
            size: *size,
            offset: 0,
            more: false,
        };
        link.handle(now, packet);
    }
    take(&mut link, END, &mut events);
    assert_eq!((link.held(), link.poll_timeout()), (0, None));
    events.sort_unstable_by_key(|(packet, ..)| *packet);
    (events, link.counters())
}

/// Polls at each deadline until `end`.
fn take(link: &mut Pipeline<Numbered>, end: Time, events: &mut Vec<Event>) {
    loop {
        let now = link.poll_timeout().unwrap_or(end).min(end);
        while let Some(output) = link.poll(now) {
            events.push(match output {
                Output::Delivered { due, packet } => (packet, due, None),
                Output::Dropped {
                    due,
                    packet,
                    reason,
                } => (packet, due, Some(reason)),
            });
        }
        if link.poll_timeout().is_none_or(|at| at > end) {
            return;
        }
    }
}

/// The times at which packets leave a link, in the order in which they are returned. If the link is polled `late`, it is
/// polled only at the end.
fn times(configuration: &Configuration, arrivals: &[(u64, u32)], late: bool) -> Vec<Time> {
    let mut link = Pipeline::new(configuration, STREAMS).unwrap();
    let (mut now, mut events) = (Time::ZERO, Vec::new());
    for ((gap, size), number) in arrivals.iter().zip(0..) {
        now += TimeSpan::from_nanoseconds(*gap);
        if !late {
            take(&mut link, now, &mut events);
        }
        let packet = Numbered {
            number,
            size: *size,
            offset: 0,
            more: false,
        };
        link.handle(now, packet);
    }
    while let Some(output) = link.poll(END) {
        let (due, packet) = (output.due(), *output.packet());
        events.push((packet, due, None));
    }
    events.into_iter().map(|(_, due, _)| due).collect()
}

fn total(counters: &Counters) -> u64 {
    use DropReason::{Contention, Damaged, Early, Filtered, Lost, QueueFull, Refused};
    let dropped = [
        Contention, Damaged, Early, Filtered, Lost, QueueFull, Refused,
    ];
    let dropped = dropped.map(|reason| counters.dropped(reason).packets);
    counters.delivered.packets + dropped.iter().sum::<u64>()
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn the_fast_path_and_the_stages_give_the_same_results(
        configuration in plain(),
        arrivals in arrivals(),
    ) {
        let fast = run(&configuration, &arrivals);
        // A step that changes nothing, after the last packet.
        let mut staged = configuration.clone();
        staged.schedule = Schedule {
            steps: vec![Step { at: span("24 h"), ..Step::default() }],
            repeat: None,
        };
        let is_fixed = |configuration| {
            let parts = build::<Numbered>(configuration, STREAMS).unwrap();
            matches!(parts.body, Body::Fixed(_))
        };
        prop_assert!(is_fixed(&configuration) && !is_fixed(&staged));
        prop_assert_eq!(fast, run(&staged, &arrivals));
    }

    /// A packet that is lost after its transmission leaves the link later than one that finds the queue full
    /// meanwhile, and earlier than the packets before it arrive.
    #[test]
    fn deliveries_and_drops_of_the_fast_path_come_in_order_of_time(
        mut configuration in plain(),
        arrivals in arrivals(),
        is_compressed in any::<bool>(),
        late in any::<bool>(),
    ) {
        configuration.header_compression = is_compressed;
        let times = times(&configuration, &arrivals, late);
        prop_assert!(times.is_sorted(), "{:?}", times);
    }

    #[test]
    fn every_packet_comes_out_once_whatever_the_queue(
        mut configuration in plain(),
        arrivals in arrivals(),
        filter in any::<bool>(),
        first in any::<bool>(),
    ) {
        configuration.queue_discipline = QueueDiscipline {
            filter: filter.then(AckFilter::default),
            first: first.then(|| AckFirst::new(4500)),
            mark_from: None,
        };
        configuration.header_compression = !filter && !first;
        configuration.mtu = None;
        configuration.drops_fragments = false;
        let (events, counters) = run(&configuration, &arrivals);
        let numbers: Vec<u32> = events.iter().map(|(packet, ..)| packet.number).collect();
        let expected: Vec<u32> = (0..).take(arrivals.len()).collect();
        prop_assert_eq!(numbers, expected);
        prop_assert_eq!(counters.handled.packets, arrivals.len() as u64);
        prop_assert_eq!(total(&counters), arrivals.len() as u64);
    }

    #[test]
    fn every_packet_comes_out_once_with_a_managed_queue_a_trace_and_reordering(
        mut configuration in plain(),
        arrivals in arrivals(),
        method in proptest::option::of(
            prop_oneof![Just(Management::CoDel), Just(Management::FqCoDel)],
        ),
        trace in proptest::option::of(proptest::collection::vec(0u32..30, 1..20)),
        later in proptest::option::of(0u64..5_000_000),
        jitter in prop_oneof![Just(0u64), 0u64..3_000_000],
        bytes in proptest::option::of(0u64..20_000),
    ) {
        configuration.mtu = None;
        configuration.drops_fragments = false;
        // Short times, so that CoDel drops packets.
        configuration.queue_management = method.map(|method| QueueManagement {
            target: span("100 us"),
            interval: span("1 ms"),
            ..QueueManagement::new(method)
        });
        if let Some(bytes) = bytes {
            configuration.queue = QueueLimit::Bytes(ByteSize::from_bytes(bytes));
        }
        configuration.trace = trace.map(|mut times| {
            times.push(30);
            times.sort_unstable();
            Trace {
                file: "trace".into(),
                sha256: "".into(),
                opportunities: Opportunities::new(times).map(Arc::new),
            }
        });
        configuration.reordering = later.map(|later| Reordering {
            share: Probability::from_f64(0.2).unwrap(),
            correlation: Probability::from_f64(0.3).unwrap(),
            shift: Shift::Later(TimeSpan::from_nanoseconds(later)),
        });
        configuration.jitter = TimeSpan::from_nanoseconds(jitter);
        let (events, counters) = run(&configuration, &arrivals);
        let numbers: Vec<u32> = events.iter().map(|(packet, ..)| packet.number).collect();
        let expected: Vec<u32> = (0..).take(arrivals.len()).collect();
        prop_assert_eq!(numbers, expected);
        prop_assert_eq!(counters.handled.packets, arrivals.len() as u64);
        prop_assert_eq!(total(&counters), arrivals.len() as u64);
    }
}

#[test]
fn codel_drops_early_behind_the_rate_of_a_link() {
    let configuration = Configuration {
        queue_management: Some(QueueManagement::new(Management::CoDel)),
        ..common::constant("10 Mbit/s", "1 ms", "0 %")
    };
    // 12 Mbit/s for three seconds, with a queue that would hold all of the rest.
    let (events, counters) = run(&configuration, &[(1_000_000, 1500); 3_000]);
    assert!(counters.early.packets > 20, "{counters:?}");
    assert_eq!(counters.queue_full.packets, 0);
    let first = events.iter().find(|(.., reason)| reason.is_some()).unwrap();
    // The queue grows by 2 ms in 12 ms. The packet that leaves at 30 ms is the first one that
    // waited for 5 ms; those that leave 100 ms later and more may be dropped.
    let dropped = first.1.nanoseconds();
    assert!((129_000_000..135_000_000).contains(&dropped), "{dropped}");
}

#[test]
fn a_poll_does_not_delay_a_packet_that_arrived_before_it() {
    let configuration = common::constant("8 Mbit/s", "1 ms", "0 %");
    let mut link = Pipeline::new(&configuration, STREAMS).unwrap();
    let packet = Numbered {
        number: 0,
        size: 1000,
        offset: 0,
        more: false,
    };
    assert_eq!(link.poll(common::ms(10)), None);
    link.handle(common::ms(3), packet);
    let due = common::ms(5);
    assert_eq!(link.poll(due), Some(Output::Delivered { due, packet }));
}

#[test]
fn headers_are_not_compressed_on_a_link_that_changes() {
    let mut configuration = common::constant("8 Mbit/s", "1 ms", "0 %");
    configuration.header_compression = true;
    assert!(build::<Numbered>(&configuration, STREAMS).is_ok());
    configuration.schedule.steps.push(Step::default());
    let error = build::<Numbered>(&configuration, STREAMS).unwrap_err();
    assert_eq!(error, LinkError::Compression);
}

#[test]
fn a_newer_acknowledgement_replaces_an_older_one() {
    let configuration = Configuration {
        queue: QueueLimit::Packets(10),
        queue_discipline: QueueDiscipline {
            filter: Some(AckFilter::default()),
            ..QueueDiscipline::default()
        },
        ..common::constant("320 kbit/s", "0 s", "0 %")
    };
    // The first is sent at once. The second is the first one that the queue sees: it cannot be
    // compared with another, and stays. The fourth replaces the third.
    let (events, counters) = run(&configuration, &[(0, 40), (1, 40), (1, 40), (1, 40)]);
    let fates: Vec<Option<DropReason>> = events.iter().map(|(_, _, reason)| *reason).collect();
    let replaced = Some(DropReason::Filtered);
    assert_eq!(fates, [None, None, replaced, None]);
    assert_eq!(counters.filtered.packets, 1);
}
