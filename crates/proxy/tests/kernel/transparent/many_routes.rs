//! A router with a large routing table whose routes change all the time.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use rustix::process::{Signal, kill_process};

use super::support::*;

/// The environment variable that sets another number of routes, for measurements.
const VARIABLE: &str = "MIDSPAN_TEST_ROUTES";
const ROUTES: usize = 50_000;
/// Pause between two changes.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the test observes the helper.
const TIME: Duration = Duration::from_secs(5);

/// Runs `ip -batch` with these lines (ip(8)).
fn batch(namespace: &NetworkNamespace, lines: &str) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped());
    let mut child = namespace.spawn(command).unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

fn route_line(verb: &str, number: usize) -> String {
    let (a, b, c) = (number >> 16, number >> 8 & 255, number & 255);
    format!("route {verb} blackhole {}.{b}.{c}.0/24\n", 20 + a)
}

/// CPU time of a process.
fn cpu_time(id: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// With many routes that change often, commands are answered and a stopped relay is noticed. The
/// test prints the CPU time.
#[kernel_test]
fn the_helper_keeps_up() {
    let count = std::env::var(VARIABLE).map_or(ROUTES, |text| text.parse().unwrap());
    let network = Network::new();
    let listener = network.listen(PORT);
    let lines: String = (0..count).map(|number| route_line("add", number)).collect();
    batch(&network.gateway, &lines);
    let windows = "client_leg = { initial_window = 30 }\n";
    let midspan = Midspan::ready(&network.gateway, &format!("{TRANSPARENT}{windows}"));
    assert!(network.is_taken(&listener, SERVER, 0).unwrap());
    // There are more routes than Midspan copies: it runs without initial windows and reports that.
    wait_until("said", || midspan.status().notices.len() == 1);
    assert!(midspan.status().notices[0].contains("initial windows"));
    let (end, changes) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                for verb in ["del", "add"] {
                    batch(&network.gateway, &route_line(verb, 7));
                    changes.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                }
            }
        });
        let helper = midspan.helper().as_raw_nonzero().get();
        let (start, before) = (Instant::now(), cpu_time(helper));
        let mut slowest = Duration::ZERO;
        while start.elapsed() < TIME {
            let asked = Instant::now();
            assert_eq!(midspan.status().state, "running");
            slowest = slowest.max(asked.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        let used = cpu_time(helper).saturating_sub(before);
        let share = 100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64();
        let relay = midspan.relay();
        let changed = changes.load(Ordering::Relaxed);
        stop_process(relay);
        let stopped = Instant::now();
        wait_until("passing", || midspan.status().state == "passing");
        let opened = stopped.elapsed();
        let result = network.is_taken(&listener, SERVER, 0);
        kill_process(relay, Signal::CONT).unwrap();
        end.store(true, Ordering::Relaxed);
        assert!(!result.unwrap());
        println!(
            "  {count} routes, {changed} changes in {:.1} s: the helper takes {share:.1} % of a \
             processor, the slowest of its answers {:.0} ms; connections pass {:.0} ms after the \
             relay was stopped",
            TIME.as_secs_f64(),
            slowest.as_secs_f64() * 1e3,
            opened.as_secs_f64() * 1e3,
        );
    });
    network.wait_until_taken(&listener, SERVER, true, 0);
    midspan.stop();
}
