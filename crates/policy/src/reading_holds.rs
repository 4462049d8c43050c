//! How long a reading of a running session counts for other sessions.

use midspan_units::TimeSpan;

/// The least such time: a session that sends is read ten times a second.
const LEAST: TimeSpan = TimeSpan::from_milliseconds(250);

/// How long a reading of data in flight counts, beyond a round trip, if readings follow each other at
/// this interval (zero if it is unknown): for two and a half intervals, so that it holds until the next
/// one.
pub(crate) fn reading_holds(interval: TimeSpan) -> TimeSpan {
    LEAST.max(interval * 5 / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_holds_until_the_next_one() {
        let holds = |milliseconds| reading_holds(TimeSpan::from_milliseconds(milliseconds));
        assert_eq!([0, 100].map(holds), [LEAST; 2]);
        assert_eq!(holds(400), TimeSpan::from_milliseconds(1_000));
    }
}
