//! A transparent listener as the ingress: a client's SYN is held over all three nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use midspan_proxy::overlay::OverlayReport;

use super::support::*;

const TRANSPARENT: &str = "[[listener]]\nname = \"acc\"\nmode = \"transparent\"\n\
                           interfaces = [\"clients\"]\noverlay = true\nconnect_timeout = \"10 s\"\n";

/// The sites. The client's packets to the servers pass ams; beyond ams, only the overlay leads there.
pub fn sites() -> Sites {
    routed(Sites::new(""))
}

/// The same of these sites.
pub fn routed(sites: Sites) -> Sites {
    route(&sites.client, "10.0.0.0/8", "10.1.0.1", "eth");
    route(&sites.ams, "10.4.0.0/24", "10.2.0.2", "fra");
    sites
}

/// The ingress, with further keys of its listener.
pub fn ingress(sites: &Sites, keys: &str) -> Midspan {
    let text = sites.text(&blocks()[1]);
    let (overlay, _) = text.split_once("[[listener]]").unwrap();
    Midspan::ready(&sites.ams, &format!("{overlay}{TRANSPARENT}{keys}"))
}

pub fn call(sites: &Sites, port: u16, timeout: Duration) -> std::io::Result<TcpStream> {
    connect_from(&sites.client, SERVER, port, timeout)
}

/// Both ends of a session.
fn opened(sites: &Sites) -> (TcpStream, TcpStream) {
    let client = call(sites, PORT, LIMIT).unwrap();
    let (server, seen) = accept(&sites.listener);
    assert_eq!(seen.ip().to_string(), "10.4.0.1");
    (client, server)
}

#[kernel_test]
fn sessions_of_a_gateway_pass_three_nodes() {
    let sites = sites();
    let nodes = [sites.sin(), sites.fra(), ingress(&sites, "")];
    let (mut client, mut server) = opened(&sites);
    let peer = client.peer_addr().unwrap();
    assert_eq!(peer, format!("{SERVER}:{PORT}").parse().unwrap());
    echoes(&mut client, &mut server);
    let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    carries(from_server, to_client, 3_000_000);
    carries(client, server, 3_000_000);
    // The server sends first: its bytes follow the answer of the nodes.
    let (mut client, mut server) = opened(&sites);
    server.write_all(b"banner").unwrap();
    assert_eq!(&exactly::<6>(&mut client), b"banner");
    drop((client, server));
    for node in nodes {
        let log = node.end();
        for fault in ["hop refused", "client refused", "route broken"] {
            assert!(!log.contains(fault), "{log}");
        }
    }
}

#[kernel_test]
fn half_close_and_reset_pass_from_a_gateway() {
    let sites = sites();
    let _nodes = [sites.sin(), sites.fra(), ingress(&sites, "")];
    assert_half_closes_pass(|| opened(&sites));
    assert_resets_pass(|| opened(&sites));
}

#[kernel_test]
fn a_held_syn_gets_the_answer_of_the_server() {
    let sites = sites();
    let _nodes = [sites.sin(), sites.fra(), ingress(&sites, "")];
    let refused = call(&sites, 81, LIMIT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    // The exit does not connect to itself.
    let own = connect_from(&sites.client, "10.4.0.1", 22, LIMIT).unwrap_err();
    assert_eq!(own.kind(), ErrorKind::ConnectionRefused, "{own}");
    // A silent server; no node has answered for it.
    let filter = format!(
        "table inet path {{\nchain in {{\ntype filter hook prerouting priority 0;\n\
         tcp dport {PORT} drop\n}}\n}}\n"
    );
    rules(&sites.server, &filter);
    let silent = call(&sites, PORT, Duration::from_secs(4)).unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::TimedOut, "{silent}");
    // It answers while the client still waits.
    let waiting = {
        let socket = socket(&sites.client, SERVER);
        let address: SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
        std::thread::spawn(move || {
            socket.connect_timeout(&address.into(), LIMIT).unwrap();
            bounded(socket.into())
        })
    };
    std::thread::sleep(Duration::from_millis(500));
    rules(&sites.server, "delete table inet path\n");
    let mut client: TcpStream = waiting.join().unwrap();
    client.write_all(b"ping").unwrap();
    // An attempt that the exit has given up at this moment may have reached the server, too.
    let mut server = loop {
        let (mut server, _) = accept(&sites.listener);
        let mut bytes = [0; 4];
        if server.read_exact(&mut bytes).is_ok() {
            assert_eq!(&bytes, b"ping");
            break server;
        }
    };
    server.write_all(b"pong").unwrap();
    assert_eq!(&exactly::<4>(&mut client), b"pong");
}

#[kernel_test]
fn without_a_route_a_held_syn_is_refused() {
    let sites = sites();
    let [_sin, fra, ams] = [sites.sin(), sites.fra(), ingress(&sites, "")];
    drop(opened(&sites));
    drop(fra);
    let refused = call(&sites, PORT, LIMIT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    wait_until("logged", || ams.log().contains("route broken"));
    assert!(ams.log().contains("connection_refused"), "{}", ams.log());
    let _fra = sites.fra();
    let (mut client, mut server) = opened(&sites);
    echoes(&mut client, &mut server);
}

#[kernel_test]
fn a_stopped_node_is_silence_for_a_held_syn() {
    let sites = sites();
    let fra = sites.fra();
    let _ams = ingress(&sites, "");
    // Its kernel still accepts connections. Its watchdog ends it later.
    stop_process(fra.relay());
    let silent = call(&sites, PORT, Duration::from_millis(1500)).unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::TimedOut, "{silent}");
}

#[kernel_test]
fn other_destinations_of_a_gateway_leave_at_the_ingress() {
    let sites = sites();
    route(&sites.fra, "10.1.0.0/24", "10.2.0.1", "ams");
    let near = listen(&sites.fra, 90);
    let _nodes = [sites.sin(), sites.fra(), ingress(&sites, "")];
    let mut client = connect_from(&sites.client, "10.2.0.2", 90, LIMIT).unwrap();
    let (mut server, seen) = accept(&near);
    assert_eq!(seen.ip().to_string(), "10.1.0.2");
    echoes(&mut client, &mut server);
    let refused = call(&sites, 81, LIMIT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    let (mut client, mut server) = opened(&sites);
    echoes(&mut client, &mut server);
}

#[kernel_test]
fn a_gateway_and_an_exit_keep_the_address_of_the_client() {
    let sites = sites();
    route(&sites.server, "10.0.0.0/8", "10.4.0.1", "eth");
    let keys = "mode = \"hop\"\nsource = \"client\"\nclients = [\"10.1.0.0/24\"]";
    let text = sites.text(&blocks()[3]).replace("mode = \"hop\"", keys);
    let _nodes = [
        Midspan::ready(&sites.sin, &text),
        sites.fra(),
        ingress(&sites, ""),
    ];
    let mut client = call(&sites, PORT, LIMIT).unwrap();
    let (mut server, seen) = accept(&sites.listener);
    assert_eq!(seen, client.local_addr().unwrap());
    echoes(&mut client, &mut server);
    let refused = call(&sites, 81, LIMIT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
}

#[kernel_test]
fn a_held_syn_takes_a_warm_connection() {
    let sites = sites();
    let [_sin, _fra, ams] = [sites.sin(), sites.fra(), ingress(&sites, "")];
    drop(opened(&sites));
    let warm = || {
        let report: OverlayReport = page(&ams, "/overlay");
        let mut nodes = report.nodes.into_iter();
        nodes.find(|node| node.name == "fra").unwrap().warm
    };
    wait_until("there are warm connections", || warm().ready >= 2);
    rules(&sites.fra, NO_NEW_ONES);
    let (mut client, mut server) = opened(&sites);
    echoes(&mut client, &mut server);
    assert_eq!((warm().used, warm().missed), (1, 1));
}
