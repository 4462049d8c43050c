//! Spreading a first flight that is larger than usual, by whoever writes it.
//!
//! Ten segments leave at once, as from any connection (RFC 6928); what is beyond them follows one by
//! one: where the path is known, at its rate; else over half a round trip and at most [`LONGEST`], so
//! that the flight is no burst at the rate of the nearest link (Sallantin et al., *Initial Spreading:
//! a Fast Start-Up TCP Mechanism*, LCN 2013). With this flight it ends: the ACKs that it brings
//! spread what follows. Linux could do it (`SO_MAX_PACING_RATE`), but never stops pacing a socket
//! that was ever told to, and holds a slow start back by it at each doubling.

use midspan_units::{BitRate, TimeSpan};

use crate::InputPacing;
use crate::learned_start::LEAST_WINDOW;

/// What a flight is spread over at most where nothing is known of the path: the 64 KB
/// that most clients offer at first, at about 20 Mbit/s.
const LONGEST: TimeSpan = TimeSpan::from_milliseconds(20);

/// What would be spread over less leaves at once: timers are late by a good part of that, and the
/// path has as fast a rate or as short a way to say that it was too much.
const SHORTEST: TimeSpan = TimeSpan::from_milliseconds(5);

/// A first flight to be spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstFlight {
    /// Its segments.
    pub segments: u32,
    /// The rate at which it leaves, where the path is known.
    pub rate: Option<BitRate>,
}

impl FirstFlight {
    /// Whether a round trip has to be known to spread it.
    #[must_use]
    pub const fn needs_round_trip(&self) -> bool {
        self.rate.is_none()
    }

    /// What carries it out, with segments of so many bytes of data and of headers; `None` where there
    /// is nothing to spread.
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
        let packets = u64::from(beyond) * (u64::from(segment_size) + u64::from(header_size));
        let (rate, time) = match self.rate {
            Some(rate) => (rate, rate.transmission_time(packets)),
            None => {
                let time = round_trip.map_or(LONGEST, |time| (time / 2).min(LONGEST));
                (BitRate::from_transfer(packets, time)?, time)
            }
        };
        if time < SHORTEST {
            return None;
        }
        let bytes = |segments| u64::from(segments) * u64::from(segment_size);
        let pacing = InputPacing::new(rate, segment_size, header_size);
        Some(pacing.of_flight(bytes(self.segments), bytes(LEAST_WINDOW)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::Time;

    /// When the segments of a flight leave whose data is all there.
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
            rate: "8.32 Mbit/s".parse().ok(),
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
        // 31,200 bytes.
        assert!(pacing(Some("49 Mbit/s"), 600).is_some());
        assert_eq!(pacing(Some("50 Mbit/s"), 600), None);
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
