//! The link compared with a model that steps through time nanosecond by nanosecond.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use crate::common::*;
use midspan_link::{Configuration, DropReason, QueueLimit, Schedule, State, Step};
use midspan_units::{BitRate, ByteSize, Probability, Time, TimeSpan};
use proptest::prelude::*;

/// Bits are counted in units of 10⁻⁹: at 1 bit/s, one a nanosecond.
const BIT: u128 = 1_000_000_000;

/// A link as a list of rules, applied once in each nanosecond. Loss is 0 or 1 only.
struct Model<'a> {
    configuration: &'a Configuration,
    state: State,
    waiting: VecDeque<(usize, u32)>,
    /// The packet in transmission, and its remaining work in units of 10⁻⁹ bit.
    sending: Option<(usize, u128)>,
    latest: u64,
    fates: Vec<Option<Fate>>,
}

impl<'a> Model<'a> {
    fn run(configuration: &'a Configuration, arrivals: &[(Time, u32)]) -> Vec<Fate> {
        let mut model = Model {
            configuration,
            state: configuration.state,
            waiting: VecDeque::new(),
            sending: None,
            latest: 0,
            fates: vec![None; arrivals.len()],
        };
        let mut arriving = arrivals.iter().enumerate().peekable();
        for now in 0..10_000_000 {
            if now > 0 {
                model.spend_a_nanosecond(now);
            }
            model.change(now);
            while let Some((number, (_, size))) =
                arriving.next_if(|(_, (at, _))| at.nanoseconds() == now)
            {
                model.arrive(now, number, *size);
            }
            if model.fates.iter().all(Option::is_some) {
                return model.fates.into_iter().flatten().collect();
            }
        }
        panic!("the model does not end");
    }

    fn bits(&self, size: u32) -> u128 {
        u128::from(size + self.configuration.overhead) * 8 * BIT
    }

    /// Sends as much as the rate allows in the nanosecond that ends at `now`.
    fn spend_a_nanosecond(&mut self, now: u64) {
        let mut budget = u128::from(self.state.rate.map_or(0, BitRate::bits_per_second));
        while let Some((number, left)) = self.sending {
            if left > budget {
                self.sending = Some((number, left - budget));
                return;
            }
            budget -= left;
            self.sent(now, number);
            self.sending = self
                .waiting
                .pop_front()
                .map(|(number, size)| (number, self.bits(size)));
        }
    }

    fn sent(&mut self, now: u64, number: usize) {
        self.fates[number] = Some(if self.state.loss == Probability::ONE {
            Fate::Dropped(now, DropReason::Lost)
        } else {
            self.latest = self.latest.max(now + self.state.delay.nanoseconds());
            Fate::Delivered(self.latest)
        });
    }

    /// Applies the steps that are due at exactly `now`.
    fn change(&mut self, now: u64) {
        let Schedule { steps, repeat } = &self.configuration.schedule;
        let since = repeat.map_or(now, |repeat| now % repeat.nanoseconds());
        for step in steps.iter().filter(|step| step.at.nanoseconds() == since) {
            self.state.rate = step.rate.or(self.state.rate);
            self.state.delay = step.delay.unwrap_or(self.state.delay);
            self.state.loss = step.loss.unwrap_or(self.state.loss);
        }
    }

    fn arrive(&mut self, now: u64, number: usize, size: u32) {
        if self.sending.is_none() {
            if self.state.rate.is_none() {
                self.sent(now, number);
            } else {
                self.sending = Some((number, self.bits(size)));
            }
            return;
        }
        let bytes: u32 = self.waiting.iter().map(|(_, size)| size).sum();
        let fits = match self.configuration.queue {
            QueueLimit::Packets(limit) => self.waiting.len() < limit as usize,
            QueueLimit::Bytes(limit) => u64::from(bytes + size) <= limit.bytes(),
        };
        if fits {
            self.waiting.push_back((number, size));
        } else {
            self.fates[number] = Some(Fate::Dropped(now, DropReason::QueueFull));
        }
    }
}

fn rate() -> impl Strategy<Value = BitRate> {
    prop_oneof![
        50_000_000u64..2_000_000_000,
        2_000_000_000u64..100_000_000_000,
        // Several packets in one nanosecond.
        1_000_000_000_000u64..10_000_000_000_000,
    ]
    .prop_map(|rate| BitRate::from_bits_per_second(rate).unwrap())
}

fn delay() -> impl Strategy<Value = TimeSpan> {
    (0u64..3_000).prop_map(TimeSpan::from_nanoseconds)
}

fn loss() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(Probability::ZERO), Just(Probability::ONE)]
}

prop_compose! {
    fn step(latest: u64)(
        at in 0..latest,
        rate in proptest::option::of(rate()),
        delay in proptest::option::of(delay()),
        loss in proptest::option::of(loss()),
    ) -> Step {
        Step { at: TimeSpan::from_nanoseconds(at), rate, delay, loss }
    }
}

/// A schedule that fits into the time of a few packets, or one that repeats (as often as allowed).
fn schedule() -> impl Strategy<Value = Schedule> {
    let once = proptest::collection::vec(step(20_000), 0..12).prop_map(|steps| (steps, None));
    let again = proptest::collection::vec(step(1_000_000), 0..40)
        .prop_map(|steps| (steps, Some(TimeSpan::from_milliseconds(1))));
    prop_oneof![4 => once, 1 => again].prop_map(|(mut steps, repeat)| {
        steps.sort_by_key(|step| step.at);
        Schedule { steps, repeat }
    })
}

prop_compose! {
    fn configuration()(
        rate in proptest::option::weighted(0.9, rate()),
        delay in delay(),
        schedule in schedule(),
        overhead in 0u32..40,
        packets in any::<bool>(),
        limit in 0u32..10,
    ) -> Configuration {
        let queue = if packets {
            QueueLimit::Packets(limit)
        } else {
            QueueLimit::Bytes(ByteSize::from_bytes(u64::from(limit) * 100))
        };
        let state = State { rate, delay, loss: Probability::ZERO };
        Configuration { state, queue, overhead, schedule, ..Configuration::default() }
    }
}

fn arrivals() -> impl Strategy<Value = Vec<(Time, u32)>> {
    let gap = prop_oneof![3 => Just(0u64), 3 => 0u64..5, 6 => 0u64..2_000, 1 => 0u64..500_000];
    proptest::collection::vec((gap, 1u32..300), 1..60).prop_map(|packets| {
        let mut now = 0;
        packets
            .into_iter()
            .map(|(gap, size)| {
                now += gap;
                (ns(now), size)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn the_link_does_what_the_model_does(
        configuration in configuration(),
        arrivals in arrivals(),
    ) {
        let expected = Model::run(&configuration, &arrivals);
        prop_assert_eq!(run(&mut link(configuration), &arrivals), expected);
    }
}
