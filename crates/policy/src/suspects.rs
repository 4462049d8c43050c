//! Pairs of a client's host and a server whose sessions may have caused a fault of the program.
//!
//! After a fault, new connections of such a pair are not split for a while: one minute after the first
//! fault, and twice as long after each further one, up to 64 minutes. So if a certain peer causes a fault of
//! the program, this fault interrupts other sessions less and less often. A pair without a fault for a day
//! begins with one minute again.

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
}

impl Suspects {
    /// A fault happened while a session of this pair was handled; returns for how long the pair's
    /// connections are not split from now on.
    pub fn note(&mut self, now: Time, request: &Request) -> TimeSpan {
        self.pairs
            .retain(|_, suspect| suspect.last_fault + MEMORY > now);
        let pair = pair(request);
        let doublings = match self.pairs.get(&pair) {
            Some(known) => (known.doublings + 1).min(MOST_DOUBLINGS),
            None => 0,
        };
        if self.pairs.len() >= LIMIT && !self.pairs.contains_key(&pair) {
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
        };
        self.pairs.insert(pair, suspect);
        time
    }

    /// Whether a new connection is not to be split.
    #[must_use]
    pub fn includes(&self, now: Time, request: &Request) -> bool {
        let suspect = self.pairs.get(&pair(request));
        suspect.is_some_and(|suspect| now < suspect.until)
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
        assert!(!suspects.includes(at(0), &fatal));
        let mut now = at(0);
        for minutes in [1, 2, 4, 8, 16, 32, 64, 64] {
            let time = suspects.note(now, &fatal);
            assert_eq!(time, TimeSpan::from_seconds(60 * minutes));
            assert!(suspects.includes(now, &fatal));
            now += time;
            assert!(!suspects.includes(now, &fatal));
        }
        // After a day without a fault, the pair begins again.
        now += MEMORY;
        assert_eq!(suspects.note(now, &fatal), FIRST_TIME);
    }

    #[test]
    fn only_the_client_s_host_and_the_server_are_meant() {
        let mut suspects = Suspects::default();
        suspects.note(at(0), &request("192.0.2.7:5000", "198.51.100.1:80"));
        suspects.note(at(0), &request("[2001:db8::7]:5000", "[2001:db8:1::1]:80"));
        for (client, server, is_meant) in [
            ("192.0.2.7:6000", "198.51.100.1:80", true),
            ("192.0.2.8:5000", "198.51.100.1:80", false),
            ("192.0.2.7:5000", "198.51.100.1:443", false),
            // A host may use all addresses of its /64.
            ("[2001:db8::8]:5000", "[2001:db8:1::1]:80", true),
            ("[2001:db8:0:1::8]:5000", "[2001:db8:1::1]:80", false),
        ] {
            let found = suspects.includes(at(0), &request(client, server));
            assert_eq!(found, is_meant, "{client} {server}");
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
            suspects.note(
                Time::ZERO + TimeSpan::from_milliseconds(number),
                &of(number),
            );
        }
        assert_eq!(suspects.pairs.len(), LIMIT);
        let now = at(0) + TimeSpan::from_seconds(1);
        assert!(!suspects.includes(now, &of(0)));
        assert!(suspects.includes(now, &of(1)) && suspects.includes(now, &of(LIMIT as u64)));
    }
}
