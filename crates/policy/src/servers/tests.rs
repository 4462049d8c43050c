use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], 80))
}

fn settings(servers: &[Server], check: Option<u64>) -> ServerSettings {
    ServerSettings {
        servers: servers.to_vec(),
        health_check: check.map(TimeSpan::from_milliseconds),
    }
}

/// Servers at the addresses 1 to `count`, which are checked every second.
fn checked(count: u8) -> Servers {
    let all: Vec<Server> = (1..=count)
        .map(|host| Server::Address(address(host)))
        .collect();
    let mut servers = Servers::default();
    servers.set(at(0), &settings(&all, Some(1000)));
    servers
}

fn name(text: &str) -> Server {
    Server::Name(text.to_owned(), 80)
}

/// The next session begins at its server; returns which one that is.
fn begin(servers: &mut Servers, now: Time) -> ServerAddress {
    let chosen = servers.choose(now, None, |_| true).unwrap();
    servers.begin(chosen);
    chosen
}

fn host(of: ServerAddress) -> u8 {
    match of.address.ip() {
        IpAddr::V4(four) => four.octets()[3],
        IpAddr::V6(_) => 0,
    }
}

/// One check of each address, of which those with these hosts answer; returns what has changed.
fn check(servers: &mut Servers, now: Time, alive: &[u8]) -> Vec<(u8, Health)> {
    let due = servers.take_checks(now, usize::MAX);
    let result = |of: ServerAddress| {
        let health = servers.note_check(now, of, Some(alive.contains(&host(of))))?;
        Some((host(of), health))
    };
    due.into_iter().filter_map(result).collect()
}

#[test]
fn the_fewest_sessions_decide_and_equals_take_turns() {
    let mut servers = checked(3);
    let first: Vec<ServerAddress> = (0..6).map(|_| begin(&mut servers, at(0))).collect();
    let hosts: Vec<u8> = first.iter().copied().map(host).collect();
    assert_eq!(hosts, [1, 2, 3, 1, 2, 3]);
    for of in [first[1], first[4]] {
        servers.end(of.server);
    }
    let next: Vec<u8> = (0..3).map(|_| host(begin(&mut servers, at(0)))).collect();
    assert_eq!(next, [2, 2, 1]);
    let sessions: Vec<u64> = servers
        .readings(at(0))
        .iter()
        .map(|of| of.sessions)
        .collect();
    assert_eq!(sessions, [3, 2, 2]);
}

#[test]
fn three_failed_checks_take_a_server_out_and_two_good_ones_bring_it_back() {
    let mut servers = checked(2);
    assert_eq!(servers.next_check(), Some(at(0)));
    assert_eq!(check(&mut servers, at(0), &[1, 2]), []);
    assert_eq!(servers.next_check(), Some(at(1000)));
    assert!(servers.take_checks(at(999), 9).is_empty());
    assert_eq!(check(&mut servers, at(1000), &[1]), []);
    // A good check in between begins the row again.
    assert_eq!(check(&mut servers, at(2000), &[1, 2]), []);
    for second in 3..5 {
        assert_eq!(check(&mut servers, at(1000 * second), &[1]), []);
    }
    assert_eq!(check(&mut servers, at(5000), &[1]), [(2, Health::Down)]);
    assert_eq!(servers.readings(at(5000))[1].failed_checks, 4);
    for _ in 0..4 {
        assert_eq!(host(begin(&mut servers, at(5000))), 1);
    }
    assert_eq!(check(&mut servers, at(6000), &[1, 2]), []);
    assert_eq!(check(&mut servers, at(7000), &[1, 2]), [(2, Health::Up)]);
    assert_eq!(host(begin(&mut servers, at(7000))), 2);
}

#[test]
fn a_failed_session_makes_a_server_suspect_and_checks_decide() {
    let mut servers = checked(2);
    check(&mut servers, at(0), &[1, 2]);
    let failed = begin(&mut servers, at(100));
    assert_eq!(host(failed), 1);
    assert!(servers.note_failed_session(at(100), failed));
    servers.end(failed.server);
    assert_eq!(servers.readings(at(100))[0].health, Some(Health::Suspect));
    // The other sessions that fail at the same time are no news.
    assert!(!servers.note_failed_session(at(101), failed));
    for _ in 0..3 {
        assert_eq!(host(begin(&mut servers, at(101))), 2);
    }
    // It is checked at once.
    assert_eq!(servers.take_checks(at(101), 9), [failed]);
    assert_eq!(servers.note_check(at(102), failed, Some(true)), None);
    let again = servers.take_checks(at(1102), 9);
    assert!(again.contains(&failed));
    let up = servers.note_check(at(1102), failed, Some(true));
    assert_eq!(up, Some(Health::Up));
    // From suspect, three failed checks lead to down.
    servers.note_failed_session(at(1200), failed);
    for _ in 0..2 {
        assert_eq!(servers.note_check(at(1300), failed, Some(false)), None);
    }
    let down = servers.note_check(at(1300), failed, Some(false));
    assert_eq!(down, Some(Health::Down));
    assert!(!servers.note_failed_session(at(1400), failed));
}

#[test]
fn without_checks_a_server_is_suspect_for_ten_seconds() {
    let all = [Server::Address(address(1)), Server::Address(address(2))];
    let mut servers = Servers::default();
    servers.set(at(0), &settings(&all, None));
    assert_eq!((servers.next_check(), servers.next_look_up()), (None, None));
    let failed = begin(&mut servers, at(0));
    assert!(servers.note_failed_session(at(0), failed));
    servers.end(failed.server);
    for _ in 0..3 {
        assert_eq!(host(begin(&mut servers, at(9_999))), 2);
    }
    assert_eq!(host(begin(&mut servers, at(10_000))), 1);
    assert!(servers.note_failed_session(at(10_001), failed));
    assert_eq!(servers.note_check(at(10_002), failed, Some(false)), None);
}

#[test]
fn with_all_down_each_has_its_turn() {
    let mut servers = checked(3);
    for _ in 0..5 {
        begin(&mut servers, at(0));
    }
    for second in 0..3 {
        check(&mut servers, at(1000 * second), &[]);
    }
    let hosts: BTreeSet<u8> = (0..3)
        .map(|_| host(begin(&mut servers, at(3000))))
        .collect();
    assert_eq!(hosts, BTreeSet::from([1, 2, 3]));
    // A suspect server is better than one that is down.
    check(&mut servers, at(3000), &[3]);
    check(&mut servers, at(4000), &[3]);
    let third = begin(&mut servers, at(4000));
    assert_eq!(host(third), 3);
    servers.note_failed_session(at(4000), third);
    assert_eq!(host(begin(&mut servers, at(4000))), 3);
}

#[test]
fn the_second_try_prefers_another_server() {
    let mut servers = Servers::default();
    servers.set(
        at(0),
        &settings(&[name("a.example"), name("b.example")], None),
    );
    let ids: Vec<ServerId> = servers
        .take_look_ups(at(0))
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    let ips = |hosts: &[u8]| -> Vec<IpAddr> { hosts.iter().map(|of| address(*of).ip()).collect() };
    servers.note_addresses(at(1), ids[0], &ips(&[1, 2]));
    let first = begin(&mut servers, at(1));
    let second = |servers: &Servers| servers.choose(at(1), Some(first.address), |_| true);
    // The server's other address, if there is no other server.
    assert_eq!(second(&servers).map(host), Some(2));
    servers.note_addresses(at(1), ids[1], &ips(&[1]));
    // The other server has only the address that has failed.
    assert_eq!(second(&servers).map(host), Some(2));
    servers.note_addresses(at(1), ids[1], &ips(&[3]));
    assert_eq!(second(&servers).map(host), Some(3));
    let none = servers.choose(at(1), None, |address| address.port() == 81);
    assert_eq!(none, None);
}

#[test]
fn names_are_looked_up_every_30_seconds_and_keep_their_last_addresses() {
    let mut servers = Servers::default();
    servers.set(
        at(0),
        &settings(
            &[name("a.example"), Server::Address(address(9))],
            Some(1000),
        ),
    );
    let due = servers.take_look_ups(at(0));
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].1, "a.example");
    let id = due[0].0;
    assert_eq!(servers.without_address(), Some((id, &name("a.example"))));
    assert_eq!(servers.readings(at(0))[0].health, None);
    // Without an address, the name is looked up again soon.
    servers.note_addresses(at(1), id, &[]);
    assert_eq!(servers.next_look_up(), Some(at(5000)));
    assert_eq!(servers.take_look_ups(at(5000)).len(), 1);
    let found = [address(1).ip(), address(2).ip(), address(1).ip()];
    servers.note_addresses(at(5001), id, &found);
    assert_eq!(servers.without_address(), None);
    assert_eq!(servers.next_look_up(), Some(at(35_001)));
    let used: BTreeSet<u8> = (0..4)
        .map(|_| host(begin(&mut servers, at(5002))))
        .collect();
    assert_eq!(used, BTreeSet::from([1, 2, 9]));
    // Each of its addresses is checked, and one that stays keeps its health.
    for second in 6..9 {
        check(&mut servers, at(1000 * second), &[1, 9]);
    }
    assert_eq!(servers.take_look_ups(at(35_001)).len(), 1);
    servers.note_addresses(at(35_002), id, &[]);
    let addresses = |servers: &Servers| -> Vec<(SocketAddr, Health)> {
        let of = servers.members[0].addresses.iter();
        of.map(|of| (of.address, of.health)).collect()
    };
    let expected = [(address(1), Health::Up), (address(2), Health::Down)];
    assert_eq!(addresses(&servers), expected);
    servers.note_addresses(at(35_003), id, &[address(2).ip(), address(3).ip()]);
    let expected = [(address(2), Health::Down), (address(3), Health::Up)];
    assert_eq!(addresses(&servers), expected);
    // The result of a check of an address that is gone does not matter.
    let gone = ServerAddress {
        server: id,
        address: address(1),
    };
    assert_eq!(servers.note_check(at(35_004), gone, Some(false)), None);
}

#[test]
fn a_reload_keeps_what_is_known_of_servers_that_stay() {
    let mut servers = checked(2);
    let first = begin(&mut servers, at(0));
    for second in 0..3 {
        check(&mut servers, at(1000 * second), &[1]);
    }
    let other = [2, 3].map(|host| Server::Address(address(host)));
    servers.set(at(3000), &settings(&other, Some(1000)));
    let health: Vec<_> = servers
        .readings(at(3000))
        .iter()
        .map(|of| of.health)
        .collect();
    assert_eq!(health, [Some(Health::Down), Some(Health::Up)]);
    // A session of a server that was removed ends.
    servers.end(first.server);
    assert!(!servers.note_failed_session(at(3000), first));
    assert_eq!(servers.get(first.server), None);
    // Without checks, nothing would end the state "down".
    servers.set(at(3000), &settings(&other, None));
    assert_eq!(servers.readings(at(3000))[0].health, Some(Health::Up));
    assert_eq!(servers.next_check(), None);
    servers.set(at(3000), &settings(&other, Some(500)));
    assert_eq!(servers.next_check(), Some(at(3000)));
}

#[test]
fn a_check_that_could_not_be_carried_out_changes_nothing_but_comes_again() {
    let mut servers = checked(1);
    for second in 0..9 {
        let due = servers.take_checks(at(1000 * second), 9);
        assert_eq!(due.len(), 1);
        assert_eq!(servers.note_check(at(1000 * second), due[0], None), None);
    }
    let reading = &servers.readings(at(9000))[0];
    assert_eq!(
        (reading.health, reading.failed_checks),
        (Some(Health::Up), 0)
    );
}

#[test]
fn the_time_for_an_answer_follows_the_interval_within_limits() {
    for (interval, limit) in [(100, 1000), (2000, 2000), (60_000, 10_000)] {
        let mut servers = Servers::default();
        servers.set(at(0), &settings(&[], Some(interval)));
        assert_eq!(servers.check_limit(), TimeSpan::from_milliseconds(limit));
    }
}

/// What happens to the servers.
#[derive(Debug, Clone)]
enum Event {
    Begin,
    /// The oldest session ends.
    End,
    /// The oldest session could not connect.
    Fail,
    /// The check that began first has a result.
    Checked(Option<bool>),
    Look(usize, Vec<u8>),
    Wait(u64),
    /// Other settings: the number of servers, and whether they are checked.
    Set(usize, bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Begin),
        2 => Just(Event::End),
        1 => Just(Event::Fail),
        6 => prop_oneof![Just(Some(true)), Just(Some(false)), Just(None)].prop_map(Event::Checked),
        2 => (0_usize..6, prop::collection::vec(1_u8..40, 0..24))
            .prop_map(|(of, hosts)| Event::Look(of, hosts)),
        4 => (1_u64..3000).prop_map(Event::Wait),
        1 => (0_usize..20, any::<bool>()).prop_map(|(count, checks)| Event::Set(count, checks)),
    ]
}

/// Every third server is an address; the others are names.
fn some_servers(count: usize) -> Vec<Server> {
    let server = |number: usize| match number % 3 {
        0 => Server::Address(address(100 + u8::try_from(number).unwrap())),
        _ => name(&format!("{number}.example")),
    };
    (0..count).map(server).collect()
}

/// The chosen address is one of the best, by rules that are written a second time here.
fn is_best(servers: &Servers, now: Time, chosen: Option<ServerAddress>) -> bool {
    let all = || servers.members.iter().filter(|of| !of.addresses.is_empty());
    let best_of = |of: &Member| of.addresses.iter().map(|of| of.health(now)).min();
    let Some(best) = all().filter_map(best_of).min() else {
        return chosen.is_none();
    };
    let equals = || all().filter(|of| best_of(of) == Some(best));
    let fewest = equals().map(|of| of.sessions).min();
    let oldest = equals().map(|of| of.turn).min();
    let chosen = chosen.unwrap();
    let member = equals().find(|of| of.id == chosen.server).unwrap();
    let mut addresses = member.addresses.iter();
    let address = addresses.find(|of| of.address == chosen.address).unwrap();
    let is_right = match best {
        Health::Down => Some(member.turn) == oldest,
        Health::Up | Health::Suspect => Some(member.sessions) == fewest,
    };
    is_right && address.health(now) == best
}

proptest! {
    #[test]
    fn whatever_happens_the_best_is_chosen_and_all_is_bounded(
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut servers = Servers::default();
        servers.set(at(0), &settings(&some_servers(4), Some(1000)));
        let (mut now, mut sessions, mut checks) = (0, Vec::new(), Vec::new());
        let mut expected: BTreeMap<ServerId, u64> = BTreeMap::new();
        for event in events {
            match event {
                Event::Begin => {
                    let chosen = servers.choose(at(now), None, |_| true);
                    prop_assert!(is_best(&servers, at(now), chosen));
                    if let Some(chosen) = chosen {
                        servers.begin(chosen);
                        sessions.push(chosen);
                        *expected.entry(chosen.server).or_default() += 1;
                        let other = servers.choose(at(now), Some(chosen.address), |_| true);
                        prop_assert!(other.is_none_or(|of| of.address != chosen.address));
                    }
                }
                Event::End | Event::Fail if sessions.is_empty() => {}
                Event::End => {
                    let of: ServerAddress = sessions.remove(0);
                    servers.end(of.server);
                    *expected.entry(of.server).or_default() -= 1;
                }
                Event::Fail => {
                    servers.note_failed_session(at(now), sessions[0]);
                }
                Event::Checked(result) => {
                    checks.extend(servers.take_checks(at(now), 5));
                    if !checks.is_empty() {
                        servers.note_check(at(now), checks.remove(0), result);
                    }
                }
                Event::Look(of, hosts) => {
                    let found: Vec<IpAddr> = hosts.iter().map(|of| address(*of).ip()).collect();
                    let all = servers.take_look_ups(at(now));
                    if let Some((id, _)) = all.get(of) {
                        servers.note_addresses(at(now), *id, &found);
                    }
                }
                Event::Wait(time) => now += time,
                Event::Set(count, is_checked) => {
                    let check = is_checked.then_some(1000);
                    servers.set(at(now), &settings(&some_servers(count), check));
                }
            }
            prop_assert!(servers.members.len() <= MOST_SERVERS);
            for member in &servers.members {
                prop_assert!(member.addresses.len() <= MOST_ADDRESSES);
                let known = expected.get(&member.id).copied().unwrap_or(0);
                prop_assert_eq!(member.sessions, known);
                prop_assert!(servers.health_check.is_some()
                    || member.addresses.iter().all(|of| of.health != Health::Down));
            }
            // Nothing is due later than an interval from now.
            prop_assert!(servers.next_look_up().is_none_or(|next| next <= at(now) + LOOK_UP_INTERVAL));
            prop_assert!(servers.next_check().is_none_or(|next| next <= at(now + 1000)));
        }
    }
}
