//! The exact arithmetic of sending at a rate.
//!
//! Work is counted in units of 10⁻⁹ bit: a transmitter of r bit/s does r units in a nanosecond. A
//! transmission rarely ends on a whole nanosecond. The packet leaves at the end of the nanosecond
//! in which its last bit is sent. What the transmitter could still do in that nanosecond is kept
//! for the next waiting packet, so that rounding errors never add up: n packets back to back leave
//! n·bits/rate after the first one started, rounded up once.

use midspan_units::{BitRate, Time, TimeSpan};

/// The work to send `bytes`.
pub(crate) fn of_bytes(bytes: u64) -> u128 {
    u128::from(bytes) * 8_000_000_000
}

/// The work done in `span` at `rate`.
pub(crate) fn done_in(span: TimeSpan, rate: BitRate) -> u128 {
    u128::from(span.nanoseconds()) * u128::from(rate.bits_per_second())
}

/// The end of a transmission, and the start of the next one if a packet waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// The time, rounded up to a nanosecond.
    pub(crate) at: Time,
    /// Work that the transmitter could have done by then in addition to that transmission.
    pub(crate) spare: u64,
}

impl Moment {
    /// A start without spare work.
    pub(crate) const fn rest(at: Time) -> Self {
        Self { at, spare: 0 }
    }

    /// This moment, later by `span`.
    #[inline]
    pub(crate) fn later(self, span: TimeSpan) -> Self {
        Self {
            at: self.at + span,
            ..self
        }
    }

    /// When `work` begun at this moment ends at `rate`; `None`: unlimited rate.
    pub(crate) fn after(self, work: u128, rate: Option<BitRate>) -> Self {
        let Some(rate) = rate else {
            return Self::rest(self.at);
        };
        let rate = rate.bits_per_second();
        let Some(missing) = work.checked_sub(u128::from(self.spare)) else {
            // Less than `spare`, so it fits.
            let spare = self.spare - u64::try_from(work).unwrap_or(self.spare);
            return Self { at: self.at, spare };
        };
        // 64 bits are enough for every packet up to 2 GB, and much faster.
        let (whole, rest) = match u64::try_from(missing) {
            Ok(missing) => (missing / rate, missing % rate),
            Err(_) => wide_division(missing, rate),
        };
        end(self.at, whole, rest, rate)
    }
}

/// The work of one packet, divided by the rate only once: most packets have the size of the
/// previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Transmission {
    /// Bytes on the wire; zero before the first packet.
    bytes: u64,
    /// Whole nanoseconds of the transmission.
    whole: u64,
    /// The remaining work; less than the rate.
    rest: u64,
    /// When the transmission would end if it began at time zero without spare work.
    from_rest: Moment,
}

impl Transmission {
    /// When `bytes` begun at `start` end at `rate`: the same result as [`Moment::after`], without a
    /// division if the previous packet had the same number of bytes.
    #[inline]
    pub(crate) fn end(&mut self, start: Moment, bytes: u64, rate: BitRate) -> Moment {
        let per_nanosecond = rate.bits_per_second();
        if self.bytes != bytes {
            let work = of_bytes(bytes);
            let (whole, rest) = match u64::try_from(work) {
                Ok(work) => (work / per_nanosecond, work % per_nanosecond),
                Err(_) => wide_division(work, per_nanosecond),
            };
            *self = Self {
                bytes,
                whole,
                rest,
                from_rest: end(Time::ZERO, whole, rest, per_nanosecond),
            };
        }
        if start.spare == 0 {
            return self.from_rest.later(start.at.since(Time::ZERO));
        }
        // whole · rate + rest − spare, with spare < rate.
        let (whole, rest) = if self.rest >= start.spare {
            (self.whole, self.rest - start.spare)
        } else if self.whole > 0 {
            (self.whole - 1, per_nanosecond - (start.spare - self.rest))
        } else {
            // Less than `spare`, so it fits.
            let spare = start.spare - self.rest;
            return Moment {
                at: start.at,
                spare,
            };
        };
        end(start.at, whole, rest, per_nanosecond)
    }
}

/// The end of a transmission that takes `whole` nanoseconds and the time for `rest` units of work.
/// If `rest` is not 0, the transmitter could do more in its last nanosecond: the spare work.
#[inline]
fn end(start: Time, whole: u64, rest: u64, per_nanosecond: u64) -> Moment {
    let (span, spare) = if rest == 0 {
        (whole, 0)
    } else {
        (whole.saturating_add(1), per_nanosecond - rest)
    };
    Moment {
        at: start + TimeSpan::from_nanoseconds(span),
        spare,
    }
}

#[cold]
fn wide_division(dividend: u128, divisor: u64) -> (u64, u64) {
    let divisor = u128::from(divisor);
    let whole = u64::try_from(dividend / divisor).unwrap_or(u64::MAX);
    let rest = u64::try_from(dividend % divisor).unwrap_or(u64::MAX);
    (whole, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(bits_per_second: u64) -> Option<BitRate> {
        BitRate::from_bits_per_second(bits_per_second)
    }

    #[test]
    fn a_full_packet_at_ten_megabits_takes_1200_microseconds() {
        let end = Moment::rest(Time::ZERO).after(of_bytes(1500), rate(10_000_000));
        assert_eq!(end, Moment::rest(Time::from_nanoseconds(1_200_000)));
    }

    #[test]
    fn rounding_never_adds_up() {
        // 64 bytes at 10 Gbit/s take 51.2 ns: one takes 52, five take 256.
        let mut end = Moment::rest(Time::ZERO);
        let ends: Vec<u64> = (0..5)
            .map(|_| {
                end = end.after(of_bytes(64), rate(10_000_000_000));
                end.at.nanoseconds()
            })
            .collect();
        assert_eq!(ends, [52, 103, 154, 205, 256]);
        assert_eq!(end.spare, 0);
    }

    #[test]
    fn several_packets_may_leave_in_one_nanosecond() {
        // 1 byte at 32 Gbit/s takes a quarter of a nanosecond.
        let mut end = Moment::rest(Time::ZERO);
        let ends: Vec<u64> = (0..6)
            .map(|_| {
                end = end.after(of_bytes(1), rate(32_000_000_000));
                end.at.nanoseconds()
            })
            .collect();
        assert_eq!(ends, [1, 1, 1, 1, 2, 2]);
    }

    proptest! {
        #[test]
        fn a_transmission_that_is_remembered_ends_when_one_that_is_computed_does(
            rate in prop_oneof![1_u64..1000, 1_000_000_u64..100_000_000, any::<u64>()],
            sizes in proptest::collection::vec(prop_oneof![Just(1500_u64), 1_u64..9000], 1..50),
        ) {
            let rate = BitRate::from_bits_per_second(rate.max(1)).unwrap();
            let mut known = Transmission::default();
            let mut ends = [Moment::rest(Time::ZERO); 2];
            for bytes in sizes {
                ends[0] = ends[0].after(of_bytes(bytes), Some(rate));
                ends[1] = known.end(ends[1], bytes, rate);
                prop_assert_eq!(ends[0], ends[1]);
            }
        }
    }

    #[test]
    fn the_largest_packet_at_the_lowest_rate_is_exact() {
        let bytes = 2 * u64::from(u32::MAX);
        let end = Moment::rest(Time::ZERO).after(of_bytes(bytes), rate(1));
        // 68.7·10⁹ s are more than 584 years: never.
        assert_eq!(end.at, Time::from_nanoseconds(u64::MAX));
        let end = Moment::rest(Time::ZERO).after(of_bytes(bytes), rate(8_000_000_000));
        assert_eq!(end, Moment::rest(Time::from_nanoseconds(bytes)));
    }
}
