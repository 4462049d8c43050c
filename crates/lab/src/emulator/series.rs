//! The queue and the rate of one direction over time.

use midspan_link::{RateMeter, RateSample, Waiting};
use midspan_units::{Time, TimeSpan};

/// Samples kept of a queue, and of a rate.
const LIMIT: usize = 500_000;

/// How full a queue was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSample {
    /// When the packet arrived that found most packets in its interval, since the start of the run.
    pub at: Time,
    /// The packets that waited then, with this packet if it had to wait.
    pub waiting: Waiting,
}

/// The series of one direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectionSeries {
    /// The queue: at most one sample in each interval, of the arrival at which most packets waited.
    pub queue: Vec<QueueSample>,
    /// The rate of the packets that come out of the link, by the times at which they are due.
    pub rate: Vec<RateSample>,
    /// Samples that found no room.
    pub left_out: u64,
}

/// Collects the series of one direction. The emulator's thread pays a comparison for each packet, and
/// one entry of a list for each interval.
#[derive(Debug)]
pub(super) struct Series {
    interval: TimeSpan,
    /// The fullest queue of the present interval.
    fullest: Option<QueueSample>,
    meter: RateMeter,
    made: DirectionSeries,
}

impl Series {
    /// Queues in intervals of `interval`, rates in intervals of `rate_interval`.
    pub(super) fn new(interval: TimeSpan, rate_interval: TimeSpan) -> Self {
        Self {
            interval: interval.max(TimeSpan::from_nanoseconds(1)),
            fullest: None,
            meter: RateMeter::new(rate_interval),
            made: DirectionSeries::default(),
        }
    }

    /// A packet has arrived; `waiting` includes it.
    pub(super) fn arrived(&mut self, at: Time, waiting: Waiting) {
        let number = |at: Time| at.nanoseconds() / self.interval.nanoseconds();
        match &mut self.fullest {
            Some(fullest) if number(fullest.at) == number(at) => {
                if waiting.packets > fullest.waiting.packets {
                    *fullest = QueueSample { at, waiting };
                }
            }
            before => {
                let ended = before.replace(QueueSample { at, waiting });
                keep(&mut self.made.queue, ended, &mut self.made.left_out);
            }
        }
    }

    /// A packet of `size` bytes is due at the far end.
    pub(super) fn delivered(&mut self, due: Time, size: u32) {
        let DirectionSeries { rate, left_out, .. } = &mut self.made;
        self.meter
            .add(due, size, |sample| keep(rate, Some(sample), left_out));
    }

    /// The series.
    pub(super) fn finish(mut self) -> DirectionSeries {
        let DirectionSeries {
            queue,
            rate,
            left_out,
        } = &mut self.made;
        keep(queue, self.fullest, left_out);
        self.meter
            .finish(|sample| keep(rate, Some(sample), left_out));
        self.made
    }
}

fn keep<T>(samples: &mut Vec<T>, sample: Option<T>, left_out: &mut u64) {
    let Some(sample) = sample else {
        return;
    };
    if samples.len() < LIMIT {
        samples.push(sample);
    } else {
        *left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::from_nanoseconds(milliseconds * 1_000_000)
    }

    fn waiting(packets: usize) -> Waiting {
        Waiting {
            packets,
            bytes: packets as u64 * 1500,
        }
    }

    fn series() -> Series {
        let span = TimeSpan::from_milliseconds;
        Series::new(span(10), span(100))
    }

    #[test]
    fn an_interval_has_its_fullest_queue() {
        let mut series = series();
        for (milliseconds, packets) in [(1, 2), (4, 7), (9, 3), (10, 0), (35, 1)] {
            series.arrived(at(milliseconds), waiting(packets));
        }
        let queue = series.finish().queue;
        let found: Vec<_> = queue
            .iter()
            .map(|one| (one.at.nanoseconds() / 1_000_000, one.waiting.packets))
            .collect();
        assert_eq!(found, [(4, 7), (10, 0), (35, 1)]);
    }

    #[test]
    fn the_rate_is_that_of_the_due_times() {
        let mut series = series();
        series.delivered(at(20), 1500);
        series.delivered(at(120), 3000);
        let rates = series.finish().rate;
        let found: Vec<u64> = rates.iter().map(|one| one.bits_per_second).collect();
        assert_eq!(found, [120_000, 240_000]);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (mut full, mut left_out) = (vec![0; LIMIT], 0);
        keep(&mut full, Some(1), &mut left_out);
        keep(&mut full, None, &mut left_out);
        assert_eq!((full.len(), left_out), (LIMIT, 1));
    }
}
