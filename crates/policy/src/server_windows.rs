//! Receive windows towards far servers: how large a window is to be open from the first ACK of a new
//! connection.
//!
//! A kernel offers 64 KB at first and enlarges its window in each round trip. Since Linux 6.10, a socket
//! whose receive buffer was set before it connects offers the whole buffer with the first ACK after the
//! handshake. That helps only if the server sends more than 64 KB at once. So a larger window is opened only
//! towards networks in which, within the last hour, a server [filled](crate::arrivals) the window that it was
//! offered over a long leg, as a second proxy before a satellite does. The window is twice what the largest
//! measured rate carries in a round trip, at most [`MOST`]. The kernel continues to tune the buffer, so a
//! server that is faster than this rate loses nothing.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::arrivals::Arrived;
use crate::hosts::Hosts;
use crate::part_limit::part_limit;
use crate::prefix::site_prefix;

/// Largest number of remembered networks, if the memory is not divided.
const NETWORKS: usize = 16_384;
/// After this time, a network is forgotten: the next connection has the kernel's window, and shows
/// whether that is still too small.
const REMEMBERED: TimeSpan = TimeSpan::from_seconds(3_600);
/// A lower rate replaces a measured one after this time.
const RATE_HOLDS: TimeSpan = TimeSpan::from_seconds(600);
/// The window is this many times what the rate carries in a round trip.
const TIMES: u64 = 2;
/// The smallest window that gains anything against the kernel's 64 KB.
const LEAST: u64 = 128 << 10;
/// The largest window, in bytes: 224 Mbit/s over a round trip of 600 ms.
pub const MOST: ByteSize = ByteSize::from_bytes(16 << 20);

/// A network of servers that fill the kernel's first windows.
#[derive(Debug, Clone, Copy)]
struct Network {
    /// When a server was last limited by the window.
    limited: Time,
    /// The largest rate, and when it was measured.
    rate: (BitRate, Time),
    round_trip: TimeSpan,
}

/// The networks of servers (an IPv4 /24, an IPv6 /48) that fill the kernel's first windows.
#[derive(Debug, Clone)]
pub struct ServerWindows {
    networks: BTreeMap<IpNet, Network>,
    /// The networks in the order in which they came.
    order: VecDeque<IpNet>,
    /// Largest number of remembered networks.
    limit: usize,
}

impl Default for ServerWindows {
    fn default() -> Self {
        Self::part_of(1)
    }
}

impl ServerWindows {
    /// One of `parts` parts of a divided memory.
    #[must_use]
    pub(crate) const fn part_of(parts: usize) -> Self {
        Self {
            networks: BTreeMap::new(),
            order: VecDeque::new(),
            limit: part_limit(NETWORKS, parts),
        }
    }

    /// A session with this server has ended, and has measured this.
    pub fn note(&mut self, now: Time, server: IpAddr, arrived: &Arrived) {
        let key = site_prefix(server);
        let known = self.networks.get(&key).copied();
        let known = known.filter(|network| !network.is_old(now));
        let network = match known {
            // Only servers that meet the window are of interest.
            None if !arrived.is_limited => return,
            None => Network {
                limited: now,
                rate: (arrived.rate, now),
                round_trip: arrived.round_trip,
            },
            Some(known) => {
                let (rate, noted) = known.rate;
                let holds = rate > arrived.rate && now.since(noted) < RATE_HOLDS;
                Network {
                    limited: if arrived.is_limited {
                        now
                    } else {
                        known.limited
                    },
                    rate: if holds {
                        known.rate
                    } else {
                        (arrived.rate, now)
                    },
                    round_trip: known.round_trip.min(arrived.round_trip),
                }
            }
        };
        if self.networks.insert(key, network).is_none() {
            self.order.push_back(key);
            while self.order.len() > self.limit {
                if let Some(oldest) = self.order.pop_front() {
                    self.networks.remove(&oldest);
                }
            }
        }
    }

    /// The window that a new connection to this server is to have open from its first ACK on; `None`: the
    /// kernel's own.
    #[must_use]
    pub fn window(&self, now: Time, server: IpAddr) -> Option<ByteSize> {
        let network = self.networks.get(&site_prefix(server))?;
        if network.is_old(now) {
            return None;
        }
        let carried = network.rate.0.bytes_in(network.round_trip);
        let window = carried.saturating_mul(TIMES).min(MOST.bytes());
        (window >= LEAST).then_some(ByteSize::from_bytes(window))
    }

    /// Forgets at most `most` networks of these hosts; returns how many.
    pub(crate) fn forget(&mut self, hosts: &Hosts, most: usize) -> usize {
        let meant = self.networks.keys();
        let meant = meant.filter(|network| hosts.are_in(**network));
        let networks: Vec<IpNet> = meant.take(most).copied().collect();
        for network in &networks {
            self.networks.remove(network);
        }
        if !networks.is_empty() {
            self.order
                .retain(|network| self.networks.contains_key(network));
        }
        networks.len()
    }
}

impl Network {
    fn is_old(&self, now: Time) -> bool {
        now.since(self.limited) >= REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(network: u8, last: u8) -> IpAddr {
        IpAddr::from([192, 0, network, last])
    }

    fn seconds(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    fn arrived(megabits: u64, is_limited: bool) -> Arrived {
        Arrived {
            rate: BitRate::from_bits_per_second(megabits * 1_000_000).unwrap(),
            round_trip: TimeSpan::from_milliseconds(600),
            is_limited,
        }
    }

    fn bytes(window: Option<ByteSize>) -> Option<u64> {
        window.map(ByteSize::bytes)
    }

    #[test]
    fn a_window_is_opened_where_one_was_filled() {
        let mut windows = ServerWindows::default();
        let first = |windows: &ServerWindows, now| bytes(windows.window(now, server(2, 1)));
        windows.note(seconds(0), server(2, 1), &arrived(20, false));
        assert_eq!(first(&windows, seconds(0)), None);
        windows.note(seconds(0), server(2, 1), &arrived(20, true));
        // Twice 20 Mbit/s times 600 ms, for the whole network.
        assert_eq!(first(&windows, seconds(0)), Some(3_000_000));
        assert_eq!(
            bytes(windows.window(seconds(0), server(2, 9))),
            Some(3_000_000)
        );
        assert_eq!(windows.window(seconds(0), server(3, 1)), None);
        // With the open window, nothing is limited any more.
        windows.note(seconds(60), server(2, 1), &arrived(30, false));
        assert_eq!(first(&windows, seconds(60)), Some(4_500_000));
        // A short session does not reach the rate of the path.
        windows.note(seconds(70), server(2, 1), &arrived(1, false));
        assert_eq!(first(&windows, seconds(70)), Some(4_500_000));
        windows.note(seconds(660), server(2, 1), &arrived(10, false));
        assert_eq!(first(&windows, seconds(660)), Some(1_500_000));
        // After an hour, the kernel's window is tried again.
        assert_eq!(first(&windows, seconds(3_599)), Some(1_500_000));
        assert_eq!(first(&windows, seconds(3_600)), None);
        windows.note(seconds(3_700), server(2, 1), &arrived(10, false));
        assert_eq!(first(&windows, seconds(3_700)), None);
        windows.note(seconds(3_700), server(2, 1), &arrived(10, true));
        assert_eq!(first(&windows, seconds(3_700)), Some(1_500_000));
        assert_eq!(windows.order.len(), 1);
    }

    #[test]
    fn windows_are_within_bounds() {
        let mut windows = ServerWindows::default();
        windows.note(Time::ZERO, server(2, 1), &arrived(100_000, true));
        assert_eq!(windows.window(Time::ZERO, server(2, 1)), Some(MOST));
        let slow = Arrived {
            rate: BitRate::from_bits_per_second(800_000).unwrap(),
            ..arrived(1, true)
        };
        windows.note(Time::ZERO, server(3, 1), &slow);
        assert_eq!(windows.window(Time::ZERO, server(3, 1)), None);
    }

    #[test]
    fn networks_are_forgotten_on_request_and_their_number_is_bounded() {
        let mut windows = ServerWindows::part_of(64);
        for network in 0..=255 {
            windows.note(
                Time::ZERO,
                IpAddr::from([10, 0, network, 1]),
                &arrived(20, true),
            );
        }
        for network in 0..=255 {
            windows.note(Time::ZERO, server(network, 1), &arrived(20, true));
        }
        assert_eq!(windows.networks.len(), windows.limit);
        assert_eq!(windows.order.len(), windows.limit);
        let hosts = Hosts::with_prefix("192.0.255.7/32".parse().unwrap());
        assert_eq!(
            (windows.forget(&hosts, 9), windows.forget(&hosts, 9)),
            (1, 0)
        );
        assert_eq!(windows.window(Time::ZERO, server(255, 1)), None);
        assert!(windows.window(Time::ZERO, server(254, 1)).is_some());
        assert_eq!(windows.order.len(), windows.limit - 1);
    }
}
