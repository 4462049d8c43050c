//! Small changes of a row that its reader does not need: without them, the rows of a steady network are equal, and an
//! answer without a row is enough.

use midspan_units::{BitRate, Probability, TimeSpan};

use super::{Row, RowLeg};

/// A round trip stays until it has changed by more than this, and by more than a part of itself. On a busy machine,
/// round trips differ by as much; a route is changed for 10 ms or more only.
const ROUND_TRIP_NOISE: TimeSpan = TimeSpan::from_milliseconds(1);
const ROUND_TRIP_PART: u64 = 50;
/// A loss stays until it has changed by more than this, and by more than a part of itself.
const LOSS_NOISE: f64 = 2e-6;
const LOSS_PART: f64 = 0.125;
/// A rate stays until it has changed by more than this part of itself.
const RATE_PART: u64 = 20;
/// A load stays until it has changed by more than this, in 1/1000.
const LOAD_NOISE: u16 = 20;

impl Row {
    /// This row, with the values of an earlier one where they differ by noise only. Differences do not add up: each
    /// is one from the value that was reported last.
    #[must_use]
    pub fn steady_since(mut self, before: &Self) -> Self {
        if self.load.abs_diff(before.load) <= LOAD_NOISE {
            self.load = before.load;
        }
        for leg in &mut self.legs {
            if let Some(before) = before.leg_to(&leg.to) {
                leg.steady_since(before);
            }
        }
        self
    }
}

impl RowLeg {
    fn steady_since(&mut self, before: &Self) {
        let (new, old) = (
            self.round_trip.nanoseconds(),
            before.round_trip.nanoseconds(),
        );
        let noise = (old / ROUND_TRIP_PART).max(ROUND_TRIP_NOISE.nanoseconds());
        if new.abs_diff(old) <= noise {
            self.round_trip = before.round_trip;
        }
        if is_loss_near(self.loss, before.loss) {
            self.loss = before.loss;
        }
        if let (Some(new), Some(old)) = (self.rate, before.rate)
            && is_rate_near(new, old)
        {
            self.rate = before.rate;
        }
    }
}

fn is_loss_near(new: Probability, old: Probability) -> bool {
    let (new, old) = (new.as_f64(), old.as_f64());
    (new - old).abs() <= (old * LOSS_PART).max(LOSS_NOISE)
}

const fn is_rate_near(new: BitRate, old: BitRate) -> bool {
    let (new, old) = (new.bits_per_second(), old.bits_per_second());
    new.abs_diff(old) <= old / RATE_PART
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Congestion;
    use super::*;

    fn row(load: u16, round_trip: u64, loss: f64, rate: u64) -> Row {
        let leg = RowLeg {
            to: "sin".parse().unwrap(),
            round_trip: TimeSpan::from_nanoseconds(round_trip * 1000),
            loss: Probability::from_f64(loss).unwrap(),
            rate: BitRate::from_bits_per_second(rate),
            congestion: Congestion::Cubic,
        };
        Row {
            legs: vec![leg],
            load,
            ..Row::default()
        }
    }

    #[test]
    fn noise_changes_nothing_and_the_rest_stays() {
        let before = row(100, 70_000, 0.01, 20_000_000);
        assert_eq!(
            row(120, 71_400, 0.0112, 21_000_000).steady_since(&before),
            before
        );
        for changed in [
            row(121, 70_000, 0.01, 20_000_000),
            row(100, 71_401, 0.01, 20_000_000),
            row(100, 68_599, 0.01, 20_000_000),
            row(100, 70_000, 0.0113, 20_000_000),
            row(100, 70_000, 0.01, 21_000_001),
            row(100, 70_000, 0.01, 0),
        ] {
            assert_eq!(changed.clone().steady_since(&before), changed);
        }
        // On a short leg, and on one without loss.
        let before = row(0, 100, 0.0, 1_000_000);
        assert_eq!(row(0, 1_100, 2e-6, 1_000_000).steady_since(&before), before);
        let slower = row(0, 1_101, 0.0, 1_000_000);
        assert_eq!(slower.clone().steady_since(&before), slower);
    }

    #[test]
    fn states_and_other_legs_are_those_of_the_new_row() {
        let before = row(100, 70_000, 0.01, 20_000_000);
        let mut busy = before.clone();
        busy.is_busy = true;
        assert_eq!(busy.clone().steady_since(&before), busy);
        let mut other = row(100, 70_001, 0.01, 20_000_000);
        other.legs[0].to = "fra".parse().unwrap();
        assert_eq!(other.clone().steady_since(&before), other);
        let none = Row {
            load: 100,
            ..Row::default()
        };
        assert_eq!(none.clone().steady_since(&before), none);
    }

    proptest! {
        #[test]
        fn many_small_changes_do_not_add_up(times in proptest::collection::vec(1_u64..1_000_000, 1..100)) {
            let mut reported = row(0, times[0], 0.0, 1);
            for time in times {
                reported = row(0, time, 0.0, 1).steady_since(&reported);
                let found = reported.legs[0].round_trip.nanoseconds() / 1000;
                prop_assert!(found.abs_diff(time) <= (found / ROUND_TRIP_PART).max(1_000));
            }
        }
    }
}
