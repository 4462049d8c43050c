//! The limits of a direction that another relay continues.

use midspan_handover::{PacingState, ThrottleState};
use midspan_units::{BitRate, TimeSpan};

use super::{CapBy, LONGEST_LOOK, SHORTEST_LOOK, Throttle};

impl Throttle {
    /// The limits. Pacing of a first flight is left out: it would be over after some milliseconds. The cap of an
    /// access profile is left out too, because such a leg stays.
    pub fn hand_over(&self) -> ThrottleState {
        let pacing = self.pacing.filter(|pacing| !pacing.has_end());
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        ThrottleState {
            pacing: pacing.map(|pacing| PacingState {
                rate: pacing.rate().bits_per_second(),
                segment_size: small(pacing.segment_size()),
                header_size: small(pacing.header_size()),
            }),
            cap: self.caps[CapBy::Policy as usize],
            look: self.look.nanoseconds(),
        }
    }

    /// Continues the limits of a direction that holds this many bytes; `None` if there is no limit.
    pub fn take_over(state: &ThrottleState, held: u32) -> Option<Box<Self>> {
        let mut throttle = Self {
            look: TimeSpan::from_nanoseconds(state.look).clamp(SHORTEST_LOOK, LONGEST_LOOK),
            ..Self::default()
        };
        throttle.caps[CapBy::Policy as usize] = state.cap;
        if let Some(pacing) = state.pacing
            && let Some(rate) = BitRate::from_bits_per_second(pacing.rate)
        {
            throttle.set_rate(rate, pacing.segment_size, pacing.header_size, held);
        }
        (!throttle.is_idle()).then(|| Box::new(throttle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_policy::InputPacing;
    use midspan_units::{ByteSize, Time};

    fn rate() -> BitRate {
        "12 Mbit/s".parse().unwrap()
    }

    #[test]
    fn a_rate_and_a_cap_continue() {
        let mut throttle = Throttle::default();
        throttle.set_rate(rate(), 1460, 40, 5000);
        let round_trip = Some(TimeSpan::from_milliseconds(320));
        throttle.set_cap(CapBy::Policy, ByteSize::from_bytes(9_000), round_trip);
        let mut other = Throttle::take_over(&throttle.hand_over(), 5000).unwrap();
        assert_eq!(other.hand_over(), throttle.hand_over());
        assert_eq!(other.allow(Time::ZERO, 5000, || 8_000), Ok(1000));
        other.handle_written(1000);
        assert_eq!(other.allow(Time::ZERO, 4000, || 0), Ok(460));
        other.handle_written(460);
        let next = Time::ZERO + TimeSpan::from_milliseconds(1);
        assert_eq!(other.allow(Time::ZERO, 3540, || 0), Err(next));
        let look = next + TimeSpan::from_milliseconds(5);
        assert_eq!(other.allow(next, 3540, || 9_000), Err(look));
    }

    #[test]
    fn without_a_limit_there_is_no_throttle() {
        let none = ThrottleState::default();
        assert!(Throttle::take_over(&none, 5000).is_none());
        let mut throttle = Throttle::default();
        let flight = InputPacing::new(rate(), 1460, 40).of_flight(10_000, 2_000);
        throttle.begin_flight(flight);
        assert!(Throttle::take_over(&throttle.hand_over(), 5000).is_none());
    }
}
