//! The order and times of connection attempts to a server's addresses (RFC 8305, "Happy Eyeballs").

use std::collections::VecDeque;
use std::net::SocketAddr;

use midspan_units::{Time, TimeSpan};

/// Time between the starts of two attempts if none has failed (RFC 8305 §5).
pub const ATTEMPT_DELAY: TimeSpan = TimeSpan::from_milliseconds(250);

/// Further addresses of a name are not tried.
pub const MAXIMUM_ADDRESSES: usize = 16;

/// The attempts to reach one server.
///
/// The caller starts an attempt whenever [`due`](Self::due) returns an address, reports each
/// [failure](Self::handle_failure), and keeps the first connection that succeeds.
#[derive(Debug, Clone)]
pub struct Attempts {
    waiting: VecDeque<SocketAddr>,
    /// Time at which the next attempt is due.
    next: Time,
    /// Time between the starts of two attempts if none has failed.
    delay: TimeSpan,
}

impl Attempts {
    /// Attempts to these addresses, the first at once. The order is that of `addresses`, but the two
    /// families alternate, IPv6 first (§4: First Address Family Count 1). At most
    /// [`MAXIMUM_ADDRESSES`] are tried, each once.
    pub fn new(addresses: impl IntoIterator<Item = SocketAddr>, now: Time) -> Self {
        let mut families: [VecDeque<SocketAddr>; 2] = Default::default();
        for address in addresses {
            let [ipv6, ipv4] = &mut families;
            let family = if address.is_ipv6() { ipv6 } else { ipv4 };
            // Each family has its own limit, so that many addresses of one leave room for the other.
            if family.len() < MAXIMUM_ADDRESSES && !family.contains(&address) {
                family.push_back(address);
            }
        }
        let mut waiting = VecDeque::new();
        while waiting.len() < MAXIMUM_ADDRESSES && families.iter().any(|family| !family.is_empty())
        {
            waiting.extend(families.iter_mut().filter_map(VecDeque::pop_front));
        }
        waiting.truncate(MAXIMUM_ADDRESSES);
        Self {
            waiting,
            next: now,
            delay: ATTEMPT_DELAY,
        }
    }

    /// Attempts to these addresses in this order, the first at once, each other one after a failure or this
    /// delay.
    #[must_use]
    pub fn in_order(addresses: Vec<SocketAddr>, delay: TimeSpan, now: Time) -> Self {
        Self {
            waiting: addresses.into(),
            next: now,
            delay,
        }
    }

    /// The address to try now, if there is one; call this until it returns `None`.
    pub fn due(&mut self, now: Time) -> Option<SocketAddr> {
        if now < self.next {
            return None;
        }
        let address = self.waiting.pop_front()?;
        self.next = now + self.delay;
        Some(address)
    }

    /// An attempt has failed: the next one starts at once (§5).
    pub fn handle_failure(&mut self, now: Time) {
        self.next = now;
    }

    /// There is no room for another attempt: the next one waits as long as after the start of one.
    pub fn postpone(&mut self, now: Time) {
        self.next = now + self.delay;
    }

    /// When the next attempt is due; `None` if none is left.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn all(mut attempts: Attempts) -> Vec<String> {
        let later = Time::ZERO + TimeSpan::from_seconds(3600);
        std::iter::from_fn(|| {
            attempts.handle_failure(Time::ZERO);
            attempts.due(later).map(|address| address.to_string())
        })
        .collect()
    }

    #[test]
    fn families_take_turns_and_ipv6_begins() {
        let given = [
            "1.0.0.1:1",
            "1.0.0.2:1",
            "1.0.0.2:1",
            "[2::1]:1",
            "1.0.0.3:1",
        ]
        .map(address);
        assert_eq!(
            all(Attempts::new(given, Time::ZERO)),
            ["[2::1]:1", "1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1"]
        );
    }

    #[test]
    fn the_number_is_bounded_and_both_families_stay() {
        let ipv4 = (0..=255).map(|last| SocketAddr::from(([192, 0, 2, last], 80)));
        let attempts = Attempts::new(ipv4.chain([address("[2::1]:80")]), Time::ZERO);
        let tried = all(attempts);
        assert_eq!(tried.len(), MAXIMUM_ADDRESSES);
        assert_eq!(tried.first().map(String::as_str), Some("[2::1]:80"));
    }

    #[test]
    fn the_next_begins_after_the_delay_or_a_failure() {
        let given = ["[2::1]:1", "[2::2]:1", "[2::3]:1"].map(address);
        let start = Time::from_nanoseconds(7);
        let mut attempts = Attempts::new(given, start);
        assert_eq!(attempts.due(start), Some(given[0]));
        assert_eq!(attempts.due(start), None);
        assert_eq!(attempts.next(), Some(start + ATTEMPT_DELAY));
        let second = start + ATTEMPT_DELAY;
        assert_eq!(attempts.due(second), Some(given[1]));
        let failed = second + TimeSpan::from_milliseconds(1);
        attempts.handle_failure(failed);
        assert_eq!(attempts.due(failed), Some(given[2]));
        assert_eq!(attempts.next(), None);
    }
    #[test]
    fn chosen_servers_keep_their_order_and_have_their_time() {
        let given = ["1.0.0.1:1", "[2::1]:1"].map(address);
        let delay = TimeSpan::from_seconds(15);
        let mut attempts = Attempts::in_order(given.to_vec(), delay, Time::ZERO);
        assert_eq!(attempts.due(Time::ZERO), Some(given[0]));
        assert_eq!(attempts.next(), Some(Time::ZERO + delay));
        attempts.handle_failure(Time::ZERO);
        assert_eq!(attempts.due(Time::ZERO), Some(given[1]));
        assert_eq!(attempts.next(), None);
    }
}
