//! The choice of a route: three nodes, of which each reaches each other one.
//!
//! ```text
//! client – ams (ingress) ──────────── sin (exit) – server
//!              └── fra (transit node) ──┘
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::overlay::{CandidateRow, OverlayReport, RoutesReport};
use midspan_testbed::network::{End, Link};
use rustix::process::Signal;
use tempfile::NamedTempFile;

use super::support::*;

/// Bytes of a download: more segments than the fast estimate of the loss needs.
const DOWNLOAD: usize = 400_000;

/// How often a node on probation is looked at, and how long that may take: probation is 30 s. The losses of a link are
/// random, so some runs need more than a minute to show them.
const PAUSE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(300);

struct Triangle {
    client: NetworkNamespace,
    ams: NetworkNamespace,
    fra: NetworkNamespace,
    sin: NetworkNamespace,
    _server: NetworkNamespace,
    listener: TcpListener,
    members: [NamedTempFile; 3],
}

impl Triangle {
    fn new() -> Self {
        let [client, ams, fra, sin, server] = ["client", "ams", "fra", "sin", "server"].map(node);
        link(&client, "eth", &ams, "clients", 1);
        link(&fra, "ams", &ams, "fra", 2);
        link(&sin, "fra", &fra, "sin", 3);
        link(&server, "eth", &sin, "servers", 4);
        // Each lost packet is one segment.
        let far = End::numbered(&sin, "ams", 5, 2).without_offloads();
        let near = End::numbered(&ams, "sin", 5, 1).without_offloads();
        Link::between(far, near).make().unwrap();
        // Without the overlay, too, ams reaches the server.
        route(&ams, "10.4.0.0/24", "10.5.0.2", "sin");
        route(&server, "10.5.0.0/24", "10.4.0.1", "eth");
        let listener = listen(&server, PORT);
        // The addresses at which each node reaches the others.
        let members = [
            ["10.2.0.1", "10.2.0.2", "10.5.0.2"],
            ["10.2.0.1", "10.2.0.2", "10.3.0.2"],
            ["10.5.0.1", "10.3.0.1", "10.3.0.2"],
        ];
        Self {
            client,
            ams,
            fra,
            sin,
            _server: server,
            listener,
            members: members.map(|addresses| readable(&members_of(addresses))),
        }
    }

    fn start(&self, place: usize, at: &NetworkNamespace, text: &str) -> Midspan {
        let name = ["ams", "fra", "sin"][place];
        let members = self.members[place].path().display();
        // Each session needs a new connection, so that rules can refuse it.
        let overlay = format!(
            "[overlay]\nname = \"{name}\"\nmembers = \"{members}\"\nwarm_connections = false\n"
        );
        Midspan::ready(at, &format!("{RELAY}{overlay}{text}"))
    }

    /// The ingress, with further keys and routes of the overlay.
    fn ams(&self, overlay: &str) -> Midspan {
        let socks = "[[listener]]\nname = \"socks\"\nmode = \"socks5\"\nlisten = \"10.1.0.1:1080\"\n\
                     clients = [\"10.1.0.0/24\"]\noverlay = true\n";
        let hops = hops(&["10.2.0.1", "10.5.0.1"]);
        // No session takes another route by chance.
        let certain = "explore = \"0 %\"\ncontrol_group = \"0 %\"\n";
        self.start(0, &self.ams, &format!("{certain}{overlay}{hops}{socks}"))
    }

    /// The ingress, once it chooses the straight route. These links have no delay, so a thread that waits for its
    /// processor during the first exchange makes a link look slow, and the route over it is not chosen for minutes. Then
    /// the ingress is started again.
    fn straight(&self) -> Midspan {
        for _ in 0..5 {
            let ams = self.ams(TO_SIN);
            wait_for_nodes(&ams);
            if decision(&ams).0 == ["sin"] {
                return ams;
            }
            ams.stop();
        }
        panic!("the straight route was never chosen");
    }

    fn fra(&self) -> Midspan {
        let text = format!("measure = true\n{}", hops(&["10.2.0.2", "10.3.0.1"]));
        self.start(1, &self.fra, &text)
    }

    fn sin(&self) -> Midspan {
        let text = format!("measure = true\n{}", hops(&["10.3.0.2", "10.5.0.2"]));
        self.start(2, &self.sin, &text)
    }

    /// A download by SOCKS5. Returns the address from which the server was reached.
    fn download(&self) -> SocketAddr {
        let serving = self.serve();
        let mut client = from(&self.client, "10.1.0.1", 1080);
        client.write_all(b"\x05\x01\x00").unwrap();
        assert_eq!(exactly::<2>(&mut client), *b"\x05\x00");
        let request = [b"\x05\x01\x00", &address(2, PORT)[..]].concat();
        client.write_all(&request).unwrap();
        assert_eq!(exactly::<10>(&mut client)[1], 0);
        let mut data = Vec::new();
        client.read_to_end(&mut data).unwrap();
        assert_eq!(data.len(), DOWNLOAD);
        serving.join().unwrap()
    }

    fn serve(&self) -> JoinHandle<SocketAddr> {
        let listener = self.listener.try_clone().unwrap();
        std::thread::spawn(move || {
            let (mut server, peer) = accept(&listener);
            server.write_all(&[7; DOWNLOAD]).unwrap();
            peer
        })
    }
}

fn members_of([ams, fra, sin]: [&str; 3]) -> String {
    format!(
        "[[node]]\nname = \"ams\"\naddress = \"{ams}:7704\"\nfrom = [\"10.2.0.1\", \"10.5.0.1\"]\n\
         security = \"network\"\n\
         [[node]]\nname = \"fra\"\naddress = \"{fra}:7704\"\nfrom = [\"10.2.0.2\", \"10.3.0.1\"]\n\
         security = \"network\"\ntransit = true\n\
         [[node]]\nname = \"sin\"\naddress = \"{sin}:7704\"\nfrom = [\"10.3.0.2\", \"10.5.0.2\"]\n\
         security = \"network\"\nserves = [\"10.4.0.0/24\"]\n"
    )
}

/// Listeners for hops at these addresses.
fn hops(addresses: &[&str]) -> String {
    let listener = |(number, address): (usize, &&str)| {
        format!(
            "[[listener]]\nname = \"hops-{number}\"\nmode = \"hop\"\nlisten = \"{address}:7704\"\n\
             connect_timeout = \"3 s\"\n"
        )
    };
    addresses.iter().enumerate().map(listener).collect()
}

/// The route that a session to the server would take now: its nodes, and why.
fn decision(ams: &Midspan) -> (Vec<String>, String) {
    let report: RoutesReport = page(ams, "/overlay/routes?destination=10.4.0.2:80");
    (report.route, report.reason)
}

/// Waits until both other nodes are up, as the ingress finds them.
fn wait_for_nodes(ams: &Midspan) {
    wait_within(PATIENCE, "both nodes are up", || {
        std::thread::sleep(PAUSE);
        let report: OverlayReport = page(ams, "/overlay");
        report.nodes.len() == 2 && report.nodes.iter().all(|node| node.health == "up")
    });
}

const TO_SIN: &str = "[[overlay.route]]\ndestinations = [\"10.4.0.0/24\"]\nexits = [\"sin\"]\n";
const OVER_FRA: [&str; 2] = ["fra", "sin"];

#[kernel_test]
fn without_measurements_sessions_leave_here_or_go_straight() {
    let triangle = Triangle::new();
    let _sin = triangle.sin();
    let exit: SocketAddr = "10.4.0.1:0".parse().unwrap();
    let ingress: SocketAddr = "10.5.0.1:0".parse().unwrap();
    let ams = triangle.ams("choose = true\n");
    assert_eq!(triangle.download().ip(), ingress.ip());
    assert_eq!(decision(&ams), (Vec::new(), "unmeasured".to_owned()));
    ams.stop();
    let ams = triangle.ams(TO_SIN);
    assert_eq!(triangle.download().ip(), exit.ip());
    assert_eq!(decision(&ams).0, ["sin"]);
    // Its measurements begin with the first session.
    let report: OverlayReport = page(&ams, "/overlay");
    let sin = report.nodes.iter().find(|node| node.name == "sin").unwrap();
    assert!(sin.leg.rtt_seconds.is_some(), "{sin:?}");
}

#[kernel_test]
fn a_lossy_leg_is_left_and_a_dead_transit_node_too() {
    let triangle = Triangle::new();
    let [_sin, fra] = [triangle.sin(), triangle.fra()];
    let ams = triangle.straight();
    // One of ten packets on the straight link is lost, in each direction.
    let lossy = |interface: &str| {
        format!(
            "table inet lossy {{\nchain in {{\ntype filter hook input priority 0; policy accept;\n\
             iifname \"{interface}\" numgen random mod 10 == 0 drop\n}}\n}}\n"
        )
    };
    rules(&triangle.ams, &lossy("sin"));
    rules(&triangle.sin, &lossy("ams"));
    wait_within(PATIENCE, "sessions go over fra", || {
        triangle.download();
        std::thread::sleep(PAUSE);
        decision(&ams).0 == OVER_FRA
    });
    let before = carried(&fra);
    triangle.download();
    assert!(carried(&fra) > before);
    // From here on the straight link loses nothing: it may be the only way, and sessions must not fail by chance.
    // The present route stays for minutes.
    for node in [&triangle.ams, &triangle.sin] {
        rules(node, "delete table inet lossy");
    }
    // The transit node accepts no new connections; the exchanges continue. The session takes the straight
    // route, without an error for its client, and so does the next one.
    rules(&triangle.fra, NO_NEW_ONES);
    let begin = Instant::now();
    triangle.download();
    assert!(begin.elapsed() >= Duration::from_millis(1_500));
    let log = ams.log();
    assert!(log.contains("route broken"), "{log}");
    assert_eq!(decision(&ams).0, ["sin"]);
    // It dies, comes back, and is on probation.
    drop(fra);
    triangle.download();
    rules(&triangle.fra, "delete table inet closed");
    let _fra = triangle.fra();
    triangle.download();
    assert_eq!(decision(&ams).0, ["sin"]);
}

/// How many sessions a node has carried.
fn carried(midspan: &Midspan) -> u64 {
    let report: midspan_proxy::summary::Summary = page(midspan, "/summary");
    report.totals.opened
}

#[kernel_test]
fn a_node_that_will_end_reports_it() {
    let triangle = Triangle::new();
    let _sin = triangle.sin();
    let members = triangle.members[1].path().display();
    let keys = format!(
        "{RELAY}lame_duck_time = \"60 s\"\n[overlay]\nname = \"fra\"\nmembers = \"{members}\"\n\
         measure = true\n"
    );
    let text = format!("{keys}{}", hops(&["10.2.0.2", "10.3.0.1"]));
    let fra = Midspan::ready(&triangle.fra, &text);
    let ams = triangle.ams(TO_SIN);
    wait_for_nodes(&ams);
    let overload = || {
        let report: OverlayReport = page(&ams, "/overlay");
        let mut nodes = report.nodes.into_iter();
        nodes.find(|node| node.name == "fra").unwrap().overload
    };
    assert_eq!(overload(), None);
    // It still accepts connections.
    fra.signal(Signal::TERM);
    wait_until("fra is draining", || {
        overload().as_deref() == Some("draining")
    });
    let report: RoutesReport = page(&ams, "/overlay/routes?destination=10.4.0.2:80");
    let over_fra = |candidate: &&CandidateRow| candidate.route == OVER_FRA;
    let obstacle = &report.candidates.iter().find(over_fra).unwrap().obstacle;
    assert_eq!(obstacle.as_deref(), Some("fra is draining"));
}
