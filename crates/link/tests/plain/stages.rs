//! Other stages fit in: a loss model, a queue discipline and a new stage.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use crate::common::*;
use midspan_link::{
    Bernoulli, Chain, Configuration, Delay, DropReason, DropTail, FixedLink, Link, Loss, LossModel,
    Output, Outputs, Packet, Queue, QueueLimit, Schedule, Stage, Transmitter, Verdict,
};
use midspan_units::{Probability, Time, TimeSpan};
use proptest::prelude::*;

/// Loses the packets on a list, counted from 0 in the order in which they are sent.
#[derive(Debug, Clone)]
struct Scripted {
    lost: Vec<u64>,
    sent: u64,
}

impl LossModel for Scripted {
    fn is_lost(&mut self, _now: Time, _size: u32) -> bool {
        self.sent += 1;
        self.lost.contains(&(self.sent - 1))
    }

    fn set_probability(&mut self, _probability: Probability) {}
}

/// Keeps the newest packets: if there is no room, the oldest waiting packet is dropped.
struct DropHead<P> {
    limit: usize,
    waiting: VecDeque<P>,
}

impl<P: Packet> Queue<P> for DropHead<P> {
    fn enqueue(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>) {
        self.waiting.push_back(packet);
        if self.waiting.len() > self.limit
            && let Some(oldest) = self.waiting.pop_front()
        {
            outputs.push_dropped(now, oldest, DropReason::QueueFull);
        }
    }

    fn dequeue(&mut self, _now: Time, _outputs: &mut Outputs<P>) -> Option<P> {
        self.waiting.pop_front()
    }

    fn packets(&self) -> usize {
        self.waiting.len()
    }

    fn bytes(&self) -> u64 {
        self.waiting
            .iter()
            .map(|packet| u64::from(packet.size()))
            .sum()
    }
}

/// Cuts packets into fragments of at most `largest` bytes (headers left out).
struct Fragmenter {
    largest: u32,
    outputs: Outputs<Numbered>,
}

impl Stage<Numbered> for Fragmenter {
    fn handle(&mut self, now: Time, packet: Numbered) {
        let mut left = packet.size;
        while left > 0 {
            let size = left.min(self.largest);
            left -= size;
            let packet = Numbered { size, ..packet };
            self.outputs.push(Output::Delivered { due: now, packet });
        }
    }

    fn poll(&mut self, _now: Time) -> Option<Output<Numbered>> {
        self.outputs.pop()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.outputs.due()
    }

    fn held(&self) -> usize {
        self.outputs.len()
    }
}

#[test]
fn a_scripted_loss_drops_the_same_packets_on_both_paths() {
    let script = Scripted {
        lost: vec![1, 3],
        sent: 0,
    };
    let configuration = Configuration {
        queue: QueueLimit::Packets(3),
        ..constant("10 Mbit/s", "1 ms", "0 %")
    };
    let mut link: Link<Numbered, _, _> = Link::from_stages(
        Transmitter::new(
            DropTail::new(configuration.queue),
            configuration.state.rate,
            configuration.overhead,
        ),
        Loss::new(script.clone()),
        Delay::new(configuration.state.delay),
        Schedule::default(),
    )
    .unwrap();
    let arrivals = [(us(0), 1500); 5];
    let expected = [
        Fate::Delivered(2_200_000),
        Fate::Dropped(2_400_000, DropReason::Lost),
        Fate::Delivered(4_600_000),
        Fate::Dropped(4_800_000, DropReason::Lost),
        Fate::Dropped(0, DropReason::QueueFull),
    ];
    assert_eq!(run(&mut link, &arrivals), expected);

    let mut fixed = FixedLink::with_loss(&configuration, script).unwrap();
    let verdicts =
        arrivals.map(
            |(at, size)| match fixed.handle(at, &Numbered { number: 0, size }) {
                Verdict::Delivered { due } => Fate::Delivered(due.nanoseconds()),
                Verdict::Dropped { due, reason } => Fate::Dropped(due.nanoseconds(), reason),
            },
        );
    assert_eq!(verdicts, expected);
}

#[test]
fn a_queue_may_drop_another_packet_than_the_one_that_arrives() {
    let queue = DropHead {
        limit: 1,
        waiting: VecDeque::new(),
    };
    let mut link = Link::from_stages(
        Transmitter::new(queue, Some("10 Mbit/s".parse().unwrap()), 0),
        Loss::new(Bernoulli::new(Probability::ZERO, loss_stream())),
        Delay::new(TimeSpan::ZERO),
        Schedule::default(),
    )
    .unwrap();
    assert_eq!(
        run(&mut link, &[(us(0), 1500), (us(1), 1500), (us(2), 1500)]),
        [
            Fate::Delivered(1_200_000),
            Fate::Dropped(2_000, DropReason::QueueFull),
            Fate::Delivered(2_400_000),
        ]
    );
}

#[test]
fn a_fragmenter_goes_before_a_link() {
    let fragmenter = Fragmenter {
        largest: 1500,
        outputs: Outputs::default(),
    };
    let link = link(constant("10 Mbit/s", "1 ms", "0 %"));
    let mut chain = Chain::new(fragmenter, link);
    chain.handle(
        us(0),
        Numbered {
            number: 0,
            size: 4000,
        },
    );
    assert_eq!(chain.held(), 3);
    let mut outputs = drain(&mut chain, us(0));
    drive(&mut chain, END, &mut outputs);
    let fragments: Vec<_> = outputs
        .iter()
        .map(|output| (output.due().nanoseconds(), output.packet().size))
        .collect();
    assert_eq!(
        fragments,
        [(2_200_000, 1500), (3_400_000, 1500), (4_200_000, 1000)]
    );
    assert_eq!(chain.second().counters().delivered.packets, 3);
}

#[test]
fn two_links_in_a_row_are_late_for_nobody() {
    let fast = link(constant("10 Mbit/s", "5 ms", "0 %"));
    let slow = link(constant("5 Mbit/s", "7 ms", "0 %"));
    let mut path = Chain::new(fast, slow);
    for number in 0..3 {
        path.handle(us(0), Numbered { number, size: 1500 });
    }
    // The first packet arrives at 6.2 ms at the slow link, which needs 2.4 ms for each packet.
    let fates = by_number(&drain(&mut path, ms(1000)), 3);
    assert_eq!(delivery_times(&fates), [15_600_000, 18_000_000, 20_400_000]);
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_link_is_the_chain_of_its_stages(
        packets in proptest::collection::vec((0u64..2_000_000, 20u32..1500), 1..100),
        rate in 1u64..50,
        loss in 0.0..0.3,
        limit in 0u32..8,
    ) {
        let mut configuration = constant(&format!("{rate} Mbit/s"), "3 ms", "0 %");
        configuration.state.loss = Probability::from_f64(loss).unwrap();
        configuration.queue = QueueLimit::Packets(limit);
        let state = configuration.state;
        let transmitter = Transmitter::new(DropTail::new(configuration.queue), state.rate, 0);
        let loss = Loss::new(Bernoulli::new(state.loss, loss_stream()));
        let mut chain = Chain::new(Chain::new(transmitter, loss), Delay::new(state.delay));
        let mut now = Time::ZERO;
        let arrivals: Vec<_> = packets
            .iter()
            .map(|(gap, size)| {
                now += TimeSpan::from_nanoseconds(*gap);
                (now, *size)
            })
            .collect();
        prop_assert_eq!(run(&mut link(configuration), &arrivals), run(&mut chain, &arrivals));
    }
}
