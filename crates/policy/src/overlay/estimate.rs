//! What is known of a leg between two nodes, in the direction of its sender.

use midspan_model::response::Response;
use midspan_units::{BitRate, Time, TimeSpan};

use super::loss::LossEstimate;
use super::rate::RateEstimate;
use super::round_trip::RoundTripEstimate;
use crate::congestion::{BBR, CUBIC};

/// Above this multiple of the smallest round trip of a connection, in halves, its losses come from its
/// own queue: another route would have its queue too.
const QUEUE_HALVES: u64 = 3;
/// A shorter delay is no queue: on a short leg, hosts that are busy for a moment delay ACKs by as much.
const LEAST_QUEUE: TimeSpan = TimeSpan::from_milliseconds(1);

/// After this time without a handshake or an exchange, the smallest round trip of a session counts.
const UNSAMPLED: TimeSpan = TimeSpan::from_seconds(20);

/// The congestion control of a leg's sender, as far as it matters for its response to loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Congestion {
    /// Reno, and all others that halve their window.
    Reno,
    /// CUBIC: what a sender has of which nothing is known.
    #[default]
    Cubic,
    /// BBR.
    Bbr,
}

impl Congestion {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reno, Self::Cubic, Self::Bbr];

    /// The one with this kernel name. Others count as Reno, which is the most careful prediction.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        match name {
            CUBIC => Self::Cubic,
            BBR => Self::Bbr,
            _ => Self::Reno,
        }
    }

    /// The kernel's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => CUBIC,
            Self::Bbr => BBR,
        }
    }

    /// Its response to loss.
    pub(super) const fn response(self) -> Response {
        match self {
            Self::Reno => Response::Reno,
            Self::Cubic => Response::Cubic,
            Self::Bbr => Response::Bbr,
        }
    }
}

/// What a sender has measured on one connection since its reading before, by `TCP_INFO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegReading {
    /// Smoothed and smallest round trip of the connection.
    pub round_trip: Option<TimeSpan>,
    /// The smallest one.
    pub least_round_trip: Option<TimeSpan>,
    /// Segments with data that were sent, those sent again included.
    pub sent: u64,
    /// Segments that were sent again.
    pub lost: u64,
    /// The newest delivery rate.
    pub rate: Option<BitRate>,
    /// The sender had not enough data for a higher rate.
    pub is_application_limited: bool,
    /// The congestion control.
    pub congestion: Congestion,
}

/// What is known of a leg between two nodes, in the direction of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LegEstimate {
    /// Its round trip.
    pub round_trip: RoundTripEstimate,
    /// Its loss.
    pub loss: LossEstimate,
    /// Its rate.
    pub rate: RateEstimate,
    /// The congestion control of its newest connection.
    pub congestion: Congestion,
}

impl LegEstimate {
    /// Takes a reading of one of the leg's connections. Its smoothed round trip is no sample: it contains
    /// the queue that the connection itself has built up. Its smallest one is used if there is nothing
    /// better, as with a node that only sends hops.
    pub fn note(&mut self, now: Time, reading: &LegReading) {
        self.congestion = reading.congestion;
        let is_old = |at: Time| now.since(at) >= UNSAMPLED;
        if let Some(least) = reading.least_round_trip
            && self.round_trip.noted().is_none_or(is_old)
        {
            self.round_trip.note(now, least);
        }
        let has_queue = match (reading.round_trip, reading.least_round_trip) {
            (Some(smoothed), Some(least)) => {
                smoothed * 2 > least * QUEUE_HALVES && smoothed > least + LEAST_QUEUE
            }
            _ => false,
        };
        if !has_queue {
            self.loss.note(now, reading.sent, reading.lost);
        }
        if let Some(rate) = reading.rate {
            self.rate.note(now, rate, reading.is_application_limited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::loss::UNKNOWN_LOSS;

    fn reading(round_trip: u64, lost: u64) -> LegReading {
        LegReading {
            round_trip: Some(TimeSpan::from_milliseconds(round_trip)),
            least_round_trip: Some(TimeSpan::from_milliseconds(100)),
            sent: 1_000,
            lost,
            rate: BitRate::from_bits_per_second(8_000_000),
            is_application_limited: false,
            congestion: Congestion::Bbr,
        }
    }

    #[test]
    fn losses_of_an_own_queue_do_not_count() {
        let mut leg = LegEstimate::default();
        leg.note(Time::ZERO, &reading(151, 500));
        assert!((leg.loss.get(Time::ZERO) - UNKNOWN_LOSS).abs() < 1e-12);
        leg.note(Time::ZERO, &reading(150, 500));
        assert!(leg.loss.get(Time::ZERO) > 0.2);
        assert_eq!(leg.congestion, Congestion::Bbr);
        assert_eq!(leg.rate.get(Time::ZERO), reading(0, 0).rate);
        let least = TimeSpan::from_milliseconds(100);
        assert_eq!(leg.round_trip.get(Time::ZERO), Some(least));
        // A handshake is a better sample.
        let later = Time::ZERO + TimeSpan::from_seconds(30);
        leg.round_trip.note(later, least * 3);
        leg.note(later, &reading(100, 0));
        assert_eq!(leg.round_trip.get(later), Some(least * 3));
    }

    /// On a leg of microseconds, nearly every round trip is twice as long as the smallest one.
    #[test]
    fn a_delay_below_a_millisecond_is_no_queue() {
        let reading = |round_trip: u64| LegReading {
            round_trip: Some(TimeSpan::from_nanoseconds(round_trip * 1_000)),
            least_round_trip: Some(TimeSpan::from_nanoseconds(6_000)),
            ..reading(0, 100)
        };
        let mut leg = LegEstimate::default();
        leg.note(Time::ZERO, &reading(1_007));
        assert!((leg.loss.get(Time::ZERO) - UNKNOWN_LOSS).abs() < 1e-12);
        leg.note(Time::ZERO, &reading(13));
        assert!(leg.loss.get(Time::ZERO) > 0.04);
    }

    #[test]
    fn names_of_congestion_controls_are_read_again() {
        for control in Congestion::ALL {
            assert_eq!(Congestion::of_name(control.name()), control);
        }
        assert_eq!(Congestion::of_name("westwood"), Congestion::Reno);
    }
}
