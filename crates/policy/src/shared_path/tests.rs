use super::*;
use midspan_units::ByteSize;
use proptest::prelude::*;

const STEP: TimeSpan = TimeSpan::from_milliseconds(100);
const LEAST_ROUND_TRIP: TimeSpan = TimeSpan::from_milliseconds(560);

fn client(number: u64) -> IpAddr {
    IpAddr::from([192, 0, 2, u8::try_from(number).unwrap_or(u8::MAX)])
}

fn leg(queue: TimeSpan, acknowledged: u64) -> LegSample {
    LegSample {
        round_trip_time: Some(LEAST_ROUND_TRIP + queue),
        minimum_round_trip_time: Some(LEAST_ROUND_TRIP),
        segment_size: 1448,
        bytes_acknowledged: ByteSize::from_bytes(acknowledged),
        ..LegSample::default()
    }
}

/// Sessions on one link, as a fluid: each sends at the rate of its application or at its bound.
struct Link {
    rate: u64,
    /// The queue that other traffic has caused.
    foreign: TimeSpan,
    /// In bits.
    queued: u64,
    delivered: Vec<u64>,
    bounds: Vec<Option<u64>>,
    now: Time,
}

impl Link {
    fn new(rate: u64, sessions: usize) -> Self {
        Self {
            rate,
            foreign: TimeSpan::ZERO,
            queued: 0,
            delivered: vec![0; sessions],
            bounds: vec![None; sessions],
            now: Time::ZERO,
        }
    }

    fn queue(&self) -> TimeSpan {
        self.foreign + TimeSpan::from_nanoseconds(self.queued * 1_000_000_000 / self.rate)
    }

    /// Lets `seconds` pass, while each session has data for its rate in `wanted` (bit/s).
    fn run(&mut self, paths: &mut SharedPaths, seconds: u64, wanted: &[u64]) {
        for _ in 0..seconds * 10 {
            self.now += STEP;
            let sent: Vec<u64> = wanted
                .iter()
                .zip(&self.bounds)
                .map(|(wanted, bound)| bound.map_or(*wanted, |bound| bound.min(*wanted)) / 10)
                .collect();
            let arrived: u64 = sent.iter().sum();
            let carried = (self.queued + arrived).min(self.rate / 10);
            self.queued = (self.queued + arrived - carried).min(self.rate);
            for (index, sent) in sent.iter().enumerate() {
                self.delivered[index] += sent * carried / arrived.max(1) / 8;
                let number = index as u64;
                let sample = leg(self.queue(), self.delivered[index]);
                let waits = wanted[index] >= 1_000_000;
                let (id, now) = (SessionId(number), self.now);
                let bound =
                    paths.handle_sample(now, client(number), id, &sample, (waits, TimeSpan::ZERO));
                self.bounds[index] = bound.map(BitRate::bits_per_second);
            }
        }
    }

    fn total(&self) -> u64 {
        self.delivered.iter().sum::<u64>() * 8
    }
}

#[test]
fn twenty_keep_the_queue_short_and_the_link_busy_and_get_the_same() {
    let mut paths = SharedPaths::default();
    let mut link = Link::new(20_000_000, 20);
    let wanted = [3_000_000; 20];
    link.run(&mut paths, 15, &wanted);
    let before = link.total();
    for _ in 0..20 {
        link.run(&mut paths, 1, &wanted);
        assert!(link.queue() < LEAST_ROUND_TRIP / 4, "{}", link.queue());
    }
    let carried = link.total() - before;
    assert!(carried > 20 * 19_500_000, "{carried}");
    let (least, most) = (link.delivered.iter().min(), link.delivered.iter().max());
    assert!(most.unwrap() - least.unwrap() < most.unwrap() / 10);
}

#[test]
fn what_one_does_not_use_is_for_the_others() {
    let mut paths = SharedPaths::default();
    let mut link = Link::new(20_000_000, 3);
    link.run(&mut paths, 20, &[30_000_000, 30_000_000, 2_000_000]);
    let before = link.delivered.clone();
    link.run(&mut paths, 10, &[30_000_000, 30_000_000, 2_000_000]);
    let rate = |index: usize| (link.delivered[index] - before[index]) * 8 / 10;
    assert!(rate(2) > 1_800_000, "{}", rate(2));
    assert!(rate(0) > 8_000_000 && rate(1) > 8_000_000);
}

#[test]
fn a_link_that_becomes_faster_is_found_out() {
    let mut paths = SharedPaths::default();
    let mut link = Link::new(10_000_000, 4);
    let wanted = [20_000_000; 4];
    link.run(&mut paths, 20, &wanted);
    link.rate = 20_000_000;
    link.run(&mut paths, 60, &wanted);
    let before = link.total();
    link.run(&mut paths, 10, &wanted);
    let carried = link.total() - before;
    assert!(carried > 190_000_000, "{carried}");
}

#[test]
fn one_alone_is_not_held_back() {
    let mut paths = SharedPaths::default();
    let mut link = Link::new(20_000_000, 2);
    link.run(&mut paths, 20, &[30_000_000, 1000]);
    assert_eq!(link.bounds, [None, None]);
}

#[test]
fn sessions_of_which_one_sees_no_queue_do_not_share_it() {
    let mut paths = SharedPaths::default();
    let mut now = Time::ZERO;
    for turn in 0..100_u64 {
        now += STEP;
        for (number, queue) in [(1, 500), (2, 0), (3, 400)] {
            let sample = leg(TimeSpan::from_milliseconds(queue), turn * 100_000);
            let bound = paths.handle_sample(
                now,
                client(number),
                SessionId(number),
                &sample,
                (true, TimeSpan::ZERO),
            );
            assert_eq!(bound, None);
        }
    }
}

#[test]
fn a_queue_of_somebody_else_ends_it() {
    let mut paths = SharedPaths::default();
    let mut link = Link::new(20_000_000, 4);
    link.foreign = LEAST_ROUND_TRIP;
    let wanted = [4_000_000; 4];
    let mut free = 0;
    for _ in 0..60 {
        link.run(&mut paths, 1, &wanted);
        free += usize::from(link.bounds.iter().all(Option::is_none));
    }
    assert!(free > 30, "free in {free} of 60 seconds");
}

#[test]
fn one_that_began_behind_the_queue_and_sees_none_does_not_hide_it() {
    let mut paths = SharedPaths::default();
    let mut bound = None;
    for turn in 0..200_u64 {
        let now = Time::ZERO + STEP * turn;
        let old = leg(TimeSpan::from_milliseconds(400), turn * 100_000);
        bound = paths.handle_sample(now, client(1), SessionId(1), &old, (true, TimeSpan::ZERO));
        if turn > 150 {
            let young = leg(TimeSpan::ZERO, turn * 10_000);
            paths.handle_sample(now, client(2), SessionId(2), &young, (true, TimeSpan::ZERO));
        }
    }
    assert!(bound.is_some());
}

#[test]
fn a_session_that_has_ended_is_forgotten() {
    let mut paths = SharedPaths::default();
    for number in 1..4 {
        let sample = leg(TimeSpan::ZERO, 0);
        let id = SessionId(number);
        paths.handle_sample(
            Time::ZERO,
            client(number),
            id,
            &sample,
            (true, TimeSpan::ZERO),
        );
    }
    assert_eq!(paths.len(), 1);
    (1..4).for_each(|number| paths.forget(client(number), SessionId(number)));
    assert!(paths.is_empty());
}

proptest! {
    #[test]
    fn any_readings_give_bounds_above_zero(
        readings in prop::collection::vec(
            (0_u64..6, 0_u64..u64::MAX, 0_u64..u64::MAX, 1_u64..u64::MAX, any::<bool>(), 0_u64..5000),
            1..200),
    ) {
        let mut paths = SharedPaths::default();
        let mut now = Time::ZERO;
        for (number, acknowledged, time, least, waits, later) in readings {
            now += TimeSpan::from_milliseconds(later);
            let sample = LegSample {
                round_trip_time: Some(TimeSpan::from_nanoseconds(time)),
                minimum_round_trip_time: Some(TimeSpan::from_nanoseconds(least)),
                ..leg(TimeSpan::ZERO, acknowledged)
            };
            let bound = paths.handle_sample(now, client(number), SessionId(number), &sample, (waits, TimeSpan::ZERO));
            prop_assert!(bound.is_none_or(|bound| bound.bits_per_second() >= LEAST));
        }
    }

    #[test]
    fn a_longer_queue_never_raises_the_rate(queue in 0_u64..10 * ONE, longer in 0_u64..ONE) {
        prop_assert!(gain(queue + longer) <= gain(queue));
        prop_assert!((DRAINING_GAIN..=FILLING_GAIN).contains(&gain(queue)));
    }
}
