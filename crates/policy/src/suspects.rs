//! Pairs of a client's host and a server whose sessions may have caused a fault of the program.
//!
//! After a fault, new connections of such a pair are not split for a while: one minute after the first
//! fault, and twice as long after each further one, up to 64 minutes. So if a certain peer causes a fault of
//! the program, this fault interrupts other sessions less and less often. A pair without a fault for a day
//! begins with one minute again.
//!
//! The client's host may be a whole network behind one address, and a listener may have one server for all
//! clients. So a connection that has been accepted already is first relayed plainly, without any mechanism,
//! and refused only if a plain connection of the pair has failed too.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ipnet::IpNet;
use midspan_units::{Time, TimeSpan};

use crate::Request;
use crate::prefix::host_prefix;

/// How long the connections of a pair are not split after its first fault.
const FIRST_TIME: TimeSpan = TimeSpan::from_seconds(60);
/// The time is doubled at most this often: it is at most 64 minutes.
const MOST_DOUBLINGS: u32 = 6;
/// A pair without another fault for this long begins with the first time again.
const MEMORY: TimeSpan = TimeSpan::from_seconds(24 * 3_600);
/// Most pairs. The pair with the oldest fault makes room.
const LIMIT: usize = 256;

/// What happens to a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The pair is no suspect.
    Usual,
    /// The pair is a suspect: the connection passes untouched, or is relayed without any mechanism.
    Plain,
    /// A plain connection of the pair has failed too: the connection passes untouched, or is refused.
    Refused,
}

/// The pairs, and until when their connections are not split.
#[derive(Debug, Default)]
pub struct Suspects {
    pairs: BTreeMap<(IpNet, SocketAddr), Suspect>,
}

#[derive(Debug, Clone, Copy)]
struct Suspect {
    last_fault: Time,
    until: Time,
    doublings: u32,
    /// Whether a plain connection has failed.
    has_failed_plainly: bool,
}

impl Suspects {
    /// A fault happened while a connection of this pair was handled, which was relayed plainly if `is_plain`.
    /// Returns for how long the pair's connections are not split from now on.
    pub fn note(&mut self, now: Time, request: &Request, is_plain: bool) -> TimeSpan {
        self.pairs
            .retain(|_, suspect| suspect.last_fault + MEMORY > now);
        let pair = pair(request);
        let known = self.pairs.get(&pair).copied();
        let doublings = known.map_or(0, |known| (known.doublings + 1).min(MOST_DOUBLINGS));
        if self.pairs.len() >= LIMIT && known.is_none() {
            let oldest = self.pairs.iter().min_by_key(|(_, of)| of.last_fault);
            if let Some(oldest) = oldest.map(|(pair, _)| *pair) {
                self.pairs.remove(&oldest);
            }
        }
        let time = FIRST_TIME * (1_u64 << doublings);
        let suspect = Suspect {
            last_fault: now,
            until: now + time,
            doublings,
            has_failed_plainly: is_plain || known.is_some_and(|known| known.has_failed_plainly),
        };
        self.pairs.insert(pair, suspect);
        time
    }

    /// What happens to a new connection.
    #[must_use]
    pub fn treatment(&self, now: Time, request: &Request) -> Treatment {
        match self.pairs.get(&pair(request)) {
            Some(suspect) if now >= suspect.until => Treatment::Usual,
            Some(suspect) if suspect.has_failed_plainly => Treatment::Refused,
            Some(_) => Treatment::Plain,
            None => Treatment::Usual,
        }
    }
}

fn pair(request: &Request) -> (IpNet, SocketAddr) {
    (host_prefix(request.client.ip()), request.server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: &str, server: &str) -> Request {
        Request {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
        }
    }

    fn at(minutes: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(60 * minutes)
    }

    #[test]
    fn the_time_doubles_with_each_fault() {
        let mut suspects = Suspects::default();
        let fatal = request("192.0.2.7:5000", "198.51.100.1:80");
        assert_eq!(suspects.treatment(at(0), &fatal), Treatment::Usual);
        let mut now = at(0);
        for minutes in [1, 2, 4, 8, 16, 32, 64, 64] {
            let time = suspects.note(now, &fatal, false);
            assert_eq!(time, TimeSpan::from_seconds(60 * minutes));
            assert_eq!(suspects.treatment(now, &fatal), Treatment::Plain);
            now += time;
            assert_eq!(suspects.treatment(now, &fatal), Treatment::Usual);
        }
        // After a day without a fault, the pair begins again.
        now += MEMORY;
        assert_eq!(suspects.note(now, &fatal, false), FIRST_TIME);
    }

    #[test]
    fn a_pair_is_refused_only_after_a_plain_connection_has_failed() {
        let mut suspects = Suspects::default();
        let fatal = request("192.0.2.7:5000", "198.51.100.1:80");
        // The second fault is one of a connection that had begun before the first.
        for _ in 0..2 {
            suspects.note(at(0), &fatal, false);
            assert_eq!(suspects.treatment(at(0), &fatal), Treatment::Plain);
        }
        suspects.note(at(1), &fatal, true);
        assert_eq!(suspects.treatment(at(1), &fatal), Treatment::Refused);
        assert_eq!(suspects.treatment(at(5), &fatal), Treatment::Usual);
        // Plain relaying does not help, so it is not tried again.
        suspects.note(at(6), &fatal, false);
        assert_eq!(suspects.treatment(at(6), &fatal), Treatment::Refused);
        // After a day without a fault, the pair begins again.
        let later = at(6) + MEMORY;
        suspects.note(later, &fatal, false);
        assert_eq!(suspects.treatment(later, &fatal), Treatment::Plain);
    }

    #[test]
    fn only_the_client_s_host_and_the_server_are_meant() {
        let mut suspects = Suspects::default();
        for (client, server) in [
            ("192.0.2.7:5000", "198.51.100.1:80"),
            ("[2001:db8::7]:5000", "[2001:db8:1::1]:80"),
        ] {
            suspects.note(at(0), &request(client, server), false);
        }
        for (client, server, is_meant) in [
            ("192.0.2.7:6000", "198.51.100.1:80", true),
            ("192.0.2.8:5000", "198.51.100.1:80", false),
            ("192.0.2.7:5000", "198.51.100.1:443", false),
            // A host may use all addresses of its /64.
            ("[2001:db8::8]:5000", "[2001:db8:1::1]:80", true),
            ("[2001:db8:0:1::8]:5000", "[2001:db8:1::1]:80", false),
        ] {
            let found = suspects.treatment(at(0), &request(client, server));
            let expected = match is_meant {
                true => Treatment::Plain,
                false => Treatment::Usual,
            };
            assert_eq!(found, expected, "{client} {server}");
        }
    }

    #[test]
    fn the_pair_with_the_oldest_fault_makes_room() {
        let mut suspects = Suspects::default();
        let of = |number: u64| {
            request(
                &format!("10.0.{}.{}:1", number / 250, number % 250),
                "192.0.2.1:80",
            )
        };
        for number in 0..=LIMIT as u64 {
            let now = Time::ZERO + TimeSpan::from_milliseconds(number);
            suspects.note(now, &of(number), false);
        }
        assert_eq!(suspects.pairs.len(), LIMIT);
        let now = at(0) + TimeSpan::from_seconds(1);
        let found = [0, 1, LIMIT as u64].map(|number| suspects.treatment(now, &of(number)));
        let expected = [Treatment::Usual, Treatment::Plain, Treatment::Plain];
        assert_eq!(found, expected);
    }
}
