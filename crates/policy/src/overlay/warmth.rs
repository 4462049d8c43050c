//! How many warm connections to another node are kept: over such a connection an exchange has passed already, so the
//! next session needs no handshake with the node.

use midspan_units::{Time, TimeSpan};

/// Least and most connections of one listener to one node, while sessions use the node.
const LEAST: u64 = 2;
const MOST: u64 = 32;
/// None is kept after this time without a session.
const KEPT: TimeSpan = TimeSpan::from_seconds(300);
/// The rate of new sessions is measured over this time; earlier sessions count half.
const PERIOD: TimeSpan = TimeSpan::from_seconds(10);
/// A new connection is warm after a handshake and an exchange.
const ROUND_TRIPS: u64 = 2;

/// The sessions that begin over one node, as far as their number decides how many connections are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Warmth {
    /// Sessions of the present period, and half of those before.
    count: u64,
    /// The beginning of the period.
    begin: Time,
    newest: Option<Time>,
}

impl Warmth {
    /// A session begins.
    pub fn note_session(&mut self, now: Time) {
        let count = self.count(now);
        if now.since(self.begin) >= PERIOD {
            self.begin = now;
        }
        self.count = count.saturating_add(1);
        self.newest = Some(now);
    }

    /// How many connections are kept: two, and as many as sessions begin while a new one becomes warm.
    #[must_use]
    pub fn wanted(&self, now: Time, round_trip: TimeSpan) -> usize {
        if self.newest.is_none_or(|newest| now.since(newest) >= KEPT) {
            return 0;
        }
        let warming = (round_trip * ROUND_TRIPS).nanoseconds();
        let meanwhile = self.count(now).saturating_mul(warming);
        let meanwhile = meanwhile.div_ceil(PERIOD.nanoseconds());
        let wanted = LEAST.saturating_add(meanwhile).min(MOST);
        usize::try_from(wanted).unwrap_or(usize::MAX)
    }

    fn count(&self, now: Time) -> u64 {
        let periods = now.since(self.begin).nanoseconds() / PERIOD.nanoseconds();
        let halves = u32::try_from(periods).unwrap_or(u32::MAX);
        self.count.checked_shr(halves).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    const ROUND_TRIP: TimeSpan = TimeSpan::from_milliseconds(100);

    #[test]
    fn two_are_kept_while_sessions_come() {
        let mut warmth = Warmth::default();
        assert_eq!(warmth.wanted(at(0), ROUND_TRIP), 0);
        warmth.note_session(at(0));
        // One session in ten seconds, of which a connection takes 0.2 s.
        assert_eq!(warmth.wanted(at(0), ROUND_TRIP), 3);
        assert_eq!(warmth.wanted(at(60_000), ROUND_TRIP), 2);
        assert_eq!(warmth.wanted(at(0), TimeSpan::ZERO), 2);
        assert_eq!(warmth.wanted(at(299_999), ROUND_TRIP), 2);
        assert_eq!(warmth.wanted(at(300_000), ROUND_TRIP), 0);
    }

    #[test]
    fn more_are_kept_where_sessions_are_many_and_the_node_is_far() {
        let mut warmth = Warmth::default();
        // Fifty sessions a second.
        for number in 0..1000 {
            warmth.note_session(at(number * 20));
        }
        let wanted = warmth.wanted(at(20_000), ROUND_TRIP);
        assert!((10..=32).contains(&wanted), "{wanted}");
        assert_eq!(warmth.wanted(at(20_000), TimeSpan::from_seconds(10)), 32);
        // Later, only the newest sessions count.
        assert_eq!(warmth.wanted(at(200_000), ROUND_TRIP), 2);
    }
}
