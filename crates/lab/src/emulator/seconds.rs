//! Arrivals of data at a link, second by second.

use midspan_link::{Bursts, Configuration, Histogram};
use midspan_units::{BitRate, Time, TimeSpan};
use serde::{Deserialize, Serialize};

/// Seconds kept: two hours.
const LIMIT: usize = 7_200;
/// The largest packet that a link carries, in bytes.
const PACKET: u64 = 1_500;

/// The arrivals at a link in one second.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Second {
    /// Lengths of bursts of data in packets. Packets belong to one burst if they arrive no farther
    /// apart than the link takes to send a full packet. Empty if the link has no rate.
    pub bursts: Histogram,
    /// Packets that found no room in the queue.
    pub queue_full: u64,
}

/// The seconds since the last reset.
#[derive(Debug)]
pub(super) struct Seconds {
    seconds: Vec<Second>,
    /// The bursts of the current second.
    bursts: Option<Bursts>,
    gap: TimeSpan,
    last: Time,
}

impl Seconds {
    pub(super) fn new(configuration: &Configuration) -> Self {
        let size = PACKET + u64::from(configuration.overhead);
        let time = |rate: BitRate| rate.transmission_time(size);
        let gap = configuration.state.rate.map(time);
        Self {
            seconds: Vec::new(),
            bursts: gap.map(Bursts::new),
            gap: gap.unwrap_or_default(),
            last: Time::ZERO,
        }
    }

    /// Counts a packet with data.
    pub(super) fn data(&mut self, at: Time) {
        let Some(bursts) = &mut self.bursts else {
            return;
        };
        // Stamps of one interface increase, apart from small differences between the readings of
        // two clocks.
        let at = at.max(self.last);
        if at.since(self.last) > self.gap {
            let second = second(&mut self.seconds, self.last);
            second.bursts.merge(bursts.finish());
            *bursts = Bursts::new(self.gap);
        }
        bursts.handle_segment(at);
        self.last = at;
    }

    /// Counts a packet that found no room in the queue.
    pub(super) fn queue_full(&mut self, at: Time) {
        second(&mut self.seconds, at).queue_full += 1;
    }

    /// All seconds so far.
    pub(super) fn report(&self) -> Vec<Second> {
        let mut seconds = self.seconds.clone();
        if let Some(mut bursts) = self.bursts.clone() {
            second(&mut seconds, self.last)
                .bursts
                .merge(bursts.finish());
        }
        seconds
    }
}

fn second(seconds: &mut Vec<Second>, at: Time) -> &mut Second {
    let place = usize::try_from(at.nanoseconds() / 1_000_000_000).unwrap_or(LIMIT);
    let place = place.min(LIMIT - 1);
    if seconds.len() <= place {
        seconds.resize(place + 1, Second::default());
    }
    &mut seconds[place]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(microseconds: u64) -> Time {
        Time::from_nanoseconds(microseconds * 1000)
    }

    fn seconds(rate: Option<u64>) -> Seconds {
        let mut configuration = Configuration::default();
        configuration.state.rate = rate.and_then(BitRate::from_bits_per_second);
        Seconds::new(&configuration)
    }

    fn lengths(second: &Second) -> Vec<(u64, u64)> {
        second.bursts.iter().collect()
    }

    #[test]
    fn what_comes_faster_than_the_link_sends_is_a_burst_of_the_second_it_ended_in() {
        // One packet takes 120 µs.
        let mut seconds = seconds(Some(100_000_000));
        for microseconds in [10, 20, 140, 261, 1_500_000, 2_000_000, 2_000_100] {
            seconds.data(at(microseconds));
        }
        seconds.queue_full(at(1_000_000));
        let report = seconds.report();
        assert_eq!(lengths(&report[0]), [(1, 1), (3, 1)]);
        assert_eq!(lengths(&report[1]), [(1, 1)]);
        assert_eq!(lengths(&report[2]), [(2, 1)]);
        let drops: Vec<u64> = report.iter().map(|second| second.queue_full).collect();
        assert_eq!(drops, [0, 1, 0]);
        assert_eq!(seconds.report(), report);
    }

    #[test]
    fn a_link_without_a_rate_has_no_bursts() {
        let mut seconds = seconds(None);
        seconds.data(at(1));
        assert_eq!(seconds.report(), []);
    }
}
