//! The bytes that sessions may read while the rate of one client is limited.
//!
//! Before a turn, a session that has something to read gets a [`Grant`] from the bucket of its client's prefix. In the
//! turn it reads at most this much, and afterwards the rest goes back. If the bucket is empty, the grant begins at a
//! later time: the session does not read until then, and its deadline wakes it. Its data stays in the kernel, so its
//! window stops the sender.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use midspan_policy::client_rates::Grant;
use midspan_units::Time;

use super::limits::Limits;

/// The meter of one thread.
#[derive(Debug)]
pub struct Meter {
    limits: Arc<Limits>,
    /// Grants of sessions, by number, that they could not use yet. Each live session has at most one.
    waiting: BTreeMap<u64, Grant>,
    turn: Turn,
}

/// The turn of a session.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// Without a limit.
    Free,
    /// With this grant, of which this much has been read.
    Metered { granted: u64, read: u64 },
}

impl Meter {
    /// A meter for the sessions of one thread.
    pub const fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            turn: Turn::Free,
        }
    }

    /// Begins a turn without a limit.
    pub fn begin_free(&mut self, session: u64) {
        self.forget(session);
        self.turn = Turn::Free;
    }

    /// Begins the turn of a session. `has_more`: it has something to read.
    pub fn begin(&mut self, session: u64, client: IpAddr, has_more: bool, now: Time) {
        let rates = &self.limits.client_rates;
        if !rates.limits_bytes() {
            return self.begin_free(session);
        }
        let grant = match self.waiting.remove(&session) {
            None if has_more => match rates.grant(client, now) {
                None => return self.begin_free(session),
                grant => grant,
            },
            grant => grant,
        };
        let granted = match grant {
            Some(grant) if grant.from > now => {
                self.waiting.insert(session, grant);
                0
            }
            Some(grant) => grant.bytes,
            None => 0,
        };
        self.turn = Turn::Metered { granted, read: 0 };
    }

    /// How much may still be read in this turn.
    pub const fn left(&self) -> u64 {
        match self.turn {
            Turn::Free => u64::MAX,
            Turn::Metered { granted, read } => granted.saturating_sub(read),
        }
    }

    /// This much has been read.
    pub const fn note_read(&mut self, bytes: u64) {
        if let Turn::Metered { read, .. } = &mut self.turn {
            *read += bytes;
        }
    }

    /// Ends the turn. `is_held_back`: there is more to read than was granted. Returns when the session may
    /// read again.
    pub fn end(
        &mut self,
        session: u64,
        client: IpAddr,
        is_held_back: bool,
        now: Time,
    ) -> Option<Time> {
        let Turn::Metered { granted, read } = self.turn else {
            return None;
        };
        self.turn = Turn::Free;
        let rates = &self.limits.client_rates;
        if granted > 0 || read > 0 {
            rates.settle(client, granted, read, now);
        }
        if !is_held_back {
            return None;
        }
        if let Some(grant) = self.waiting.get(&session) {
            return Some(grant.from);
        }
        // Without a grant, the limit has just been lifted.
        let from = rates.grant(client, now).map(|grant| {
            self.waiting.insert(session, grant);
            grant.from
        });
        from.or(Some(now))
    }

    /// The session ends.
    pub fn forget(&mut self, session: u64) {
        // Without a limit, there is nothing to search.
        if !self.waiting.is_empty() {
            self.waiting.remove(&session);
        }
    }

    /// All sessions have ended.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.turn = Turn::Free;
    }
}

#[cfg(test)]
mod tests {
    use midspan_policy::client_rates::ClientRateLimits;
    use midspan_units::TimeSpan;

    use super::*;
    use crate::limits::RelayLimits;

    fn limits(rate: Option<&str>) -> RelayLimits {
        RelayLimits {
            client_rates: ClientRateLimits {
                bytes: rate.map(|rate| rate.parse().unwrap()),
                ..ClientRateLimits::default()
            },
            ..RelayLimits::default()
        }
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn client() -> IpAddr {
        "192.0.2.1".parse().unwrap()
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut meter = Meter::new(Arc::new(Limits::new(&limits(None), 0)));
        meter.begin(1, client(), true, at(1));
        assert_eq!(meter.left(), u64::MAX);
        meter.note_read(1 << 40);
        assert_eq!(meter.left(), u64::MAX);
        assert_eq!(meter.end(1, client(), true, at(1)), None);
        assert!(meter.limits.client_rates.rows(at(1)).is_empty());
    }

    /// 16 Mbit/s: 2 MB at once, and then 2 MB/s, for any number of sessions.
    #[test]
    fn sessions_of_one_client_read_at_its_rate() {
        let shared = Arc::new(Limits::new(&limits(Some("16 Mbit/s")), 0));
        let mut meter = Meter::new(Arc::clone(&shared));
        let mut next = [at(0); 5];
        let mut sum = 0;
        for millisecond in 0..4000 {
            let now = at(millisecond);
            for (session, due) in (0_u64..).zip(&mut next) {
                if *due > now {
                    continue;
                }
                meter.begin(session, client(), true, now);
                sum += meter.left();
                meter.note_read(meter.left());
                let again = meter.end(session, client(), true, now);
                *due = again.unwrap().max(now + TimeSpan::from_nanoseconds(1));
            }
        }
        assert!((9_500_000..10_100_000).contains(&sum), "{sum}");
        // Another client does not wait.
        meter.begin(9, "192.0.2.2".parse().unwrap(), true, at(4000));
        assert_eq!(meter.left(), 1 << 20);
        meter.end(9, "192.0.2.2".parse().unwrap(), false, at(4000));
        // Without the limit, the sessions continue at once.
        shared.change(&limits(None));
        meter.begin(0, client(), true, at(4000));
        assert_eq!(meter.left(), u64::MAX);
    }

    #[test]
    fn a_session_without_data_takes_nothing() {
        let mut meter = Meter::new(Arc::new(Limits::new(&limits(Some("8 Mbit/s")), 0)));
        for _ in 0..100 {
            meter.begin(1, client(), true, at(7));
            assert!(meter.left() > 0);
            meter.note_read(10);
            assert_eq!(meter.end(1, client(), false, at(7)), None);
            meter.begin(1, client(), false, at(7));
            assert_eq!(meter.left(), 0);
            assert_eq!(meter.end(1, client(), false, at(7)), None);
        }
        meter.begin(1, client(), true, at(7));
        assert_eq!(meter.left(), 999_000);
        meter.forget(1);
        assert!(meter.waiting.is_empty());
    }
}
