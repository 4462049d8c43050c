//! Both legs of a transparent session, which have the same addresses and ports.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::capture::{CaptureEnd, CaptureOptions, Captured, SNAP_LIMIT, capture};
use midspan_proxy::client;
use midspan_relay::observation::SessionReport;

use super::support::*;
use crate::capture_file::CaptureFile;

const ADMIN: &str = "127.0.0.1:9464";
const COUNT: usize = 60_000;

fn admin() -> SocketAddr {
    ADMIN.parse().unwrap()
}

fn live(gateway: &NetworkNamespace, id: u64) -> Option<SessionReport> {
    gateway
        .run(move || client::session(&admin().into(), id).unwrap())
        .unwrap()
}

/// Waits until the capture would record the next packet.
fn start(
    gateway: &NetworkNamespace,
    session: u64,
    output: PathBuf,
) -> JoinHandle<(Captured, CaptureEnd)> {
    let (ready, begun) = std::sync::mpsc::channel();
    // A thread that the namespace's thread starts is in the same namespace.
    let thread = gateway
        .run(move || {
            std::thread::spawn(move || {
                let options = CaptureOptions {
                    proxy: admin().into(),
                    session,
                    output,
                    duration: Some(LIMIT),
                    packets: 100_000,
                    snap: SNAP_LIMIT,
                    client_interface: None,
                    server_interface: None,
                };
                let stop = AtomicBool::new(false);
                capture(&options, &stop, &mut |_| {
                    let _ = ready.send(());
                })
                .unwrap()
            })
        })
        .unwrap();
    begun.recv_timeout(LIMIT).unwrap();
    thread
}

/// Captures a session of each family with data in both directions, with these rules on the gateway.
fn both_legs(host_rules: &str, is_masqueraded: bool) {
    let network = Network::new();
    rules(&network.gateway, host_rules);
    let text = format!("[admin]\nlisten = \"{ADMIN}\"\n{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    let listener = network.listen(PORT);
    let directory = tempfile::tempdir().unwrap();
    for (id, (server_name, client_name)) in (1..).zip(BOTH) {
        let mut client = network.connect(server_name, PORT).unwrap();
        let (mut server, _) = accept(&listener);
        echoes(&mut client, &mut server);
        let report = live(&network.gateway, id).unwrap();
        assert_eq!(report.handshake, "end-to-end");
        assert_eq!(report.client_leg.peer, Some(client.local_addr().unwrap()));
        assert_eq!(report.server_leg.peer, Some(client.peer_addr().unwrap()));
        assert_eq!(report.server_leg.local, report.client_leg.peer);
        assert!(report.setup_seconds.unwrap() > 0.0);

        let file = directory.path().join(format!("{id}.pcapng"));
        let capture = start(&network.gateway, id, file.clone());
        let ends = [client.local_addr().unwrap(), client.peer_addr().unwrap()];
        carries(
            client.try_clone().unwrap(),
            server.try_clone().unwrap(),
            COUNT,
        );
        carries(server, client, COUNT);
        let (captured, end) = capture.join().unwrap();
        assert_eq!(end, CaptureEnd::SessionEnded);
        assert_eq!(captured.interfaces, ["acc", "wan"]);
        assert_eq!(captured.missed, 0);

        let content = CaptureFile::read(&file);
        assert_eq!(content.interfaces, ["client leg", "server leg"]);
        assert_eq!(
            captured.packets.iter().sum::<u64>(),
            content.packets.len() as u64
        );
        assert!(ends[0].ip().to_string() == client_name, "{ends:?}");
        check(&content, ends, is_masqueraded);
        content.is_read_by_tcpdump(&file);
        wait_until("gone", || live(&network.gateway, id).is_none());
    }
    midspan.stop();
}

fn check(content: &CaptureFile, [client, server]: [SocketAddr; 2], is_masqueraded: bool) {
    for leg in [0, 1] {
        // The client's data arrives on the client leg and leaves on the server leg.
        let from_client = content.segments(leg, leg == 1);
        let from_server = content.segments(leg, leg == 0);
        for segment in &from_client {
            assert_eq!(segment.destination, server, "leg {leg}");
            assert_eq!(segment.source.port(), client.port(), "leg {leg}");
            let is_own = segment.source == client;
            assert_eq!(is_own, leg == 0 || !is_masqueraded, "leg {leg}");
        }
        for segment in &from_server {
            assert_eq!(segment.source, server, "leg {leg}");
        }
        for segments in [&from_client, &from_server] {
            assert!(segments.iter().any(|segment| segment.is_end), "leg {leg}");
        }
        // If segments of two connections were mixed, the range of sequence numbers would be random.
        let count = u32::try_from(COUNT).unwrap();
        for is_outgoing in [true, false] {
            // The FIN counts as one byte.
            let reach = content.reach(leg, is_outgoing);
            assert!((count..=count + 1).contains(&reach), "leg {leg}: {reach}");
        }
    }
}

#[kernel_test]
fn legs_are_told_apart() {
    both_legs("", false);
}

#[kernel_test]
fn legs_are_told_apart_behind_nat() {
    both_legs(STRICT, true);
}
