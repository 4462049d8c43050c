#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_units::Probability;
use proptest::prelude::*;

use super::*;
use crate::loss::Bernoulli;
use crate::queue::DropTail;
use crate::queue::QueueLimit;
use crate::seed::{Direction, stream};

type Medium = PolledMedium<Vec<u8>, DropTail<Vec<u8>>, Bernoulli>;

const MILLISECOND: u64 = 1_000_000;

fn milliseconds(count: u64) -> TimeSpan {
    TimeSpan::from_milliseconds(count)
}

fn at(count: u64) -> Time {
    Time::ZERO + milliseconds(count)
}

/// 800 kbit/s: 100 bytes take a millisecond.
fn configuration() -> PolledConfiguration {
    PolledConfiguration {
        rate: "800 kbit/s".parse().unwrap(),
        poll: milliseconds(1),
        slot: milliseconds(2),
        contention_interval: milliseconds(50),
        confirmation: milliseconds(3),
        polled_for: TimeSpan::from_seconds(5),
        rounds: 10,
    }
}

fn medium(configuration: PolledConfiguration, modems: usize, seed: u64) -> Medium {
    let station = |modem: usize| {
        let draws =
            |purpose: &str| stream(seed, &format!("modem {modem}/{purpose}"), Direction::Up);
        Station::new(
            DropTail::new(QueueLimit::Packets(20)),
            Bernoulli::new(Probability::ZERO, draws("loss")),
            milliseconds(7),
            0,
            draws("contention"),
        )
    };
    Medium::new(configuration, (0..modems).map(station).collect())
}

/// Runs until a time. Returns each output: time in ms, modem, and size or the reason of a drop.
fn run(medium: &mut Medium, until: u64) -> Vec<(f64, usize, Result<u32, DropReason>)> {
    let mut out = Vec::new();
    while let Some(due) = medium.poll_timeout().filter(|due| *due <= at(until)) {
        while let Some((modem, output)) = medium.poll(due) {
            let size = output.packet().size();
            let fate = match &output {
                Output::Delivered { .. } => Ok(size),
                Output::Dropped { reason, .. } => Err(*reason),
            };
            let due = output.due().since(Time::ZERO).nanoseconds() as f64 / MILLISECOND as f64;
            out.push((due, modem, fate));
        }
    }
    out
}

#[test]
fn a_silent_modem_waits_for_a_contention_slot_and_is_then_polled() {
    let mut medium = medium(configuration(), 2, 1);
    medium.handle(at(10), 0, vec![0; 100]);
    medium.handle(at(10), 0, vec![0; 200]);
    // Slots begin at 0, 50, 100, …: the slot at 50 takes 2 ms, the frame 1 ms, propagation 7 ms.
    // Then there is a poll of 1 ms and a frame of 2 ms.
    assert_eq!(
        run(&mut medium, 70),
        [(60.0, 0, Ok(100)), (63.0, 0, Ok(200))]
    );
    assert_eq!(medium.counters().contention_frames, 1);
    assert_eq!(medium.counters().polls, 1);
    assert_eq!(medium.held(), 0);
}

#[test]
fn polls_go_round_and_give_one_frame_each() {
    let mut medium = medium(configuration(), 3, 1);
    for modem in 0..2_u64 {
        medium.handle(
            at(45 * modem),
            usize::try_from(modem).unwrap(),
            vec![0; 100],
        );
    }
    run(&mut medium, 100);
    for modem in [0, 0, 1, 1] {
        medium.handle(at(100), modem, vec![0; 100]);
    }
    // Modem 2 has never sent and is not polled.
    let order: Vec<usize> = run(&mut medium, 140).iter().map(|out| out.1).collect();
    assert!(order == [0, 1, 0, 1] || order == [1, 0, 1, 0], "{order:?}");
}

#[test]
fn after_five_seconds_of_silence_a_modem_must_contend_again() {
    for (silence, contends) in [(4_900, false), (5_100, true)] {
        let mut medium = medium(configuration(), 1, 1);
        medium.handle(at(0), 0, vec![0; 100]);
        let (sent, ..) = run(&mut medium, 20)[0];
        assert!((sent - 10.0).abs() < 1e-9);
        medium.handle(at(3 + silence), 0, vec![0; 100]);
        run(&mut medium, 10_000);
        let frames = medium.counters().contention_frames;
        assert_eq!(frames, 1 + u64::from(contends), "{silence}");
    }
}

#[test]
fn frames_collide_and_come_through_after_a_back_off() {
    let mut medium = medium(configuration(), 2, 3);
    medium.handle(at(1), 0, vec![0; 100]);
    medium.handle(at(1), 1, vec![0; 300]);
    let out = run(&mut medium, 5_000);
    let mut arrived: Vec<_> = out.iter().map(|out| (out.1, out.2)).collect();
    arrived.sort_by_key(|(modem, _)| *modem);
    assert_eq!(arrived, [(0, Ok(100)), (1, Ok(300))]);
    let counters = medium.counters();
    assert!(counters.collisions >= 1, "{counters:?}");
    assert_eq!(counters.contention_frames, 2);
    // Neither could use the slot at 50 ms.
    assert!(out.iter().all(|out| out.0 >= 110.0), "{out:?}");
}

#[test]
fn after_as_many_collisions_as_are_allowed_a_frame_is_discarded() {
    let mut settings = configuration();
    settings.rounds = 1;
    let mut medium = medium(settings, 2, 3);
    medium.handle(at(1), 0, vec![0; 100]);
    medium.handle(at(1), 1, vec![0; 300]);
    // Both: 50 + 2 ms for the slot, 3 ms for the longer frame, 3 ms until the confirmation.
    let discarded = Err(DropReason::Contention);
    assert_eq!(
        run(&mut medium, 5_000),
        [(58.0, 0, discarded), (58.0, 1, discarded)]
    );
    let station = medium.station(0).unwrap();
    assert_eq!(station.counters().contention.packets, 1);
    assert_eq!(station.counters().held_packets(), 0);
}

#[test]
fn a_saturated_channel_carries_what_its_rate_and_the_polls_leave() {
    let mut medium = medium(configuration(), 4, 1);
    for step in 0..10_000_u64 {
        for modem in 0..4 {
            medium.handle(at(step), modem, vec![0; 500]);
        }
        while medium.poll(at(step)).is_some() {}
    }
    let delivered: Vec<u64> = (0..4)
        .map(|modem| medium.station(modem).unwrap().counters().delivered.packets)
        .collect();
    // 10 s of a slot of 2 ms every 50 ms and a bit (8 polls of 6 ms pass between two), and polls
    // of 1 ms with frames of 5 ms.
    let sum: u64 = delivered.iter().sum();
    assert!((1_580..1_610).contains(&sum), "{delivered:?}");
    let (least, most) = (
        delivered.iter().min().unwrap(),
        delivered.iter().max().unwrap(),
    );
    // The modem that got through first had the channel alone for a while.
    assert!(most - least < 60, "{delivered:?}");
}

#[test]
fn the_draws_of_a_modem_never_change() {
    let mut draws = stream(1, "modem/contention", Direction::Up);
    let slots: Vec<u64> = (1..=10).map(|round| back_off(&mut draws, round)).collect();
    assert!(
        slots
            .iter()
            .zip(1..)
            .all(|(slots, round)| *slots < 1 << round)
    );
    let mut again = stream(1, "modem/contention", Direction::Up);
    let same: Vec<u64> = (1..=10).map(|round| back_off(&mut again, round)).collect();
    assert_eq!(slots, same);
}

proptest! {
    /// However late or often the medium is polled, the same packets come out at the same times.
    #[test]
    fn every_packet_comes_out_once_at_its_time(
        mut arrivals in proptest::collection::vec((0..20_000_u64, 0..5_usize, 1..1500_usize), 1..80),
        step in 1..400_u64,
        rounds in 1..11_u32,
        seed in 0..50_u64,
    ) {
        arrivals.sort_unstable();
        let settings = PolledConfiguration { rounds, ..configuration() };
        let (mut exact, mut late) = (medium(settings, 5, seed), medium(settings, 5, seed));
        let [mut one, mut other] = [Vec::new(), Vec::new()];
        for (time, modem, size) in &arrivals {
            while let Some(due) = exact.poll_timeout().filter(|due| *due <= at(*time)) {
                while let Some((modem, output)) = exact.poll(due) {
                    prop_assert!(output.due() <= due);
                    one.push((output.due(), modem, output.packet().len()));
                }
            }
            exact.handle(at(*time), *modem, vec![0; *size]);
            late.handle(at(*time), *modem, vec![0; *size]);
        }
        let end = 20_000 + 400_000;
        while let Some(due) = exact.poll_timeout().filter(|due| *due <= at(end)) {
            while let Some((modem, output)) = exact.poll(due) {
                one.push((output.due(), modem, output.packet().len()));
            }
        }
        for time in (20_000..=end).step_by(usize::try_from(step * 100).unwrap()).chain([end]) {
            while let Some((modem, output)) = late.poll(at(time)) {
                other.push((output.due(), modem, output.packet().len()));
            }
        }
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one.len(), arrivals.len());
        prop_assert_eq!((exact.held(), late.held()), (0, 0));
        prop_assert_eq!(exact.poll_timeout(), None);
        for modem in 0..5 {
            prop_assert_eq!(exact.station(modem).unwrap().counters().held_packets(), 0);
        }
    }
}
