//! Delivery opportunities: the format of Mahimahi's `mm-link`.

use midspan_units::{BitRate, Time, TimeSpan};

use super::{LOWEST_RATE, Part, TraceError};

/// The longest trace: one day, in milliseconds.
const LONGEST_MILLISECONDS: u32 = 24 * 3600 * 1000;
/// Nanoseconds in a millisecond.
const MILLISECOND: u64 = 1_000_000;

/// The delivery opportunities of a trace, which repeats without end.
///
/// The trace is as long as its last opportunity is late: at that time it begins again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opportunities {
    /// Milliseconds since the start of a repetition, in order; the last is above zero.
    milliseconds: Vec<u32>,
}

/// One of the opportunities of an endless trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    repetition: u64,
    index: usize,
}

impl Opportunities {
    /// Bytes that leave at one opportunity.
    pub const BYTES: u32 = 1504;
    /// Bytes that a packet takes in addition to its size: Mahimahi counts the header of its TUN
    /// devices (`struct tun_pi`), so a packet of 1,500 bytes takes a whole opportunity.
    pub const FRAMING: u32 = 4;

    /// The opportunities at these times; `None` if they are not in order, or if the last one is not
    /// between 1 ms and a day.
    #[must_use]
    pub fn new(milliseconds: Vec<u32>) -> Option<Self> {
        let last = *milliseconds.last()?;
        let valid = milliseconds.is_sorted() && (1..=LONGEST_MILLISECONDS).contains(&last);
        valid.then_some(Self { milliseconds })
    }

    pub(super) fn parse<'a>(lines: impl Iterator<Item = Part<'a>>) -> Result<Self, TraceError> {
        let mut milliseconds: Vec<u32> = Vec::new();
        let mut last = None;
        for line in lines {
            // The library would read a sign, too.
            let digits = line.text.bytes().all(|byte| byte.is_ascii_digit());
            let time = match line.text.parse::<u32>() {
                Ok(time) if digits && time <= LONGEST_MILLISECONDS => time,
                _ if line.text.is_empty() => {
                    let problem = "an empty line: each line is a whole number of milliseconds";
                    return Err(line.error(problem));
                }
                _ if digits => {
                    return Err(line.error("later than 24 h: a trace lasts one day at most"));
                }
                _ => return Err(line.error("not a whole number of milliseconds")),
            };
            if let Some(before) = milliseconds.last().filter(|before| time < **before) {
                let problem = format!("{time} ms, before {before} ms in the line above");
                return Err(line.error(problem));
            }
            milliseconds.push(time);
            last = Some(line);
        }
        Self::new(milliseconds).ok_or_else(|| {
            let problem = "the trace ends at 0 ms: its last time is its length, above zero";
            last.map_or(TraceError::new(0..0, problem), |line| line.error(problem))
        })
    }

    /// The mean rate of full packets: those of 1,500 bytes, one for each opportunity.
    #[must_use]
    pub fn mean_rate(&self) -> BitRate {
        let packets = u64::try_from(self.milliseconds.len()).unwrap_or(u64::MAX);
        let bytes = packets.saturating_mul(u64::from(Self::BYTES - Self::FRAMING));
        let rate = BitRate::from_transfer(bytes, TimeSpan::from_nanoseconds(self.length()));
        // A packet in a day is less than 1 bit/s.
        rate.unwrap_or(LOWEST_RATE)
    }

    /// Nanoseconds from one repetition to the next; never zero.
    fn length(&self) -> u64 {
        let last = self.milliseconds.last().copied().unwrap_or(1);
        u64::from(last.max(1)) * MILLISECOND
    }

    /// When an opportunity comes.
    pub(crate) fn time(&self, position: Position) -> Time {
        let Position { repetition, index } = position;
        let milliseconds = self.milliseconds.get(index).copied().unwrap_or_default();
        let start = TimeSpan::from_nanoseconds(self.length()) * repetition;
        Time::ZERO + start + TimeSpan::from_milliseconds(u64::from(milliseconds))
    }

    /// The first opportunity later than `now`.
    pub(crate) fn after(&self, now: Time) -> Position {
        let length = self.length();
        let repetition = now.nanoseconds() / length;
        let within = now.nanoseconds() % length;
        let passed = |time: &u32| u64::from(*time) * MILLISECOND <= within;
        Position {
            repetition,
            // The last one is at `length`, which is above `within`.
            index: self.milliseconds.partition_point(passed),
        }
    }

    /// The opportunity that follows another one.
    pub(crate) fn next(&self, position: Position) -> Position {
        let Position { repetition, index } = position;
        if index + 1 < self.milliseconds.len() {
            Position {
                repetition,
                index: index + 1,
            }
        } else {
            Position {
                repetition: repetition.saturating_add(1),
                index: 0,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RecordedTrace;
    use super::super::tests::assert_error;
    use super::*;

    #[test]
    fn opportunities_are_read() {
        let expected = Opportunities::new(vec![0, 5, 5, 12]).unwrap();
        for text in [
            "0\n5\n5\n12\n",
            "0\r\n5\r\n5\r\n12",
            "\u{feff}0\n5\n5\n012\n",
        ] {
            let read = RecordedTrace::parse(text).unwrap();
            assert_eq!(
                read,
                RecordedTrace::Opportunities(expected.clone()),
                "{text:?}"
            );
        }
        // Four packets of 1,500 bytes in 12 ms.
        assert_eq!(expected.mean_rate().bits_per_second(), 4_000_000);
        for none in [vec![], vec![0], vec![2, 1], vec![86_400_001]] {
            assert_eq!(Opportunities::new(none), None);
        }
    }

    #[test]
    fn positions_run_through_an_endless_trace() {
        let trace = Opportunities::new(vec![0, 5, 5, 12]).unwrap();
        let mut position = trace.after(Time::ZERO);
        let times: Vec<u64> = (0..8)
            .map(|_| {
                let time = trace.time(position);
                position = trace.next(position);
                time.nanoseconds() / MILLISECOND
            })
            .collect();
        // The opportunity at 0 has passed; the one at 12 and the next one at 0 are at one time.
        assert_eq!(times, [5, 5, 12, 12, 17, 17, 24, 24]);
        for (now, expected) in [
            (4_999_999, 5),
            (5_000_000, 12),
            (12_000_000, 17),
            (24_000_001, 29),
        ] {
            let next = trace.time(trace.after(Time::from_nanoseconds(now)));
            assert_eq!(next.nanoseconds(), expected * MILLISECOND, "after {now} ns");
        }
        let end = Time::from_nanoseconds(u64::MAX);
        assert!(trace.time(trace.next(trace.after(end))) <= end);
    }

    #[test]
    fn mistakes_in_opportunities_have_a_place() {
        assert_error("5\n\n6\n", "", "an empty line");
        assert_error("5\n+6\n", "+6", "not a whole number of milliseconds");
        assert_error("5\n6.0\n", "6.0", "not a whole number of milliseconds");
        assert_error("5\n 6\n", " 6", "not a whole number of milliseconds");
        assert_error("5\n7\n6\n9", "6", "6 ms, before 7 ms");
        assert_error("0\n00\n", "00", "above zero");
        assert_error("1\n86400001\n", "86400001", "24 h");
        assert_error("1\n99999999999999\n", "99999999999999", "24 h");
    }
}
