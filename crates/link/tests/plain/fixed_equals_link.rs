//! The fast path gives the same results as the general one.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use midspan_link::{
    Configuration, Direction, FixedLink, Link, QueueLimit, Stage, State, Verdict, stream,
};
use midspan_units::{BitRate, ByteSize, Probability, Time, TimeSpan};
use proptest::prelude::*;

fn rates() -> impl Strategy<Value = Option<BitRate>> {
    prop_oneof![
        1 => Just(None),
        3 => (1u64..2_000).prop_map(|kilobits| BitRate::from_bits_per_second(kilobits * 10_000)),
        2 => (1_000_000u64..40_000_000_000).prop_map(BitRate::from_bits_per_second),
        // A rate so high that several packets leave in one nanosecond.
        1 => (1u64 << 40..u64::MAX).prop_map(BitRate::from_bits_per_second),
    ]
}

fn queues() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        (0u32..12).prop_map(QueueLimit::Packets),
        (0u64..12_000).prop_map(|bytes| QueueLimit::Bytes(ByteSize::from_bytes(bytes))),
    ]
}

prop_compose! {
    fn configurations()(
        rate in rates(),
        delay in prop_oneof![Just(0), 0u64..5_000, 0u64..20_000_000],
        loss in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
        queue in queues(),
        overhead in 0u32..60,
    ) -> Configuration {
        Configuration {
            state: State {
                rate,
                delay: TimeSpan::from_nanoseconds(delay),
                loss: Probability::from_f64(loss).unwrap(),
            },
            queue,
            overhead,
            ..Configuration::default()
        }
    }
}

/// For each packet: the time since the previous one, its size, and whether and how long after its
/// arrival the link is polled.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32, Option<u64>)>> {
    let gap = prop_oneof![
        4 => Just(0u64), // bursts at the same instant
        2 => 0u64..3,
        3 => 0u64..3_000,
        3 => 0u64..3_000_000,
    ];
    let size = prop_oneof![Just(40u32), Just(1500), 0u32..4_000];
    let poll = proptest::option::of(prop_oneof![Just(0u64), 0u64..2_000_000]);
    proptest::collection::vec((gap, size, poll), 1..120)
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn same_packets_order_times_and_drops(
        configuration in configurations(),
        arrivals in arrivals(),
        seed in any::<u64>(),
    ) {
        let loss = || stream(seed, "link", Direction::Up);
        let mut fixed = FixedLink::new(&configuration, loss()).unwrap();
        let mut link = Link::new(configuration, loss()).unwrap();
        let mut now = Time::ZERO;
        let (mut expected, mut outputs) = (Vec::new(), Vec::new());
        for (number, (gap, size, poll)) in arrivals.iter().enumerate() {
            now += TimeSpan::from_nanoseconds(*gap);
            let packet = Numbered { number, size: *size };
            expected.push(match fixed.handle(now, &packet) {
                Verdict::Delivered { due } => Fate::Delivered(due.nanoseconds()),
                Verdict::Dropped { due, reason } => Fate::Dropped(due.nanoseconds(), reason),
            });
            link.handle(now, packet);
            if let Some(wait) = poll {
                now += TimeSpan::from_nanoseconds(*wait);
                outputs.extend(drain(&mut link, now));
            }
        }
        outputs.extend(drain(&mut link, END));
        prop_assert_eq!(&by_number(&outputs, arrivals.len()), &expected);

        let delivered = |fate: &Fate| matches!(fate, Fate::Delivered(_));
        let link_order: Vec<usize> = outputs
            .iter()
            .filter(|output| delivered(&fate(output)))
            .map(|output| output.packet().number)
            .collect();
        let fixed_order: Vec<usize> = (0..expected.len())
            .filter(|number| delivered(&expected[*number]))
            .collect();
        prop_assert_eq!(link_order, fixed_order);
        prop_assert_eq!(link.counters(), fixed.counters());
    }
}

#[test]
fn a_schedule_is_refused() {
    let mut configuration = constant("10 Mbit/s", "1 ms", "0 %");
    configuration.schedule.steps.push(step("1 s"));
    let error = FixedLink::new(&configuration, loss_stream()).unwrap_err();
    assert_eq!(error.steps, 1);
}

#[test]
fn the_verdict_is_worked_out_by_hand() {
    let configuration = Configuration {
        queue: QueueLimit::Packets(1),
        ..constant("10 Mbit/s", "250 ms", "0 %")
    };
    let mut link = FixedLink::new(&configuration, loss_stream()).unwrap();
    let mut handle = |at| match link.handle(
        at,
        &Numbered {
            number: 0,
            size: 1500,
        },
    ) {
        Verdict::Delivered { due } => Some(due.nanoseconds()),
        Verdict::Dropped { .. } => None,
    };
    let verdicts = [us(0), us(0), us(1199), us(1200), us(9000)].map(&mut handle);
    assert_eq!(
        verdicts,
        [
            Some(251_200_000),
            Some(252_400_000),
            None,
            Some(253_600_000),
            Some(260_200_000)
        ]
    );
}
