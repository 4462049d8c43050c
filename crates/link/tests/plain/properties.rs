//! Properties of every link, whatever its schedule.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use midspan_link::{
    Configuration, Direction, Link, Output, QueueLimit, Schedule, Stage, State, Step, stream,
};
use midspan_units::{BitRate, ByteSize, Probability, Time, TimeSpan};
use proptest::prelude::*;

fn rate() -> impl Strategy<Value = BitRate> {
    (10_000u64..2_000_000_000).prop_map(|rate| BitRate::from_bits_per_second(rate).unwrap())
}

fn delay() -> impl Strategy<Value = TimeSpan> {
    (0u64..20_000_000).prop_map(TimeSpan::from_nanoseconds)
}

fn loss() -> impl Strategy<Value = Probability> {
    (0.0..0.5).prop_map(|loss| Probability::from_f64(loss).unwrap())
}

prop_compose! {
    fn state()(rate in proptest::option::weighted(0.9, rate()), delay in delay(), loss in loss()) -> State {
        State { rate, delay, loss }
    }
}

prop_compose! {
    fn step()(
        at in 0u64..30_000_000,
        rate in proptest::option::of(rate()),
        delay in proptest::option::of(delay()),
        loss in proptest::option::of(loss()),
    ) -> Step {
        Step { at: TimeSpan::from_nanoseconds(at), rate, delay, loss }
    }
}

prop_compose! {
    fn schedule()(
        mut steps in proptest::collection::vec(step(), 0..8),
        repeat in proptest::option::of(30_000_000u64..60_000_000),
    ) -> Schedule {
        steps.sort_by_key(|step| step.at);
        Schedule { steps, repeat: repeat.map(TimeSpan::from_nanoseconds) }
    }
}

prop_compose! {
    fn configuration()(
        state in state(),
        schedule in schedule(),
        overhead in 0u32..50,
        packets in any::<bool>(),
        limit in 0u32..20,
    ) -> Configuration {
        let queue = if packets {
            QueueLimit::Packets(limit)
        } else {
            QueueLimit::Bytes(ByteSize::from_bytes(u64::from(limit) * 1000))
        };
        Configuration { state, queue, overhead, schedule, ..Configuration::default() }
    }
}

/// Arrival times and sizes.
fn arrivals() -> impl Strategy<Value = Vec<(Time, u32)>> {
    let gap = prop_oneof![Just(0u64), 0u64..2_000_000];
    proptest::collection::vec((gap, 20u32..3000), 1..150).prop_map(|packets| {
        let mut now = Time::ZERO;
        packets
            .into_iter()
            .map(|(gap, size)| {
                now += TimeSpan::from_nanoseconds(gap);
                (now, size)
            })
            .collect()
    })
}

/// The highest rate that may be in force; `None`: unlimited.
fn highest_rate(configuration: &Configuration) -> Option<BitRate> {
    let steps = configuration.schedule.steps.iter();
    let highest = steps.filter_map(|step| step.rate).max();
    configuration
        .state
        .rate
        .map(|rate| highest.map_or(rate, |highest| highest.max(rate)))
}

fn lowest_delay(configuration: &Configuration) -> TimeSpan {
    let steps = configuration.schedule.steps.iter();
    let lowest = steps.filter_map(|step| step.delay).min();
    lowest.map_or(configuration.state.delay, |lowest| {
        lowest.min(configuration.state.delay)
    })
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn packets_are_conserved_at_every_moment(
        configuration in configuration(),
        arrivals in arrivals(),
        late in 0u64..10_000_000,
    ) {
        let mut link = link(configuration);
        let (mut delivered, mut dropped) = (0, 0);
        let mut settle = |link: &mut Link<Numbered>, now, handled: usize| {
            for output in drain(link, now) {
                match output {
                    Output::Delivered { .. } => delivered += 1,
                    Output::Dropped { .. } => dropped += 1,
                }
            }
            assert_eq!(handled, delivered + dropped + link.held());
            let counters = link.counters();
            assert_eq!(counters.handled.packets, handled as u64);
            assert_eq!(counters.delivered.packets, delivered as u64);
            assert_eq!(counters.queue_full.packets + counters.lost.packets, dropped as u64);
        };
        for (number, (at, size)) in arrivals.iter().enumerate() {
            link.handle(*at, Numbered { number, size: *size });
            if number % 3 == 0 {
                settle(&mut link, *at + TimeSpan::from_nanoseconds(late), number + 1);
            }
        }
        settle(&mut link, END, arrivals.len());
        prop_assert_eq!(link.held(), 0);
        prop_assert_eq!(link.poll_timeout(), None);
    }

    #[test]
    fn deliveries_keep_the_order_of_arrival(
        configuration in configuration(),
        arrivals in arrivals(),
    ) {
        let mut link = link(configuration);
        let mut outputs = Vec::new();
        for (number, (at, size)) in arrivals.iter().enumerate() {
            drive(&mut link, *at, &mut outputs);
            link.handle(*at, Numbered { number, size: *size });
            outputs.extend(drain(&mut link, *at));
        }
        drive(&mut link, END, &mut outputs);
        let delivered: Vec<(Time, usize)> = outputs
            .iter()
            .filter(|output| matches!(output, Output::Delivered { .. }))
            .map(|output| (output.due(), output.packet().number))
            .collect();
        prop_assert!(delivered.is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1));
        let dropped: Vec<Time> = outputs
            .iter()
            .filter(|output| matches!(output, Output::Dropped { .. }))
            .map(Output::due)
            .collect();
        prop_assert!(dropped.is_sorted());
    }

    #[test]
    fn polling_on_time_or_late_makes_no_difference(
        configuration in configuration(),
        arrivals in arrivals(),
        late in proptest::collection::vec(proptest::option::of(0u64..40_000_000), 150),
    ) {
        let on_time = run(&mut link(configuration.clone()), &arrivals);
        let mut link = link(configuration);
        let mut outputs = Vec::new();
        for (number, (at, size)) in arrivals.iter().enumerate() {
            link.handle(*at, Numbered { number, size: *size });
            let next = arrivals.get(number + 1).map_or(END, |next| next.0);
            if let Some(late) = late[number] {
                let poll = (*at + TimeSpan::from_nanoseconds(late)).min(next);
                outputs.extend(drain(&mut link, poll));
            }
        }
        outputs.extend(drain(&mut link, END));
        prop_assert_eq!(by_number(&outputs, arrivals.len()), on_time);
    }

    #[test]
    fn nothing_is_delivered_too_early(
        configuration in configuration(),
        arrivals in arrivals(),
    ) {
        let rate = highest_rate(&configuration);
        let delay = lowest_delay(&configuration);
        let overhead = configuration.overhead;
        let fates = run(&mut link(configuration), &arrivals);
        for (fate, (at, size)) in fates.iter().zip(&arrivals) {
            let bytes = u64::from(size + overhead);
            let sending = rate.map_or(TimeSpan::ZERO, |rate| rate.transmission_time(bytes));
            if let Fate::Delivered(due) = fate {
                prop_assert!(ns(*due) >= *at + sending + delay);
            }
        }
    }

    #[test]
    fn the_rate_is_never_exceeded_over_any_interval(
        rate in rate(),
        arrivals in arrivals(),
        overhead in 0u32..50,
    ) {
        let configuration = Configuration {
            state: State { rate: Some(rate), ..State::default() },
            overhead,
            ..Configuration::default()
        };
        let fates = run(&mut link(configuration), &arrivals);
        let times = delivery_times(&fates);
        for first in 0..times.len() {
            // The bits that leave after packet `first`, until each later one has left. Times are
            // rounded up to a nanosecond, so an interval may be too short by one nanosecond.
            let mut bits = 0u128;
            for last in first + 1..times.len() {
                bits += u128::from(arrivals[last].1 + overhead) * 8;
                let span = u128::from(times[last] - times[first] + 1);
                prop_assert!(bits * 1_000_000_000 <= span * u128::from(rate.bits_per_second()));
            }
        }
    }

    #[test]
    fn loss_repeats_for_a_seed_and_differs_between_directions(
        arrivals in proptest::collection::vec((Just(Time::ZERO), 20u32..1500), 400),
        seed in any::<u64>(),
    ) {
        let run_with = |direction| {
            let configuration = constant("", "1 ms", "50 %");
            let mut link = Link::new(configuration, stream(seed, "link", direction)).unwrap();
            let fates = run(&mut link, &arrivals);
            (fates, link.counters())
        };
        let up = run_with(Direction::Up);
        prop_assert_eq!(&up, &run_with(Direction::Up));
        prop_assert_ne!(&up.0, &run_with(Direction::Down).0);
        // 400 packets at 50 %: mean 200, standard deviation 10. Six of them, 10⁻⁹.
        prop_assert!(up.1.lost.packets.abs_diff(200) <= 60);
    }
}
