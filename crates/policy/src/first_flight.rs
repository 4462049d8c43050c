//! Spreads a first flight that is larger than usual, by pacing it at the input of TCP.
//!
//! The first ten segments leave at once, as from any connection (RFC 6928). The others follow one
//! by one: at the path's rate if that is known, otherwise over half a round trip, but over at most
//! [`LONGEST`]. So the flight is no burst at the rate of the nearest link (Sallantin et al.,
//! *Initial Spreading: a Fast Start-Up TCP Mechanism*, LCN 2013). A flight that would be spread over less than
//! [`SHORTEST`] leaves at once. Spreading ends with this flight, because its ACKs spread what follows.
//!
//! Linux could spread the flight too (`SO_MAX_PACING_RATE`). But Linux never stops pacing a socket that once
//! had this option, and the option would slow the leg at each doubling of slow start.

use midspan_units::{BitRate, TimeSpan};

use crate::InputPacing;
use crate::initial_window::LEAST_WINDOW;

/// Longest time over which a flight is spread while the path is unknown. It is the time that 64 KB,
/// which most clients offer at first, take at about 25 Mbit/s (docs/policies.md).
const LONGEST: TimeSpan = TimeSpan::from_milliseconds(20);

/// A flight that would be spread over less than this is sent at once: timers are late by a large
/// part of it, and so fast or so short a path reports an overload soon anyway.
const SHORTEST: TimeSpan = TimeSpan::from_milliseconds(5);

/// A first flight that is to be spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstFlight {
    /// Its size in segments.
    pub segments: u32,
    /// The rate of its data without headers, where the path is known: delivery rates of the kernel count no headers.
    pub rate: Option<BitRate>,
}

impl FirstFlight {
    /// Whether spreading needs a measured round trip.
    #[must_use]
    pub const fn needs_round_trip(&self) -> bool {
        self.rate.is_none()
    }

    /// The pacing that spreads it, for segments of `segment_size` bytes of data and `header_size`
    /// bytes of headers; `None` if there is nothing to spread.
    #[must_use]
    pub fn pacing(
        &self,
        segment_size: u32,
        header_size: u32,
        round_trip: Option<TimeSpan>,
    ) -> Option<InputPacing> {
        let beyond = self
            .segments
            .checked_sub(LEAST_WINDOW)
            .filter(|it| *it > 0)?;
        let of_size = |size: u32| u64::from(beyond) * u64::from(size);
        let packets = of_size(segment_size) + of_size(header_size);
        let time = match (self.rate, round_trip) {
            (Some(rate), _) => rate.transmission_time(of_size(segment_size)),
            (None, Some(round_trip)) => (round_trip / 2).min(LONGEST),
            (None, None) => LONGEST,
        };
        if time < SHORTEST {
            return None;
        }
        let rate = BitRate::from_transfer(packets, time)?;
        let bytes = |segments| u64::from(segments) * u64::from(segment_size);
        let pacing = InputPacing::new(rate, segment_size, header_size);
        Some(pacing.of_flight(bytes(self.segments), bytes(LEAST_WINDOW)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::Time;

    /// The times at which the segments of a flight leave if all its data is there.
    fn departures(flight: FirstFlight, round_trip: Option<TimeSpan>) -> Vec<TimeSpan> {
        let mut pacing = flight.pacing(1000, 40, round_trip).unwrap();
        pacing.handle_read(1_000_000);
        let (mut now, mut left) = (Time::ZERO, Vec::new());
        while !pacing.is_over() {
            match pacing.poll_chunk(now, u64::MAX) {
                Some(bytes) => {
                    assert_eq!(bytes, 1000);
                    left.push(now.since(Time::ZERO));
                }
                None => now = pacing.poll_timeout().unwrap(),
            }
        }
        left
    }

    #[test]
    fn ten_leave_at_once_and_the_others_over_half_a_round_trip() {
        let flight = FirstFlight {
            segments: 40,
            rate: None,
        };
        let left = departures(flight, Some(TimeSpan::from_milliseconds(30)));
        assert_eq!(left.len(), 40);
        assert!(left[..10].iter().all(|at| *at == TimeSpan::ZERO));
        let gap = TimeSpan::from_nanoseconds(500_000);
        assert!(
            (10..40).all(|index| left[index] == gap * (index as u64 - 9)),
            "{left:?}"
        );
    }

    #[test]
    fn a_long_path_does_not_hold_a_small_flight_back() {
        let flight = FirstFlight {
            segments: 40,
            rate: None,
        };
        for round_trip in [Some(TimeSpan::from_milliseconds(600)), None] {
            let left = departures(flight, round_trip);
            let almost = LONGEST - TimeSpan::from_nanoseconds(1_000);
            assert!(
                left[39] > almost && left[39] <= LONGEST + (LONGEST - almost),
                "{left:?}"
            );
        }
    }

    #[test]
    fn a_known_path_is_filled_at_its_rate() {
        let flight = FirstFlight {
            segments: 320,
            rate: "8 Mbit/s".parse().ok(),
        };
        let left = departures(flight, Some(TimeSpan::from_milliseconds(600)));
        assert_eq!(left[319], TimeSpan::from_milliseconds(310));
    }

    #[test]
    fn on_a_fast_or_short_path_nothing_is_spread() {
        let pacing = |rate: Option<&str>, milliseconds| {
            let rate = rate.map(|rate| rate.parse().unwrap());
            let flight = FirstFlight { segments: 40, rate };
            flight.pacing(1000, 40, Some(TimeSpan::from_milliseconds(milliseconds)))
        };
        assert!(pacing(None, 10).is_some());
        assert_eq!(pacing(None, 9), None);
        // The flight has 30,000 bytes of data beyond the first ten segments.
        assert!(pacing(Some("47 Mbit/s"), 600).is_some());
        assert_eq!(pacing(Some("49 Mbit/s"), 600), None);
    }

    #[test]
    fn what_any_connection_sends_is_not_spread() {
        for segments in [0, 1, 10] {
            let flight = FirstFlight {
                segments,
                rate: None,
            };
            assert_eq!(flight.pacing(1000, 40, None), None);
        }
    }
}
