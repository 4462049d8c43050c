//! Firewall reloads, ends and crashes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process, kill_process_group};

use midspan_proxy::command::Request;
use midspan_testbed::program::{Launch, Program};

use super::support::*;

#[kernel_test]
fn rules_are_put_back() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    for reload in ["flush ruleset\n", "rules", "routes"] {
        match reload {
            "rules" => {
                output(&network.gateway, "ip", &["rule", "flush", "proto", "77"]);
                output(
                    &network.gateway,
                    "ip",
                    &["-6", "rule", "flush", "proto", "77"],
                );
            }
            "routes" => {
                output(&network.gateway, "ip", &["route", "flush", "table", "7690"]);
            }
            text => rules(&network.gateway, text),
        }
        // Midspan looks at the rules once per second.
        std::thread::sleep(Duration::from_secs(1));
        println!("  {reload}");
        for (server, _) in BOTH {
            network.wait_until_taken(&listener, server, true, 1);
        }
        echoes(&mut near, &mut far);
    }
    abort(near);
    midspan.stop();
}

const NFT: &str = "/usr/sbin/nft";

/// Midspan with a wrapper in the place of `nft`, which first runs these lines of a shell.
fn with_wrapped_nft(network: &Network, directory: &Path, lines: &str) -> Midspan {
    let (real, wrapper) = (directory.join("nft"), directory.join("wrapper"));
    fs::copy(NFT, &real).unwrap();
    let script = format!("#!/bin/sh\n{lines}\nexec {} \"$@\"\n", real.display());
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).unwrap();
    let launch = Launch::this_program("run").in_place_of(&wrapper, NFT);
    Midspan::of(launch.configuration(TRANSPARENT).inside(&network.gateway))
}

/// On a slow machine, each call of `nft` takes seconds, not only the first one. Midspan starts.
#[kernel_test]
fn a_slow_nft_does_not_stop_the_start() {
    if !Path::new(NFT).exists() {
        return skip(&format!("there is no {NFT}"));
    }
    let network = Network::new();
    let listener = network.listen(PORT);
    let directory = tempfile::tempdir().unwrap();
    let calls = directory.path().join("calls").display().to_string();
    let second = format!("[ \"$1\" = -f ] && echo >>{calls} && [ $(wc -l <{calls}) = 2 ]");
    let midspan = with_wrapped_nft(&network, directory.path(), &format!("{second} && sleep 6"));
    assert!(network.is_taken(&listener, SERVER, 0).unwrap());
    midspan.stop();
}

/// `nft` hangs: Midspan answers commands meanwhile, and sets the rules again when `nft` works.
#[kernel_test]
fn a_program_that_hangs_is_killed() {
    if !Path::new(NFT).exists() {
        return skip(&format!("there is no {NFT}"));
    }
    let network = Network::new();
    let listener = network.listen(PORT);
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("hang");
    let hang = format!("[ ! -e {} ] || exec sleep 600", flag.display());
    let midspan = with_wrapped_nft(&network, directory.path(), &hang);
    assert!(network.is_taken(&listener, SERVER, 0).unwrap());
    fs::write(&flag, "").unwrap();
    rules(&network.gateway, "flush ruleset\n");
    wait_until("said", || midspan.log().contains("nft did not end"));
    assert_eq!(midspan.status().pid, midspan.id());
    fs::remove_file(&flag).unwrap();
    network.wait_until_taken(&listener, SERVER, true, 0);
    // The killed nft process has been waited for, so the relay is the only child.
    midspan.relay();
    midspan.stop();
}

#[kernel_test]
fn a_killed_relay_fails_open() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let mut midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    echoes(&mut near, &mut far);
    kill_process(midspan.relay(), Signal::KILL).unwrap();
    assert!(is_reset(&mut near) && is_reset(&mut far));
    untouched_within_a_second(&network, &listener);
    assert!(!midspan.wait().success());
    no_trace(&network);
}

/// A killed helper cannot remove its rules: they stay, and all connections pass untouched.
#[kernel_test]
fn a_killed_helper_leaves_nothing_closed() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let mut midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    midspan.wait();
    assert!(is_reset(&mut near) && is_reset(&mut far));
    untouched_within_a_second(&network, &listener);
    let tables = output(&network.gateway, "nft", &["list", "tables"]);
    assert!(tables.contains("inet midspan"), "{tables}");
    // The next run intercepts connections again …
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let near = network.connect(SERVER, PORT).unwrap();
    let (_far, _) = accept(&listener);
    assert_eq!(network.taken(PORT), 1);
    abort(near);
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    drop(midspan);
    // … and a run without transparent listeners removes the rules.
    let forward =
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n";
    Midspan::ready(&network.gateway, forward).stop();
    no_trace(&network);
}

/// Both processes are killed at once, as by `kill -9` of the whole service or by the kernel's
/// out-of-memory killer.
#[kernel_test]
fn killed_together_they_fail_open() {
    for way in ["both processes", "the process group"] {
        let network = Network::new();
        rules(&network.gateway, STRICT);
        let listener = network.listen(PORT);
        let mut midspan = Midspan::ready(&network.gateway, TRANSPARENT);
        let mut open = Vec::new();
        for (server, _) in BOTH {
            let mut near = network.connect(server, PORT).unwrap();
            let (mut far, _) = accept(&listener);
            echoes(&mut near, &mut far);
            open.push((near, far));
        }
        assert_eq!(network.taken(PORT), 2);
        let (relay, helper) = (midspan.relay(), midspan.helper());
        if way == "the process group" {
            kill_process_group(helper, Signal::KILL).unwrap();
        } else {
            kill_process(relay, Signal::KILL).unwrap();
            kill_process(helper, Signal::KILL).unwrap();
        }
        for (near, far) in &mut open {
            assert!(is_reset(near) && is_reset(far), "{way}");
        }
        untouched_within_a_second(&network, &listener);
        midspan.wait();
        // New connections pass without anything of the killed run, and the next run works like a
        // first one.
        let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
        let near = network.connect(SERVER, PORT).unwrap();
        let _far = accept(&listener);
        assert_eq!(network.taken(PORT), 1);
        abort(near);
        midspan.stop();
        no_trace(&network);
    }
}

fn untouched_within_a_second(network: &Network, listener: &std::net::TcpListener) {
    let start = Instant::now();
    for (server, _) in BOTH {
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(listener);
        echoes(&mut near, &mut far);
        assert_eq!(network.taken(PORT), 0);
    }
    // A lost SYN is sent again after one second, and after two more. `connect` gives up after ten
    // seconds.
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
}

#[kernel_test]
fn a_stopped_relay_fails_open() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let text = format!("[interception]\nwatchdog_timeout = \"8 s\"\n{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    echoes(&mut near, &mut far);
    // The relay is stopped for a moment: new connections pass, no data is lost, and the relay
    // continues.
    let relay = midspan.relay();
    stop_process(relay);
    let mut other = network.connect(SERVER, PORT).unwrap();
    let (mut served, _) = accept(&listener);
    // The connection passed before the watchdog could act.
    assert!(
        !midspan.log().contains("no sign of life"),
        "{}",
        midspan.log()
    );
    echoes(&mut other, &mut served);
    kill_process(relay, Signal::CONT).unwrap();
    echoes(&mut near, &mut far);
    network.wait_until_taken(&listener, SERVER, true, 1);
    echoes(&mut other, &mut served);
    // The relay is stopped and does not continue.
    stop_process(relay);
    assert!(is_reset(&mut near) && is_reset(&mut far));
    echoes(&mut other, &mut served);
    untouched_within_a_second(&network, &listener);
    let mut midspan = midspan;
    assert!(!midspan.wait().success());
    assert!(
        midspan.log().contains("no sign of life"),
        "{}",
        midspan.log()
    );
    no_trace(&network);
}

/// Both processes are stopped for longer than the watchdog waits, as by a frozen cgroup or on a
/// machine that swaps. In whatever order they continue, neither is assumed to be stuck.
#[kernel_test]
fn stopped_together_they_go_on() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let text = format!("[interception]\nwatchdog_timeout = \"2 s\"\n{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    let (relay, helper) = (midspan.relay(), midspan.helper());
    for gap in [0, 10, 50, 1000] {
        stop_process(relay);
        // The helper reads the relay's messages before it is stopped too.
        std::thread::sleep(Duration::from_millis(100));
        stop_process(helper);
        std::thread::sleep(Duration::from_secs(3));
        kill_process(helper, Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_millis(gap));
        kill_process(relay, Signal::CONT).unwrap();
        network.wait_until_taken(&listener, SERVER, true, 1);
        echoes(&mut near, &mut far);
    }
    assert!(!midspan.log().contains("no sign of life"));
    abort(near);
    midspan.stop();
}

#[kernel_test]
fn sessions_go_on_while_it_drains() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let mut midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    kill_process(midspan.helper(), Signal::TERM).unwrap();
    wait_until("draining", || midspan.log().contains("no new connections"));
    network.wait_until_taken(&listener, SERVER, false, 1);
    let mut other = network.connect(SERVER, PORT).unwrap();
    let (mut served, _) = accept(&listener);
    assert_eq!(network.taken(PORT), 1);
    echoes(&mut near, &mut far);
    carries(near, far, 500_000);
    assert!(midspan.wait().success());
    echoes(&mut other, &mut served);
    no_trace(&network);
}

#[kernel_test]
fn nothing_is_left_behind() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let before = output(&network.gateway, "nft", &["-s", "list", "ruleset"]);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let during = output(&network.gateway, "nft", &["-s", "list", "ruleset"]);
    assert!(
        during.contains(before.trim_end()),
        "the host's tables are touched:\n{during}"
    );
    midspan.stop();
    assert_eq!(
        output(&network.gateway, "nft", &["-s", "list", "ruleset"]),
        before
    );
    let parameter = "/proc/sys/net/ipv4/tcp_early_demux";
    assert_eq!(output(&network.gateway, "cat", &[parameter]).trim(), "1");
    no_trace(&network);
}

pub fn no_trace(network: &Network) {
    let tables = output(&network.gateway, "nft", &["list", "tables"]);
    assert!(!tables.contains("midspan"), "{tables}");
    for family in ["-4", "-6"] {
        let rules = output(&network.gateway, "ip", &[family, "rule", "show"]);
        assert!(!rules.contains("7690"), "{rules}");
        let routes = output(
            &network.gateway,
            "ip",
            &[family, "route", "show", "table", "all"],
        );
        assert!(!routes.contains("7690"), "{routes}");
    }
}

/// Names that any process may use do not keep Midspan from starting, or leftovers from being
/// removed.
#[kernel_test]
fn names_that_others_took_stop_nobody() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let squatters = network
        .gateway
        .run(|| {
            let names = [
                "midspan interception midspan",
                "midspan initial windows 7700",
                "midspan ",
                "midspan thin acc",
            ];
            names.map(|name| {
                use std::os::linux::net::SocketAddrExt;
                use std::os::unix::net::{SocketAddr, UnixDatagram};
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
            })
        })
        .unwrap();
    let windows = format!("{TRANSPARENT}client_leg = {{ initial_window = 30 }}\n");
    let midspan = Midspan::ready(&network.gateway, &windows);
    let near = network.connect(SERVER, PORT).unwrap();
    let (_far, _) = accept(&listener);
    assert_eq!(network.taken(PORT), 1);
    abort(near);
    no_other_user_takes_a_lock();
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    drop(midspan);
    let rules = output(&network.gateway, "ip", &["rule", "show"]);
    assert!(rules.contains("lookup 7690"), "{rules}");
    let forward =
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n";
    Midspan::ready(&network.gateway, forward).stop();
    no_trace(&network);
    let rules = output(&network.gateway, "ip", &["rule", "show"]);
    assert!(!rules.contains("proto 77"), "{rules}");
    drop(squatters);
}

/// If the user is root: the lock files exist, and no other user can open or create one.
fn no_other_user_takes_a_lock() {
    // In a user namespace there is no other user.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    if !rustix::process::geteuid().is_root() || !map.contains("4294967295") {
        return;
    }
    let entries = std::fs::read_dir("/run/midspan").unwrap();
    let locks: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "lock")
        })
        .collect();
    assert!(locks.len() >= 2, "{locks:?}");
    let new = std::path::PathBuf::from("/run/midspan/1-new.lock");
    for lock in locks.iter().chain([&new]) {
        let status = std::process::Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["flock", "--nonblock", "--shared"])
            .arg(lock)
            .arg("true")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&status.stderr).into_owned();
        assert!(said.contains("Permission denied"), "{lock:?}: {said}");
    }
}

/// Two runs start at the same moment: one intercepts, and the other reports why it does not.
#[kernel_test]
fn of_two_at_once_one_runs() {
    let network = Network::new();
    for _ in 0..3 {
        let mut both = [(); 2].map(|()| Midspan::start(&network.gateway, TRANSPARENT));
        let ready = both.each_mut().map(|midspan| {
            let program: &mut Program = midspan;
            program.until_ready().is_ok()
        });
        for (midspan, is_ready) in both.into_iter().zip(ready) {
            if is_ready {
                midspan.stop();
            } else {
                let mut midspan = midspan;
                assert!(!midspan.wait().success());
                assert!(midspan.log().contains("another"), "{}", midspan.log());
            }
        }
        assert_ne!(ready[0], ready[1]);
        no_trace(&network);
    }
}

/// `midspan cleanup` removes the leftovers of a killed Midspan, and changes nothing of a running
/// one.
#[kernel_test]
fn cleanup_removes_what_is_left() {
    let network = Network::new();
    let listener = network.listen(PORT);
    (network.gateway)
        .set_parameter("net/ipv4/tcp_early_demux", "1")
        .unwrap();
    let windows = format!("{TRANSPARENT}client_leg = {{ initial_window = 30 }}\n");
    let is_taken = || {
        let near = network.connect(SERVER, PORT).unwrap();
        let (_far, _) = accept(&listener);
        let taken = network.taken(PORT) == 1;
        abort(near);
        wait_until("closed", || network.taken(PORT) == 0);
        taken
    };
    let cleanup = || {
        let launch = Launch::this_program("remove-leftovers").inside(&network.gateway);
        let finished = launch.finish().unwrap();
        assert!(finished.status.success(), "{}", finished.log);
        finished.output.trim().to_owned()
    };
    let mut midspan = Midspan::ready(&network.gateway, &windows);
    assert_eq!(cleanup(), "0");
    assert!(is_taken());
    let rules = || output(&network.gateway, "ip", &["rule", "show"]);
    assert!(rules().contains("proto 77") || rules().contains("7690"));
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    midspan.wait();
    assert!(!is_taken());
    let removed: usize = cleanup().parse().unwrap();
    assert!(removed > 3, "{removed}");
    no_trace(&network);
    let demux = output(
        &network.gateway,
        "cat",
        &["/proc/sys/net/ipv4/tcp_early_demux"],
    );
    assert_eq!(demux.trim(), "1");
    assert!(!rules().contains("7690"));
    assert_eq!(cleanup(), "0");
    // The next start works like a first one.
    let midspan = Midspan::ready(&network.gateway, &windows);
    assert!(is_taken());
    midspan.stop();
    assert_eq!(cleanup(), "0");
}

/// A bypass of everything stays in force through a crash and a restart, until it is switched off.
#[kernel_test]
fn a_bypass_outlives_a_crash() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let state = tempfile::tempdir().unwrap();
    let text = TRANSPARENT.replace(
        "[relay]\n",
        &format!(
            "[relay]\nstate_directory = \"{}\"\n",
            state.path().display()
        ),
    );
    let is_taken = |server: &str| {
        let near = network.connect(server, PORT).unwrap();
        let (_far, _) = accept(&listener);
        let taken = network.taken(PORT) == 1;
        abort(near);
        wait_until("closed", || network.taken(PORT) == 0);
        taken
    };
    let on = |prefix: &str| Request::BypassOn {
        prefix: Some(prefix.to_owned()),
    };
    let mut midspan = Midspan::ready(&network.gateway, &text);
    assert!(is_taken(SERVER));
    let answer = midspan.ask(&on("10.3.0.0/16"));
    assert!(answer.ok && answer.notes.is_empty(), "{answer:?}");
    assert!(!is_taken(SERVER) && is_taken(SERVER6));
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    midspan.wait();
    let midspan = Midspan::ready(&network.gateway, &text);
    assert!(!is_taken(SERVER) && is_taken(SERVER6));
    midspan.wait_for_line("midspan bypass off");
    let status = midspan.ask(&Request::Status).status.unwrap();
    assert_eq!(status.bypasses, ["10.3.0.0/16"]);
    // It also stays in force after a normal end.
    midspan.stop();
    let midspan = Midspan::ready(&network.gateway, &text);
    assert!(!is_taken(SERVER));
    let off = Request::BypassOff { prefix: None };
    assert!(midspan.ask(&off).ok);
    assert!(is_taken(SERVER));
    midspan.stop();
    let midspan = Midspan::ready(&network.gateway, &text);
    assert!(is_taken(SERVER));
    midspan.stop();
    // If there is no file to store the bypass, the command's answer reports this.
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let answer = midspan.ask(&on("10.3.0.0/16"));
    assert!(
        answer
            .notes
            .iter()
            .any(|note| note.contains("state_directory")),
        "{answer:?}"
    );
    midspan.stop();
}
