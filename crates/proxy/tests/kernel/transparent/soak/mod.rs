//! Many sessions over a lossy path, while clients and servers reset, the configuration is reloaded
//! and the relay is killed. All data is correct or ends with an error, and nothing is left.
//!
//! `MIDSPAN_SOAK=full` runs the test at its full length.

mod faults;
mod phases;
mod steady;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::support::*;
use crate::soaking::is_full;
use crate::soaking::resources::{Installed, Use};
use crate::soaking::traffic::{Callers, Outcomes, call, hold, loss, serve};

/// Short sessions of each phase, and long sessions during all phases, in the quick run.
const QUICK: (usize, usize) = (2500, 50);
const FULL: (usize, usize) = (50_000, 500);
/// A time limit far above the time that any machine needs.
const TIME: Duration = Duration::from_secs(600);
/// Permitted growth of the relay's own memory between two equal phases.
const GROWTH_KB: usize = 2048;
/// The address of the forward listener.
const FORWARD: &str = "10.1.0.1:8080";

/// Half of the sessions use the forward listener, the others are intercepted.
fn callers(network: &Network) -> Callers<'_> {
    let server = format!("{SERVER}:{PORT}");
    Callers {
        client: &network.client,
        targets: [FORWARD, &server].map(|target| target.parse().unwrap()),
    }
}

#[kernel_test]
fn nothing_is_lost_or_left() {
    let (short, long) = if is_full() { FULL } else { QUICK };
    let network = lossy_network();
    let before = Installed::of(&network.gateway);
    let stop = Arc::new(AtomicBool::new(false));
    let server = serve(network.listen(PORT), &stop);
    let mut midspan = Midspan::ready(&network.gateway, &configuration(20));
    let outcomes = Arc::new(Outcomes::default());
    let long = hold(callers(&network), long, &outcomes, &stop);
    let start = Instant::now();

    let (mut seen, mut restarts, mut reloads) = (Vec::new(), 0, 0);
    let mut silent_before = 0;
    let installed = Installed::of(&network.gateway);
    println!("  {} short sessions", 4 * short);
    // In the first two phases the relay is killed, which ends Midspan; the last two phases are
    // equal.
    for phase in 0..4 {
        let callers = call(callers(&network), phase, short, &outcomes);
        let mut turn = 0;
        while !callers.is_finished() {
            assert!(start.elapsed() < TIME, "{}", outcomes.shown());
            turn += 1;
            std::thread::sleep(Duration::from_millis(700));
            let answer = midspan.reload(&configuration(20 + turn % 2));
            assert!(answer.ok, "{answer:?}");
            reloads += 1;
            if phase < 2 && turn % 20 == 1 {
                kill_process(midspan.relay(), Signal::KILL).unwrap();
                assert!(!midspan.wait().success());
                midspan = Midspan::ready(&network.gateway, &configuration(20));
                restarts += 1;
                println!("  restarted after {:.1?}", start.elapsed());
            }
        }
        callers.join().unwrap();
        // Sessions that are being reset have their `reset_timeout` left.
        std::thread::sleep(Duration::from_secs(3));
        let relay = midspan.relay();
        let now = Use::of(relay.as_raw_nonzero().get(), &network.gateway);
        println!("  phase {phase}, {:.0?}: {now:?}", start.elapsed());
        seen.push(now);
        if phase == 1 {
            silent_before = outcomes.silent.load(Ordering::Relaxed);
        }
    }
    stop.store(true, Ordering::Relaxed);
    long.join().unwrap();
    println!(
        "  {}; {reloads} reloads, {restarts} restarts",
        outcomes.shown()
    );
    assert_eq!(outcomes.short.load(Ordering::Relaxed), 0);
    assert_eq!(outcomes.wrong.load(Ordering::Relaxed), 0);
    // Without a relay that is killed, no client waits in vain.
    assert_eq!(outcomes.silent.load(Ordering::Relaxed), silent_before);
    let complete = outcomes.complete.load(Ordering::Relaxed);
    assert!(complete > 4 * short * 3 / 4, "too few complete: {complete}");
    let [.., third, fourth] = &seen[..] else {
        unreachable!("four phases");
    };
    assert!(fourth.memory_kb < third.memory_kb + GROWTH_KB);
    // Long sessions reconnect by themselves, and their number varies a little.
    assert!(fourth.descriptors < third.descriptors + 32);
    assert!(fourth.pipes < third.pipes + 32);
    assert!(fourth.sockets < third.sockets + 32);
    let relay = midspan.relay().as_raw_nonzero().get();
    wait_until("without sessions", || network.taken(PORT) == 0);
    println!("  at rest: {:?}", Use::of(relay, &network.gateway));
    // Ports differ from one start to the next.
    assert_eq!(Installed::of(&network.gateway).lines(), installed.lines());
    server.join().unwrap();
    midspan.stop();
    assert_eq!(Installed::of(&network.gateway), before);
}

/// A network whose router loses packets, without what lets a connection wait in vain.
fn lossy_network() -> Network {
    let network = Network::new();
    network
        .client
        .set_parameter("net/ipv4/tcp_tw_reuse", "1")
        .unwrap();
    // A reset behind lost data is answered by an ACK, and only the answer to this ACK ends the connection (RFC 5961). The
    // kernel sends no such ACK within half a second after another one, and then the connection stays silent.
    network
        .gateway
        .set_parameter("net/ipv4/tcp_invalid_ratelimit", "0")
        .unwrap();
    rules(&network.router, &loss("forward"));
    network
}

/// A configuration with both handshakes, and a limit that a reload changes.
fn configuration(seconds: usize) -> String {
    format!(
        "[log]\nlevel = \"warn\"\n{TRANSPARENT}connect_timeout = \"{seconds} s\"\n\
         [[listener]]\nname = \"forward\"\nlisten = \"{FORWARD}\"\nto = \"{SERVER}:{PORT}\"\n"
    )
}
