//! Many sessions over hops while nodes are killed, stopped, drained and reloaded and the members change. All data is
//! correct or ends with an error, and nothing is left.
//!
//! ```text
//!                          ┌── fra (transit node) ──┐
//! client – ams (ingress) ──┤                        ├── sin (exit) – server
//!                          └── par (transit node) ──┘
//! ```
//!
//! `ams` and `sin` do not reach each other without a transit node. Half of the sessions take the route that the ingress chooses, the others a fixed one over `fra`. The links between
//! the nodes lose 0.5 % of the packets. `MIDSPAN_SOAK=full` runs the tests at their full length.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::members::replace_file;
use super::support::*;
use crate::common::{Control, assert_upgraded};
use crate::soaking::is_full;
use crate::soaking::order::Order;
use crate::soaking::resources::Use;
use crate::soaking::traffic::{Callers, Outcomes, call, hold, loss, serve};

/// Short sessions, and sessions that last.
const QUICK: (usize, usize) = (1500, 30);
const FULL: (usize, usize) = (20_000, 200);
/// A time limit far above the time that any machine needs.
const TIME: Duration = Duration::from_secs(1800);
const PAUSE: Duration = Duration::from_millis(500);
/// How long a node is stopped or missing.
const LASTS: Duration = Duration::from_millis(1200);
/// Descriptors of a relay at rest, more than at first: warm connections, and exchanges.
const MOST_LEFT: usize = 40;

const AMS: usize = 0;
const FRA: usize = 1;
const PAR: usize = 2;
const SIN: usize = 3;
const NAMES: [&str; 4] = ["ams", "fra", "par", "sin"];

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// The relay of a node is killed, and the node begins again.
    Killed(usize),
    /// The same, after a while.
    Missing(usize),
    /// The relay of a node is stopped (SIGSTOP), and continues.
    Stopped(usize),
    /// A node ends after its sessions, and begins again.
    Drained(usize),
    /// The configuration of a node is reloaded with other values.
    Reloaded(usize),
    /// The program of a node takes its own place.
    Upgraded(usize),
    /// This node is no member for a while.
    Removed(usize),
}

impl Fault {
    const ALL: [Self; 16] = [
        Self::Killed(AMS),
        Self::Killed(FRA),
        Self::Killed(SIN),
        Self::Missing(FRA),
        Self::Missing(PAR),
        Self::Stopped(AMS),
        Self::Stopped(PAR),
        Self::Stopped(SIN),
        Self::Drained(FRA),
        Self::Drained(SIN),
        Self::Reloaded(AMS),
        Self::Reloaded(FRA),
        Self::Reloaded(SIN),
        Self::Upgraded(AMS),
        Self::Upgraded(PAR),
        Self::Removed(PAR),
    ];
}

/// The network, the keys and the members.
struct Diamond {
    client: NetworkNamespace,
    nodes: [NetworkNamespace; 4],
    server: NetworkNamespace,
    members: NamedTempFile,
    /// The private key of each node, if the hops are encrypted.
    keys: Option<[NodeFile; 4]>,
}

impl Diamond {
    fn new(is_encrypted: bool) -> Self {
        let [client, server] = ["client", "server"].map(node);
        let nodes = NAMES.map(node);
        let [ams, fra, par, sin] = &nodes;
        link(&client, "eth", ams, "clients", 1);
        link(fra, "ams", ams, "fra", 2);
        link(sin, "fra", fra, "sin", 3);
        link(&server, "eth", sin, "servers", 4);
        link(par, "ams", ams, "par", 5);
        link(sin, "par", par, "sin", 6);
        output(
            &server,
            "ip",
            &["address", "add", "10.4.0.3/24", "dev", "eth"],
        );
        for node in &nodes {
            rules(node, &loss("input"));
            // As in the soak of a gateway.
            node.set_parameter("net/ipv4/tcp_invalid_ratelimit", "0")
                .unwrap();
        }
        route(par, "10.3.0.0/24", "10.6.0.2", "sin");
        route(sin, "10.5.0.0/24", "10.6.0.1", "par");
        let keys = is_encrypted.then(|| NAMES.map(NodeFile::new));
        let members = readable(&members(keys.as_ref(), None));
        Self {
            client,
            nodes,
            server,
            members,
            keys,
        }
    }

    fn callers(&self) -> Callers<'_> {
        Callers {
            client: &self.client,
            targets: ["10.1.0.1:8080", "10.1.0.1:8081"].map(|target| target.parse().unwrap()),
        }
    }

    /// The configuration of a node; reloads change the time-out.
    fn text(&self, node: usize, seconds: usize) -> String {
        let key = self.keys.as_ref().map_or(String::new(), |keys| {
            format!("private_key = \"{}\"\n", keys[node].path().display())
        });
        let own = match node {
            AMS => {
                "[[overlay.route]]\ndestinations = [\"10.4.0.2/32\"]\nexits = [\"sin\"]\n\
                 [[overlay.route]]\ndestinations = [\"10.4.0.3/32\"]\nthrough = [\"fra\", \"sin\"]\n\
                 [[listener]]\nname = \"chosen\"\nlisten = \"10.1.0.1:8080\"\nto = \"10.4.0.2:80\"\n\
                 overlay = true\n\
                 [[listener]]\nname = \"fixed\"\nlisten = \"10.1.0.1:8081\"\nto = \"10.4.0.3:80\"\n\
                 overlay = true\n"
            }
            _ => "",
        };
        let addresses = [
            ["10.2.0.1", "10.5.0.1"],
            ["10.2.0.2", "10.3.0.1"],
            ["10.5.0.2", "10.6.0.1"],
            ["10.3.0.2", "10.6.0.2"],
        ];
        let hops = addresses[node].iter().zip(1..).map(|(address, number)| {
            format!(
                "[[listener]]\nname = \"hops-{number}\"\nmode = \"hop\"\nlisten = \"{address}:7704\"\n\
                 connect_timeout = \"{seconds} s\"\n"
            )
        });
        let hops: String = hops.collect();
        format!(
            "[log]\nlevel = \"warn\"\n[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n\
             drain_timeout = \"2 s\"\n[overlay]\nname = \"{}\"\nmembers = \"{}\"\nmeasure = true\n{key}{own}{hops}",
            NAMES[node],
            self.members.path().display()
        )
    }

    fn start(&self, node: usize) -> Midspan {
        Midspan::ready(&self.nodes[node], &self.text(node, 3))
    }
}

/// The members without one of them.
fn members(keys: Option<&[NodeFile; 4]>, without: Option<usize>) -> String {
    let addresses = ["10.2.0.1", "10.2.0.2", "10.5.0.2", "10.3.0.2"];
    let from = [
        "\"10.2.0.1\", \"10.5.0.1\"",
        "\"10.2.0.2\", \"10.3.0.1\"",
        "\"10.5.0.2\", \"10.6.0.1\"",
        "\"10.3.0.2\", \"10.6.0.2\"",
    ];
    let role = [
        "",
        "transit = true\n",
        "transit = true\n",
        "serves = [\"10.4.0.0/24\"]\n",
    ];
    let entry = |node: usize| {
        let security = match keys {
            Some(keys) => format!("key = \"{}\"\n", keys[node].key()),
            None => "security = \"network\"\n".to_owned(),
        };
        format!(
            "[[node]]\nname = \"{}\"\naddress = \"{}:7704\"\nfrom = [{}]\n{security}{}",
            NAMES[node], addresses[node], from[node], role[node]
        )
    };
    let all = 0..NAMES.len();
    all.filter(|node| Some(*node) != without)
        .map(entry)
        .collect()
}

/// The running nodes.
struct Nodes<'a> {
    diamond: &'a Diamond,
    running: [Midspan; 4],
    turns: usize,
    restarts: usize,
}

impl<'a> Nodes<'a> {
    fn start(diamond: &'a Diamond) -> Self {
        Self {
            diamond,
            running: [AMS, FRA, PAR, SIN].map(|node| diamond.start(node)),
            turns: 0,
            restarts: 0,
        }
    }

    /// The relay of a node. After an upgrade, it is not the helper's only child for a while.
    fn relay(&self, node: usize) -> Pid {
        let pid = i32::try_from(self.running[node].status().relay_pid).unwrap();
        Pid::from_raw(pid).unwrap()
    }

    fn strike(&mut self, fault: Fault) {
        self.turns += 1;
        match fault {
            Fault::Killed(node) => self.kill(node, Duration::ZERO),
            Fault::Missing(node) => self.kill(node, LASTS),
            Fault::Stopped(node) => {
                let relay = self.relay(node);
                kill_process(relay, Signal::STOP).unwrap();
                sleep(LASTS);
                kill_process(relay, Signal::CONT).unwrap();
            }
            Fault::Drained(node) => {
                self.running[node].signal(Signal::TERM);
                let status = self.running[node].wait();
                assert!(status.success(), "{status}");
                self.begin_again(node);
            }
            Fault::Reloaded(node) => {
                let text = self.diamond.text(node, 3 + self.turns % 2);
                let answer = self.running[node].reload(&text);
                assert!(answer.ok, "{answer:?}");
            }
            Fault::Upgraded(node) => assert_upgraded(&self.running[node].upgrade(None)),
            Fault::Removed(node) => {
                let diamond = self.diamond;
                let keys = diamond.keys.as_ref();
                replace_file(diamond.members.path(), &members(keys, Some(node)));
                sleep(LASTS);
                replace_file(diamond.members.path(), &members(keys, None));
            }
        }
    }

    fn kill(&mut self, node: usize, missing: Duration) {
        kill_process(self.relay(node), Signal::KILL).unwrap();
        assert!(!self.running[node].wait().success());
        sleep(missing);
        self.begin_again(node);
    }

    fn begin_again(&mut self, node: usize) {
        self.running[node] = self.diamond.start(node);
        self.restarts += 1;
    }

    fn uses(&self) -> [Use; 4] {
        [AMS, FRA, PAR, SIN].map(|node| {
            let relay = self.relay(node).as_raw_nonzero().get();
            Use::of(relay, &self.diamond.nodes[node])
        })
    }
}

#[kernel_test]
fn nothing_is_lost_over_hops() {
    soak(false);
}

#[kernel_test]
fn nothing_is_lost_over_encrypted_hops() {
    soak(true);
}

fn soak(is_encrypted: bool) {
    let (short, long) = if is_full() { FULL } else { QUICK };
    let diamond = Diamond::new(is_encrypted);
    let stop = Arc::new(AtomicBool::new(false));
    let server = serve(listen(&diamond.server, PORT), &stop);
    let mut nodes = Nodes::start(&diamond);
    let at_first = nodes.uses();
    let outcomes = Arc::new(Outcomes::default());
    let start = Instant::now();
    let long = hold(diamond.callers(), long, &outcomes, &stop);
    let callers = call(diamond.callers(), 0, short, &outcomes);
    let mut order = Order::new(&Fault::ALL, u64::from(is_encrypted));
    let mut happened = BTreeMap::new();
    // Each fault happens at least once.
    while !callers.is_finished() || order.round == 0 {
        assert!(start.elapsed() < TIME, "{}", outcomes.shown());
        let fault = order.next();
        println!("  {:.1?}: {fault:?}", start.elapsed());
        nodes.strike(fault);
        *happened.entry(fault).or_insert(0) += 1;
        sleep(PAUSE);
    }
    callers.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    long.join().unwrap();
    server.join().unwrap();
    println!(
        "  {:.0?}: {}; {} restarts; {happened:?}",
        start.elapsed(),
        outcomes.shown(),
        nodes.restarts
    );
    let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    assert_eq!((read(&outcomes.short), read(&outcomes.wrong)), (0, 0));
    assert!(read(&outcomes.complete) > short / 3, "{}", outcomes.shown());
    wait_within(Duration::from_secs(120), "without sessions", || {
        // Warm connections have the place of a session, but are none.
        let has_none = |node: &Midspan| {
            let listed: Value = page(node, "/sessions");
            listed["sessions"].as_array().unwrap().is_empty()
        };
        nodes.running.iter().all(has_none)
    });
    wait_until("without descriptors of sessions", || {
        let all = nodes.uses();
        let mut both = all.iter().zip(&at_first);
        both.all(|(now, first)| now.descriptors <= first.descriptors + MOST_LEFT)
    });
    println!("  at rest: {:?}", nodes.uses());
    for node in nodes.running {
        node.stop();
    }
}
