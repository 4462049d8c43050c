use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};
use proptest::prelude::*;

use super::*;
use crate::ahead_history::AheadRecord;
use crate::arrivals::Arrived;
use crate::learned_start::windows;
use crate::leave_alone::{AsymmetricRoutes, Passage};
use crate::oversized_segments::{Verdict, Verdicts};
use crate::prefix::host_prefix;
use crate::{LegSample, Request, SessionId};

fn hosts(prefix: &str) -> Hosts {
    Hosts::with_prefix(prefix.parse().unwrap())
}

fn request(client: &str, server: &str) -> Request {
    Request {
        client: SocketAddr::new(client.parse().unwrap(), 1000),
        server: SocketAddr::new(server.parse().unwrap(), 80),
    }
}

fn seconds(seconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_seconds(seconds)
}

/// A session that delivered enough to teach.
fn leg() -> LegSample {
    let milliseconds = |time| Some(TimeSpan::from_milliseconds(time));
    LegSample {
        segment_size: 1448,
        round_trip_time: milliseconds(600),
        minimum_round_trip_time: milliseconds(600),
        delivery_rate: BitRate::from_bits_per_second(8_000_000),
        bytes_acknowledged: ByteSize::from_bytes(1_000_000),
        ..LegSample::default()
    }
}

/// A short session that lost segments.
fn lossy() -> LegSample {
    LegSample {
        bytes_acknowledged: ByteSize::from_bytes(20_000),
        segments_retransmitted: 5,
        ..leg()
    }
}

const CLIENTS: [&str; 4] = ["192.0.2.1", "192.0.2.77", "198.51.100.1", "2001:db8::1"];

fn knowledge() -> Knowledge {
    let mut known = Knowledge {
        routes: AsymmetricRoutes::new(TimeSpan::from_seconds(900)),
        ..Knowledge::default()
    };
    for client in CLIENTS {
        let server = match client.contains(':') {
            true => "2001:db8:5::1",
            false => "203.0.113.9",
        };
        let request = request(client, server);
        known
            .paths
            .note(seconds(10), request.client.ip(), &leg(), true);
        known.routes.prove(seconds(10), &request);
        let record = AheadRecord {
            is_taken: true,
            ..AheadRecord::default()
        };
        (known.ahead).note(seconds(10), request.client.ip(), &record);
        (known.gains).note_split(
            seconds(10),
            &request,
            &leg(),
            &leg(),
            TimeSpan::from_seconds(2),
        );
    }
    let arrived = Arrived {
        rate: BitRate::from_bits_per_second(8_000_000).unwrap(),
        round_trip: TimeSpan::from_milliseconds(600),
        is_limited: true,
    };
    let server = "203.0.113.9".parse().unwrap();
    known.server_windows.note(seconds(10), server, &arrived);
    let new = "192.0.2.200".parse().unwrap();
    known.paths.start(seconds(9), new, 1448, &windows(320));
    known.paths.note(seconds(10), new, &lossy(), false);
    known
}

#[test]
fn all_is_listed_in_order_with_its_age() {
    let known = knowledge();
    let now = seconds(310);
    let paths = known.paths.known(now, &Hosts::ALL, None, 9);
    let peers: Vec<String> = paths.iter().map(|path| path.peer.to_string()).collect();
    let expected = [
        "192.0.2.1/32",
        "192.0.2.77/32",
        "198.51.100.1/32",
        "2001:db8::/64",
    ];
    assert_eq!(peers, expected);
    let path = &paths[0];
    assert_eq!(path.age, TimeSpan::from_seconds(300));
    assert_eq!(path.rate, BitRate::from_bits_per_second(8_000_000));
    // Half of 8 Mbit/s times 600 ms.
    assert_eq!((path.window, path.is_lossy), (207, true));
    let cold = known.paths.known_cold_starts(now, &Hosts::ALL, None, 9);
    assert_eq!(cold.len(), 1);
    assert_eq!(
        (cold[0].window, cold[0].peer.to_string().as_str()),
        (40, "192.0.2.200/32")
    );
    let routes = known.routes.known(now, &Hosts::ALL, None, 9);
    assert_eq!(routes.len(), 4);
    assert_eq!(routes[0].proven_for, Some(TimeSpan::from_seconds(600)));
    let later = known.routes.known(seconds(2000), &Hosts::ALL, None, 9);
    assert_eq!(later[0].proven_for, None);
    let gains = known.gains.known(now, &Hosts::ALL, None, 9);
    assert_eq!((gains.len(), gains[0].split_flows), (4, 1));
    assert_eq!(gains[0].split, BitRate::from_bits_per_second(4_000_000));
    assert_eq!(
        (gains[0].direct, gains[0].age),
        (None, TimeSpan::from_seconds(300))
    );
    // An old rate is of no use.
    let old = known.paths.known(seconds(4000), &Hosts::ALL, None, 9);
    assert_eq!((old[0].rate, old[0].window), (None, 10));
}

#[test]
fn a_prefix_means_both_ends_and_what_it_is_within() {
    let known = knowledge();
    let count = |prefix: &str| {
        let hosts = hosts(prefix);
        [
            known.paths.known(seconds(10), &hosts, None, 9).len(),
            known.routes.known(seconds(10), &hosts, None, 9).len(),
            known.gains.known(seconds(10), &hosts, None, 9).len(),
        ]
    };
    assert_eq!(count("192.0.2.0/24"), [2, 2, 2]);
    assert_eq!(count("192.0.2.77/32"), [1, 1, 1]);
    assert_eq!(count("0.0.0.0/0"), [3, 3, 3]);
    // One address of a network of which something is known.
    assert_eq!(count("2001:db8::77/128"), [1, 1, 1]);
    assert_eq!(count("203.0.113.7/32"), [0, 3, 3]);
    assert_eq!(count("10.0.0.0/8"), [0, 0, 0]);
}

#[test]
fn what_is_forgotten_does_not_count_for_the_next_connection() {
    let mut known = knowledge();
    let now = seconds(11);
    let forgotten = known.forget(&hosts("192.0.2.0/24"), 100);
    let expected = Forgotten {
        paths: 2,
        cold_starts: 1,
        asymmetric_routes: 2,
        gains: 2,
        sending_ahead: 2,
        server_windows: 0,
    };
    assert_eq!(forgotten, expected);
    let none = known.forget(&hosts("192.0.2.0/24"), 100);
    assert_eq!(none, Forgotten::default());
    let start = |known: &mut Knowledge, client: &str| {
        let client = client.parse().unwrap();
        known.paths.start(now, client, 1448, &windows(320))
    };
    let first = start(&mut known, "192.0.2.1");
    assert_eq!(
        (first.window, first.rate, first.is_lossy),
        (80, None, false)
    );
    assert_eq!(start(&mut known, "192.0.2.200").window, 80);
    let is_trusted = |client: &str| known.ahead.of(now, client.parse().unwrap()).is_trusted();
    assert!(!is_trusted("192.0.2.1") && is_trusted("198.51.100.1"));
    assert!(start(&mut known, "198.51.100.1").rate.is_some());
    let of = |client| request(client, "203.0.113.9");
    assert_eq!(
        known.routes.arrive(now, &of("192.0.2.1")),
        Passage::Intercept
    );
    assert_eq!(known.routes.arrive(now, &of("198.51.100.1")), Passage::Pass);
    let servers = hosts("203.0.113.0/24");
    assert_eq!(known.forget(&servers, 100).server_windows, 1);
    let server = "203.0.113.9".parse().unwrap();
    assert_eq!(known.server_windows.window(now, server), None);
    assert_eq!(known.forget(&Hosts::ALL, 100).paths, 2);
    assert!(known.paths.is_empty() && known.routes.count() == 0);
    // The time for which a proof holds is a setting.
    known.routes.prove(now, &of("192.0.2.1"));
    assert_eq!(known.routes.count(), 1);
}

/// A route that was found, but not reported yet, is not left alone.
#[test]
fn a_found_route_is_forgotten() {
    let mut known = Knowledge::default();
    let near = LegSample {
        minimum_round_trip_time: Some(TimeSpan::from_milliseconds(20)),
        ..leg()
    };
    let far = LegSample {
        minimum_round_trip_time: Some(TimeSpan::from_milliseconds(1)),
        ..leg()
    };
    let of = request("192.0.2.1", "203.0.113.9");
    for _ in 0..8 {
        (known.gains).note_split(Time::ZERO, &of, &near, &far, TimeSpan::from_seconds(1));
    }
    known.forget(&hosts("192.0.2.1/32"), 100);
    assert_eq!(known.gains.take_found(9), []);
    assert_eq!(known.gains.found(), 1);
}

/// Forgetting in parts leaves the memory consistent: new peers are remembered, and the oldest one is
/// forgotten when it is full.
#[test]
fn parts_can_be_forgotten_while_peers_come() {
    let mut known = Knowledge::default();
    let peer = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
    for number in 0..3000 {
        known.paths.note(Time::ZERO, peer(number), &leg(), false);
    }
    let mut all = 0;
    // A session with a new peer ends in each moment between two calls, so that there is always one.
    for call in 1.. {
        let some = known.forget(&hosts("10.0.0.0/8"), 512);
        all += some.paths;
        if !some.may_have_more(512) {
            break;
        }
        known
            .paths
            .note(Time::ZERO, peer(70_000 + call), &leg(), false);
        let session = SessionId(u64::from(call));
        // And one with a peer that is about to be forgotten is running.
        (known.paths).note_in_flight(Time::ZERO, peer(2999), session, (1000, TimeSpan::ZERO));
    }
    // Five full calls, and the sixth.
    assert_eq!(all, 3005);
    for number in 0..70_000 {
        known.paths.note(Time::ZERO, peer(number), &leg(), false);
    }
    assert_eq!(known.paths.len(), 65_536);
}

#[test]
fn verdicts_are_listed_and_forgotten() {
    let mut verdicts = Verdicts::new(10);
    for client in CLIENTS {
        verdicts.note(client.parse().unwrap(), Verdict::Accepts, seconds(5));
    }
    let of = |verdicts: &Verdicts, prefix| verdicts.of_hosts(&hosts(prefix), None, 9).count();
    assert_eq!(of(&verdicts, "192.0.2.0/24"), 2);
    assert_eq!(of(&verdicts, "2001:db8::/32"), 1);
    assert_eq!(of(&verdicts, "2001:db8::2/128"), 0);
    assert_eq!(verdicts.forget(&hosts("192.0.2.0/24"), 1), 1);
    assert_eq!(verdicts.forget(&hosts("192.0.2.0/24"), 9), 1);
    assert_eq!(verdicts.len(), 2);
    // The memory still forgets the oldest one when it is full.
    for number in 0..20_u8 {
        let client = IpAddr::from([203, 0, 113, number]);
        verdicts.note(client, Verdict::Refuses, seconds(6 + u64::from(number)));
    }
    assert_eq!(verdicts.len(), 10);
}

proptest! {
    /// Pages of any size contain each entry once, whatever the prefix.
    #[test]
    fn pages_have_each_entry_once(
        peers in prop::collection::btree_set(any::<IpAddr>(), 0..40),
        length in 0_u8..=32,
        most in 1_usize..8,
    ) {
        let mut known = Knowledge::default();
        let mut verdicts = Verdicts::new(100);
        for peer in &peers {
            known.paths.note(Time::ZERO, *peer, &leg(), false);
            verdicts.note(*peer, Verdict::Accepts, Time::ZERO);
        }
        let prefix = peers.first().map_or(IpAddr::from([10, 0, 0, 1]), |peer| *peer);
        for hosts in [Hosts::ALL, Hosts::with_prefix(IpNet::new(prefix, length).unwrap())] {
            let mut listed = Vec::new();
            while let Some(page) = {
                let after = listed.last().copied();
                let page = known.paths.known(Time::ZERO, &hosts, after, most);
                (!page.is_empty()).then_some(page)
            } {
                prop_assert!(page.len() <= most);
                listed.extend(page.iter().map(|path| path.peer));
            }
            let mut expected: Vec<IpNet> = peers.iter().map(|peer| host_prefix(*peer)).collect();
            expected.sort_unstable();
            expected.dedup();
            expected.retain(|peer| hosts.are_in(*peer));
            prop_assert_eq!(listed, expected);
            let mut clients: Vec<IpAddr> = Vec::new();
            while let Some(client) = {
                let after = clients.last().copied();
                verdicts.of_hosts(&hosts, after, 1).next()
            } {
                clients.push(client.0);
            }
            let meant = peers.iter().filter(|peer| hosts.are_in(IpNet::from(**peer)));
            prop_assert_eq!(clients, meant.copied().collect::<Vec<_>>());
        }
    }
}
