//! `max_packets_per_ack`, fixed or adaptive (Tam §4.4).

use midspan_units::{Time, TimeSpan};

/// The largest number of packets that one ACK may cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaximumPacketsPerAck {
    /// Always this number; above zero.
    Fixed(u32),
    /// Tam §4.4: smaller when the receiver sees congestion, larger when it has seen none for a
    /// while. So a sender's bursts after stretched ACKs stay small on a congested path.
    ///
    /// The paper gives no rule. Midspan's rule: congestion halves the maximum, at most once a round
    /// trip; eight round trips without congestion raise it by one. It starts at `most`.
    Adaptive {
        /// The lowest value; above zero. With 2, the receiver never acknowledges more often than
        /// one with standard delayed ACKs.
        least: u32,
        /// The highest value.
        most: u32,
    },
}

/// Round trips without congestion after which the adaptive maximum grows by one.
const CALM_ROUND_TRIPS: u64 = 8;

/// The present maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maximum {
    now: u32,
    least: u32,
    most: u32,
    /// When congestion was last seen, or when the maximum last changed.
    changed: Option<Time>,
}

impl Maximum {
    pub fn new(setting: MaximumPacketsPerAck) -> Self {
        let (least, most) = match setting {
            MaximumPacketsPerAck::Fixed(number) => (number.max(1), number.max(1)),
            MaximumPacketsPerAck::Adaptive { least, most } => {
                (least.max(1), most.max(least).max(1))
            }
        };
        Self {
            now: most,
            least,
            most,
            changed: None,
        }
    }

    pub const fn now(&self) -> u32 {
        self.now
    }

    /// Three duplicate ACKs were sent, or a silence was longer than `rcv_RTO`.
    pub fn handle_congestion(&mut self, now: Time, rcv_rtt: Option<TimeSpan>) {
        let same = self
            .changed
            .is_some_and(|before| now.since(before) < rcv_rtt.unwrap_or_default());
        if !same {
            self.now = (self.now / 2).max(self.least);
        }
        self.changed = Some(now);
    }

    /// Data arrived.
    pub fn handle_arrival(&mut self, now: Time, rcv_rtt: TimeSpan) {
        let changed = *self.changed.get_or_insert(now);
        if self.now < self.most && now.since(changed) >= rcv_rtt * CALM_ROUND_TRIPS {
            self.now += 1;
            self.changed = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: TimeSpan = TimeSpan::from_milliseconds(100);

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn congestion_halves_it_once_a_round_trip_and_calm_brings_it_back() {
        let mut maximum = Maximum::new(MaximumPacketsPerAck::Adaptive { least: 2, most: 5 });
        maximum.handle_arrival(at(0), ROUND_TRIP);
        assert_eq!(maximum.now(), 5);
        maximum.handle_congestion(at(1000), Some(ROUND_TRIP));
        maximum.handle_congestion(at(1050), Some(ROUND_TRIP));
        assert_eq!(maximum.now(), 2);
        // The time without congestion counts from the last congestion that was seen.
        maximum.handle_arrival(at(1849), ROUND_TRIP);
        assert_eq!(maximum.now(), 2);
        maximum.handle_arrival(at(1850), ROUND_TRIP);
        assert_eq!(maximum.now(), 3);
        maximum.handle_arrival(at(1851), ROUND_TRIP);
        assert_eq!(maximum.now(), 3);
        maximum.handle_arrival(at(2650), ROUND_TRIP);
        maximum.handle_arrival(at(3450), ROUND_TRIP);
        maximum.handle_arrival(at(9999), ROUND_TRIP);
        assert_eq!(maximum.now(), 5);
    }

    #[test]
    fn a_fixed_one_stays() {
        let mut maximum = Maximum::new(MaximumPacketsPerAck::Fixed(5));
        maximum.handle_congestion(at(1), None);
        maximum.handle_arrival(at(99_999), ROUND_TRIP);
        assert_eq!(maximum.now(), 5);
        assert_eq!(Maximum::new(MaximumPacketsPerAck::Fixed(0)).now(), 1);
    }
}
