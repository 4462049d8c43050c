//! Upgrades that change the names and numbers of rules, routes, marks and zones.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use midspan_proxy::command::UpgradeState;

use super::failing::no_trace;
use super::reloading::EndTraffic;
use super::support::*;
use crate::common::assert_upgraded;

/// Other values of all these keys.
const OTHER: &str = "[marks]\nmask = 0xf00000\ntable = 7800\npriority = 91\n\
    [interception]\ntable = \"other\"\nrouting_table = 7790\nrule_priority = 90\nforward_priority = 110\n\
    zone = 7800\nqueue = 7801\n";
/// For connections that are opened meanwhile.
const OTHER_PORT: u16 = 8000;
const WINDOW: &str = "client_leg = { initial_window = 30 }\n";

type Session = (TcpStream, TcpStream);

/// Opens a session in each IP version, and checks that it was intercepted.
fn open(network: &Network, listener: &TcpListener, midspan: &Midspan) -> Vec<Session> {
    let open = |(server, _): (&str, &str)| {
        let taken = network.taken(PORT);
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(listener);
        echoes(&mut near, &mut far);
        assert_eq!(network.taken(PORT), taken + 1, "{}", midspan.log());
        (near, far)
    };
    BOTH.into_iter().map(open).collect()
}

/// A name of tables, and the numbers of routing tables.
#[derive(Debug, Clone, Copy)]
struct Names(&'static str, [&'static str; 2]);

const USUAL_NAMES: Names = Names("midspan", ["7690", "7700"]);
const OTHER_NAMES: Names = Names("other", ["7790", "7800"]);

/// The tables, routing rules and routes with these names, one line for each.
fn in_force(network: &Network, Names(name, numbers): Names) -> Vec<String> {
    let is_table = |word: &str| {
        let rest = word.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let text = output(&network.gateway, "nft", &["list", "tables"]);
    let tables = text.lines().filter(|line| line.split(' ').any(is_table));
    let mut lines: Vec<String> = tables.map(str::to_owned).collect();
    for arguments in [&["rule", "show"][..], &["route", "show", "table", "all"]] {
        for family in ["-4", "-6"] {
            let arguments = [&[family], arguments].concat();
            let text = output(&network.gateway, "ip", &arguments);
            let has_number = |line: &&str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let mut pairs = words.windows(2);
                pairs
                    .any(|pair| matches!(pair[0], "lookup" | "table") && numbers.contains(&pair[1]))
            };
            lines.extend(text.lines().filter(has_number).map(str::to_owned));
        }
    }
    lines
}

/// Sessions keep their marks and zones, and continue; new ones get the new values. Nothing of the former names and
/// numbers is left. Meanwhile each connection is served, intercepted or not.
#[kernel_test]
fn sessions_continue_when_all_numbers_change() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let others = network.listen(OTHER_PORT);
    for listeners in [TRANSPARENT.to_owned(), early()] {
        let usual = format!("{listeners}{WINDOW}");
        let other = format!("{OTHER}{usual}");
        let only_marks = format!("[marks]\nmask = 0xf000\n[interception]\nzone = 7900\n{usual}");
        let midspan = Midspan::ready(&network.gateway, &usual);
        let mut sessions = open(&network, &listener, &midspan);
        std::thread::scope(|scope| {
            let stop = EndTraffic::default();
            let (stopped, network, others) = (stop.flag(), &network, &others);
            scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    for (server, _) in BOTH {
                        let mut near = network.connect(server, OTHER_PORT).unwrap();
                        let (mut far, _) = accept(others);
                        echoes(&mut near, &mut far);
                        abort(near);
                    }
                }
            });
            for (text, present, former) in [
                (&other, OTHER_NAMES, Some(USUAL_NAMES)),
                (&usual, USUAL_NAMES, Some(OTHER_NAMES)),
                (&only_marks, USUAL_NAMES, None),
                (&other, OTHER_NAMES, Some(USUAL_NAMES)),
            ] {
                match former {
                    // A reload keeps all numbers, although the file has others.
                    None => assert!(midspan.reload(text).ok),
                    Some(_) => midspan.write(text),
                }
                assert_upgraded(&midspan.upgrade(None));
                let log = midspan.log();
                assert!(!log.contains("keeps its former value"), "{log}");
                for (near, far) in &mut sessions {
                    echoes(near, far);
                    echoes(far, near);
                }
                sessions.extend(open(network, &listener, &midspan));
                let left = former.map(|names| in_force(network, names));
                assert!(left.iter().flatten().next().is_none(), "{left:?}");
                assert!(in_force(network, present).len() > 6);
                // A reload replaces the rules. On a busy machine, `nft` may be killed.
                let reloaded = text.replace("window = 30", "window = 40");
                wait_until("reloaded", || {
                    let answer = midspan.reload(&reloaded);
                    let error = answer.error.unwrap_or_default();
                    assert!(answer.ok || error.contains("nft did not end"), "{error}");
                    answer.ok
                });
                for (near, far) in &mut sessions {
                    echoes(near, far);
                }
            }
        });
        for (near, far) in sessions {
            carries(near, far, 300_000);
        }
        wait_until("no session is left", || network.taken(PORT) == 0);
        midspan.stop();
        no_trace(&network);
        assert!(in_force(&network, OTHER_NAMES).is_empty());
    }
}

/// The server answers between the change of the rules and the end of the former relay, which alone has the connection.
#[kernel_test]
fn a_connection_that_is_being_opened_continues_when_the_marks_change() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    network.filter_port(PORT);
    midspan.write(&format!(
        "[marks]\nmask = 0xf000\n[interception]\nzone = 7900\n{TRANSPARENT}"
    ));
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| connect_from(&network.client, SERVER, PORT, LIMIT).unwrap());
        wait_until("held", || unanswered(&network.gateway, PORT) == 1);
        let upgrade = scope.spawn(|| midspan.upgrade(None));
        wait_until("changed", || {
            output(
                &network.gateway,
                "nft",
                &["list", "table", "inet", "midspan"],
            )
            .contains("0x0000f000")
        });
        network.unfilter();
        let mut near = opened.join().unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        assert_upgraded(&upgrade.join().unwrap());
        let log = midspan.log();
        // The former relay waits some seconds, which are too short on a very slow machine.
        let is_late = ["have to connect again", "unanswered 1"].map(|text| log.contains(text));
        let is_late = is_late.contains(&true);
        assert!(network.taken(PORT) == 1 || is_late, "{log}");
        carries(near, far, 300_000);
    });
    midspan.stop();
    no_trace(&network);
}

/// If the new program fails, the former one continues with its names and numbers, and nothing of the new ones is left.
#[kernel_test]
fn a_program_that_fails_leaves_no_other_numbers() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let forward = "[[listener]]\nname = \"f\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n";
    // With this key, a listener has a socket for each thread.
    let text = TRANSPARENT.replace("threads = 2", "threads = 2\npin_threads = true");
    let text = format!("{text}{WINDOW}{forward}");
    let midspan = Midspan::ready(&network.gateway, &text);
    let mut sessions = open(&network, &listener, &midspan);
    let relay = midspan.relay();
    // The new relay cannot get the sockets of the former one: it has fewer threads.
    let fewer = text.replace("threads = 2", "threads = 1");
    midspan.write(&format!("{OTHER}{fewer}"));
    let status = midspan.upgrade(None);
    assert_eq!(status.upgrade.unwrap().state, UpgradeState::Failed);
    assert_eq!(midspan.relay(), relay);
    for (near, far) in &mut sessions {
        echoes(near, far);
    }
    sessions.extend(open(&network, &listener, &midspan));
    let left = in_force(&network, OTHER_NAMES);
    assert!(left.is_empty(), "{left:?}");
    for (near, far) in sessions {
        carries(near, far, 300_000);
    }
    midspan.stop();
    no_trace(&network);
}

/// A zone without another mask, and a mask with bits of the former one, would make running sessions look like new ones.
#[kernel_test]
fn numbers_that_would_confuse_sessions_stay() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut sessions = open(&network, &listener, &midspan);
    for (keys, kept) in [
        (
            "[interception]\nzone = 7800\n",
            "interception.zone has changed",
        ),
        ("[marks]\nmask = 0x1f000000\n", "marks.mask has changed"),
    ] {
        midspan.write(&format!("{keys}{TRANSPARENT}"));
        assert_upgraded(&midspan.upgrade(None));
        let log = midspan.log();
        assert!(
            log.contains(kept) && log.contains("keeps its former value"),
            "{log}"
        );
        for (near, far) in &mut sessions {
            echoes(near, far);
        }
        sessions.extend(open(&network, &listener, &midspan));
    }
    midspan.stop();
    no_trace(&network);
}
