//! The data that arrives from a far server: its rate, and whether the proxy's receive window was the
//! limit.
//!
//! A kernel offers 64 KB at first, and enlarges its window in each round trip. This window grows faster than
//! the flights of a slow start that begins with ten segments, so most servers never fill it. A server that
//! begins with more segments fills it: a second proxy before a satellite link, or a host with a large initial
//! window. The window counts as the limit if at least three quarters of it arrive in a round trip, while the
//! client's leg does not hold the data up.

use midspan_units::{BitRate, Time, TimeSpan};

use crate::LegSample;
use crate::automatic_ahead::LONG_HANDSHAKE;

/// A measurement that took more round trips than this has seen too many windows to compare with one.
const COARSE: u64 = 2;

/// What a session has found out about the data of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// The largest rate over a round trip.
    pub rate: BitRate,
    /// The shortest round trip.
    pub round_trip: TimeSpan,
    /// In a round trip or more, the window was the limit.
    pub is_limited: bool,
}

/// Measures the data of a server, in windows of a round trip. Servers with a shorter round trip than that of
/// a long leg are not measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrivals {
    begun: Option<Reading>,
    largest_window: u64,
    rate: Option<BitRate>,
    is_limited: bool,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Time,
    received: u64,
    /// The advertised window in bytes.
    window: u64,
    /// The leg to the client was slower than this one.
    is_held_up: bool,
}

impl Arrivals {
    /// Takes a reading of the server's leg; `waiting` bytes of its data have not been sent to the client
    /// yet.
    pub(crate) fn handle_sample(&mut self, now: Time, leg: &LegSample, waiting: u64) {
        let round_trip = leg.minimum_round_trip_time;
        let Some(round_trip) = round_trip.filter(|time| *time >= LONG_HANDSHAKE) else {
            return;
        };
        let reading = Reading {
            at: now,
            received: leg.bytes_received.bytes(),
            window: leg.advertised_window,
            is_held_up: waiting > leg.advertised_window / 4,
        };
        let Some(begun) = &mut self.begun else {
            self.begun = Some(reading);
            return;
        };
        begun.is_held_up |= reading.is_held_up;
        let begun = *begun;
        let elapsed = now.since(begun.at);
        if elapsed < round_trip {
            return;
        }
        self.begun = Some(reading);
        // A window that is smaller than an earlier one has data in it that the client does not take.
        let is_open = begun.window > 0 && begun.window >= self.largest_window;
        self.largest_window = self.largest_window.max(begun.window);
        let round_trips = elapsed.nanoseconds() / round_trip.nanoseconds();
        if round_trips >= COARSE {
            return;
        }
        let arrived = reading.received.saturating_sub(begun.received);
        self.rate = self.rate.max(BitRate::from_transfer(arrived, elapsed));
        if is_open && !begun.is_held_up {
            let allowed = u128::from(begun.window) * u128::from(elapsed.nanoseconds())
                / u128::from(round_trip.nanoseconds());
            self.is_limited |= u128::from(arrived) * 4 >= allowed * 3;
        }
    }

    /// The findings; `None` if nothing was measured.
    pub(crate) fn result(&self, leg: &LegSample) -> Option<Arrived> {
        Some(Arrived {
            rate: self.rate?,
            round_trip: leg.minimum_round_trip_time?,
            is_limited: self.is_limited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::ByteSize;

    const ROUND_TRIP: u64 = 600;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn leg(round_trip: u64, received: u64, window: u64) -> LegSample {
        LegSample {
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(round_trip)),
            bytes_received: ByteSize::from_bytes(received),
            advertised_window: window,
            ..LegSample::default()
        }
    }

    /// The result of a transfer of which this much had arrived, and this window was offered, every 600 ms.
    fn result(readings: &[(u64, u64)], round_trip: u64, waiting: u64) -> Option<Arrived> {
        let mut arrivals = Arrivals::default();
        let mut last = LegSample::default();
        for (turn, (received, window)) in (0..).zip(readings) {
            last = leg(round_trip, *received, *window);
            arrivals.handle_sample(at(turn * ROUND_TRIP), &last, waiting);
        }
        arrivals.result(&last)
    }

    /// A sender that fills the windows of a Linux kernel.
    const FILLING: [(u64, u64); 4] = [
        (0, 65_535),
        (65_535, 86_000),
        (151_000, 242_000),
        (393_000, 769_000),
    ];
    /// A slow start from ten segments.
    const SLOW_START: [(u64, u64); 6] = [
        (0, 65_535),
        (14_480, 65_535),
        (43_440, 243_000),
        (101_360, 417_000),
        (217_200, 764_000),
        (448_880, 1_459_000),
    ];

    #[test]
    fn a_server_that_fills_the_window_is_found() {
        let arrived = result(&FILLING, ROUND_TRIP, 0).unwrap();
        assert!(arrived.is_limited);
        // 242,000 bytes in 600 ms.
        assert_eq!(arrived.rate.bits_per_second(), 3_226_666);
        assert_eq!(arrived.round_trip, TimeSpan::from_milliseconds(600));
        assert!(!result(&SLOW_START, ROUND_TRIP, 0).unwrap().is_limited);
    }

    #[test]
    fn a_near_server_is_not_measured() {
        assert_eq!(result(&FILLING, 149, 0), None);
        assert_eq!(result(&FILLING[..1], ROUND_TRIP, 0), None);
    }

    #[test]
    fn a_slow_client_is_not_taken_for_a_small_window() {
        // Data waits for the client.
        let arrived = result(&FILLING, ROUND_TRIP, 300_000).unwrap();
        assert!(!arrived.is_limited);
        // The window shrinks, because the client does not take the data.
        let shrinking = [
            (0, 2_000_000),
            (100_000, 900_000),
            (900_000, 100_000),
            (990_000, 64_000),
        ];
        assert!(!result(&shrinking, ROUND_TRIP, 0).unwrap().is_limited);
        // A kernel that does not report its window.
        assert!(
            !result(&[(0, 0), (900_000, 0)], ROUND_TRIP, 0)
                .unwrap()
                .is_limited
        );
    }

    #[test]
    fn readings_that_are_far_apart_prove_nothing() {
        assert_eq!(result(&FILLING, ROUND_TRIP / 3, 0), None);
        // Readings within a round trip are parts of one measurement.
        let mut arrivals = Arrivals::default();
        for turn in 0..13_u64 {
            let received = turn.div_ceil(6) * 65_535;
            arrivals.handle_sample(at(turn * 100), &leg(ROUND_TRIP, received, 65_535), 0);
        }
        let arrived = arrivals.result(&leg(ROUND_TRIP, 0, 0)).unwrap();
        assert!(arrived.is_limited);
        assert_eq!(arrived.rate.bits_per_second(), 873_800);
    }
}
