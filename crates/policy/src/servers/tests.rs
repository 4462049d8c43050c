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
    set(&mut servers, at(0), &settings(&all, Some(1000)));
    servers
}

fn set(servers: &mut Servers, now: Time, settings: &ServerSettings) {
    let last = servers.members.iter().map(|of| of.id.0).max();
    servers.set(now, settings, &mut last.unwrap_or(0));
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

/// One check of each address, of which those with these hosts answer; returns which are now up or down.
fn check(servers: &mut Servers, now: Time, alive: &[u8]) -> Vec<(u8, bool)> {
    let due = servers.take_due(now, false).checks;
    let result = |of: ServerAddress| {
        let (_, is_up) = servers.note_check(now, of, Some(alive.contains(&host(of))))?;
        Some((host(of), is_up))
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
    assert_eq!(check(&mut servers, at(0), &[1, 2]), []);
    let early = servers.take_due(at(999), false);
    assert_eq!((early.checks.len(), early.next), (0, Some(at(1000))));
    assert_eq!(check(&mut servers, at(1000), &[1]), []);
    // A good check in between begins the row again.
    assert_eq!(check(&mut servers, at(2000), &[1, 2]), []);
    for second in 3..5 {
        assert_eq!(check(&mut servers, at(1000 * second), &[1]), []);
    }
    assert_eq!(check(&mut servers, at(5000), &[1]), [(2, false)]);
    assert_eq!(servers.readings(at(5000))[1].failed_checks, 4);
    for _ in 0..4 {
        assert_eq!(host(begin(&mut servers, at(5000))), 1);
    }
    assert_eq!(check(&mut servers, at(6000), &[1, 2]), []);
    assert_eq!(check(&mut servers, at(7000), &[1, 2]), [(2, true)]);
    assert_eq!(host(begin(&mut servers, at(7000))), 2);
}

#[test]
fn a_server_is_suspect_for_ten_seconds_after_a_failed_session_or_until_a_check_succeeds() {
    for is_checked in [false, true] {
        let mut servers = checked(2);
        let failed = begin(&mut servers, at(100));
        assert_eq!(host(failed), 1);
        servers.note_failed_session(at(100), failed);
        servers.end(failed.server);
        assert_eq!(servers.readings(at(100))[0].health, Some(Health::Suspect));
        let end = match is_checked {
            true => {
                check(&mut servers, at(1000), &[2]);
                for _ in 0..3 {
                    assert_eq!(host(begin(&mut servers, at(1001))), 2);
                }
                check(&mut servers, at(2000), &[1, 2]);
                at(2000)
            }
            false => {
                for _ in 0..3 {
                    assert_eq!(host(begin(&mut servers, at(10_099))), 2);
                }
                at(10_100)
            }
        };
        assert_eq!(servers.readings(end)[0].health, Some(Health::Up));
        assert_eq!(host(begin(&mut servers, end)), 1);
    }
}

#[test]
fn a_failed_session_changes_nothing_at_a_server_that_is_down() {
    let mut servers = checked(2);
    let failed = begin(&mut servers, at(0));
    for second in 0..3 {
        check(&mut servers, at(1000 * second), &[2]);
    }
    servers.note_failed_session(at(2500), failed);
    assert_eq!(servers.readings(at(2500))[0].health, Some(Health::Down));
    check(&mut servers, at(3000), &[1, 2]);
    assert_eq!(servers.readings(at(3000))[0].health, Some(Health::Down));
    assert_eq!(check(&mut servers, at(4000), &[1, 2]), [(1, true)]);
    assert_eq!(servers.readings(at(4000))[0].health, Some(Health::Up));
}

#[test]
fn without_checks_nothing_is_due_and_a_late_result_does_not_count() {
    let all = [Server::Address(address(1)), Server::Address(address(2))];
    let mut servers = Servers::default();
    set(&mut servers, at(0), &settings(&all, None));
    let due = servers.take_due(at(0), true);
    assert_eq!(
        (due.look_ups.len(), due.checks.len(), due.next),
        (0, 0, None)
    );
    let of = begin(&mut servers, at(0));
    for _ in 0..9 {
        assert_eq!(servers.note_check(at(1), of, Some(false)), None);
    }
    assert_eq!(servers.readings(at(1))[0].failed_checks, 0);
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
    let both = [name("a.example"), name("b.example")];
    set(&mut servers, at(0), &settings(&both, None));
    let ids: Vec<ServerId> = servers
        .take_due(at(0), true)
        .look_ups
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    let ips = |hosts: &[u8]| -> Vec<IpAddr> { hosts.iter().map(|of| address(*of).ip()).collect() };
    servers.note_addresses(ids[0], &ips(&[1, 2]));
    let first = begin(&mut servers, at(1));
    let second = |servers: &Servers| servers.choose(at(1), Some(first), |_| true);
    // The server's other address, if there is no other server.
    assert_eq!(second(&servers).map(host), Some(2));
    servers.note_addresses(ids[1], &ips(&[1]));
    // The other server has only the address that has failed.
    assert_eq!(second(&servers).map(host), Some(2));
    servers.note_addresses(ids[1], &ips(&[3]));
    assert_eq!(second(&servers).map(host), Some(3));
    let none = servers.choose(at(1), None, |address| address.port() == 81);
    assert_eq!(none, None);
}

#[test]
fn names_are_looked_up_every_30_seconds_and_keep_their_last_addresses() {
    let mut servers = Servers::default();
    let all = [name("a.example"), Server::Address(address(9))];
    set(&mut servers, at(0), &settings(&all, Some(1000)));
    // There is no resolver yet.
    assert_eq!(servers.take_due(at(0), false).look_ups, []);
    let look_ups = servers.take_due(at(0), true).look_ups;
    let id = servers.members[0].id;
    assert_eq!(look_ups, [(id, "a.example".to_owned())]);
    assert_eq!(servers.without_address(), Some((id, &name("a.example"))));
    assert_eq!(servers.readings(at(0))[0].health, None);
    // Without an address, the name is looked up again soon.
    servers.note_addresses(id, &[]);
    assert_eq!(servers.take_due(at(4999), true).look_ups, []);
    let found = [address(1).ip(), address(2).ip(), address(1).ip()];
    assert_eq!(servers.take_due(at(5000), true).look_ups.len(), 1);
    servers.note_addresses(id, &found);
    assert_eq!(servers.without_address(), None);
    assert_eq!(servers.take_due(at(10_000), true).look_ups.len(), 1);
    assert_eq!(servers.take_due(at(39_999), true).look_ups, []);
    let used: BTreeSet<u8> = (0..4)
        .map(|_| host(begin(&mut servers, at(40_000))))
        .collect();
    assert_eq!(used, BTreeSet::from([1, 2, 9]));
    // Each of its addresses is checked, and one that stays keeps its health.
    for second in 41..44 {
        check(&mut servers, at(1000 * second), &[1, 9]);
    }
    servers.note_addresses(id, &[]);
    let addresses = |servers: &Servers| -> Vec<(SocketAddr, Health)> {
        let of = servers.members[0].addresses.iter();
        of.map(|of| (of.address, of.health(at(44_000)))).collect()
    };
    let expected = [(address(1), Health::Up), (address(2), Health::Down)];
    assert_eq!(addresses(&servers), expected);
    servers.note_addresses(id, &[address(2).ip(), address(3).ip()]);
    let expected = [(address(2), Health::Down), (address(3), Health::Up)];
    assert_eq!(addresses(&servers), expected);
    // The result of a check of an address that is gone does not matter.
    let gone = ServerAddress {
        server: id,
        address: address(1),
    };
    assert_eq!(servers.note_check(at(44_000), gone, Some(false)), None);
}

#[test]
fn a_reload_keeps_what_is_known_of_servers_that_stay() {
    let mut servers = checked(2);
    let first = begin(&mut servers, at(0));
    for second in 0..3 {
        check(&mut servers, at(1000 * second), &[1]);
    }
    let other = [2, 3].map(|host| Server::Address(address(host)));
    // A new server is checked at once, with the others.
    set(&mut servers, at(2500), &settings(&other, Some(1000)));
    assert_eq!(servers.take_due(at(2500), true).checks.len(), 2);
    let health: Vec<_> = servers
        .readings(at(3000))
        .iter()
        .map(|of| of.health)
        .collect();
    assert_eq!(health, [Some(Health::Down), Some(Health::Up)]);
    // A session of a server that was removed ends.
    servers.end(first.server);
    servers.note_failed_session(at(3000), first);
    assert_eq!(servers.get(first.server), None);
    // Without checks, nothing would end the state "down".
    set(&mut servers, at(3000), &settings(&other, None));
    assert_eq!(servers.readings(at(3000))[0].health, Some(Health::Up));
    assert_eq!(servers.take_due(at(3000), true).next, None);
    set(&mut servers, at(3000), &settings(&other, Some(500)));
    assert_eq!(servers.take_due(at(3000), true).checks.len(), 2);
}

#[test]
fn a_check_that_could_not_be_carried_out_changes_nothing_but_comes_again() {
    let mut servers = checked(1);
    for second in 0..9 {
        let due = servers.take_due(at(1000 * second), false).checks;
        assert_eq!(due.len(), 1);
        assert_eq!(servers.note_check(at(1000 * second), due[0], None), None);
    }
    let reading = &servers.readings(at(9000))[0];
    assert_eq!(
        (reading.health, reading.failed_checks),
        (Some(Health::Up), 0)
    );
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
        let mut last_id = 0;
        servers.set(at(0), &settings(&some_servers(4), Some(1000)), &mut last_id);
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
                        let other = servers.choose(at(now), Some(chosen), |_| true);
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
                    if !checks.is_empty() {
                        servers.note_check(at(now), checks.remove(0), result);
                    }
                }
                Event::Look(of, hosts) => {
                    let found: Vec<IpAddr> = hosts.iter().map(|of| address(*of).ip()).collect();
                    if let Some(id) = servers.members.get(of).map(|member| member.id) {
                        servers.note_addresses(id, &found);
                    }
                }
                Event::Wait(time) => now += time,
                Event::Set(count, is_checked) => {
                    let check = is_checked.then_some(1000);
                    servers.set(at(now), &settings(&some_servers(count), check), &mut last_id);
                }
            }
            prop_assert!(servers.members.len() <= MOST_SERVERS);
            for member in &servers.members {
                prop_assert!(member.addresses.len() <= MOST_ADDRESSES);
                let known = expected.get(&member.id).copied().unwrap_or(0);
                prop_assert_eq!(member.sessions, known);
                prop_assert!(servers.health_check.is_some()
                    || member.addresses.iter().all(|of| !of.is_down));
            }
            // Something is due again within an interval.
            let Due { checks: due, next, .. } = servers.take_due(at(now), true);
            checks.extend(due);
            prop_assert!(next.is_none_or(|next| next <= at(now) + LOOK_UP_INTERVAL));
            let is_checked = servers.health_check.is_some();
            prop_assert!(!is_checked || next.is_some_and(|next| next <= at(now + 1000)));
        }
    }
}
