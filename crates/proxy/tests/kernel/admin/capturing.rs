//! Captures of both legs of a forward session over loopback.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use midspan_proxy::capture::{CaptureEnd, CaptureError, CaptureOptions, SNAP_LIMIT, capture};

use super::support::*;
use crate::capture_file::CaptureFile;

const COUNT: usize = 30_000;

#[kernel_test]
fn a_forward_session() {
    let proxy = Midspan::here(CONFIGURATION);
    let listener = TcpListener::bind(SERVER).unwrap();
    let (mut client, mut server) = session(&listener);
    // Other sessions at the same time, which must not be captured.
    let (mut other_client, mut other_server) = session(&listener);
    let file = proxy.folder().join("legs.pcapng");
    let options = CaptureOptions {
        proxy: admin().into(),
        session: 1,
        output: file.clone(),
        duration: None,
        packets: 100_000,
        snap: 80,
        client_interface: None,
        server_interface: None,
    };
    let missing = CaptureOptions {
        session: 77,
        snap: SNAP_LIMIT,
        ..options.clone()
    };
    let stop = AtomicBool::new(false);
    let error = capture(&missing, &stop, &mut |_| {}).unwrap_err();
    assert!(matches!(error, CaptureError::NoSession(77)), "{error}");

    // This capture is stopped by hand.
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let (ready, begun) = channel();
    let first = options.clone();
    let thread = std::thread::spawn(move || {
        capture(&first, &stopped, &mut |_| {
            let _ = ready.send(());
        })
    });
    begun.recv_timeout(LIMIT).unwrap();
    client.write_all(&[7; COUNT]).unwrap();
    server.read_exact(&mut [0; COUNT]).unwrap();
    echoes(&mut other_client, &mut other_server);
    // Waits until the last ACKs are captured.
    std::thread::sleep(std::time::Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    let (captured, end) = thread.join().unwrap().unwrap();
    assert_eq!(end, CaptureEnd::Stopped);
    assert_eq!(captured.interfaces, ["lo", "lo"]);
    let content = CaptureFile::read(&file);
    content.is_read_by_tcpdump(&file);
    let count = u32::try_from(COUNT).unwrap();
    // The data towards the server arrives on the client leg and leaves on the server leg; in the
    // opposite direction there are only ACKs.
    for (leg, is_outgoing, bytes) in [
        (0, false, count),
        (0, true, 0),
        (1, true, count),
        (1, false, 0),
    ] {
        let segments = content.segments(leg, is_outgoing);
        // A retransmitted segment counts once.
        let sent = content.reach(leg, is_outgoing);
        assert_eq!(sent, bytes, "leg {leg}, outgoing {is_outgoing}");
        assert!(!segments.is_empty(), "leg {leg}, outgoing {is_outgoing}");
    }
    let addresses = content.segments(1, true);
    assert!(
        addresses
            .iter()
            .all(|segment| segment.destination.to_string() == SERVER)
    );
    assert!(
        content
            .packets
            .iter()
            .all(|packet| packet.bytes.len() <= 80)
    );

    // This capture ends at its limit.
    let again = proxy.folder().join("again.pcapng");
    let limited = CaptureOptions {
        packets: 3,
        output: again,
        ..options.clone()
    };
    // A capture does not overwrite an existing file.
    let refused = capture(&options, &AtomicBool::new(false), &mut |_| {});
    assert!(refused.unwrap_err().to_string().contains("there already"));
    let (ready, begun) = channel();
    let stop = AtomicBool::new(false);
    let thread = std::thread::spawn(move || {
        capture(&limited, &stop, &mut |_| {
            let _ = ready.send(());
        })
    });
    begun.recv_timeout(LIMIT).unwrap();
    for _ in 0..10 {
        echoes(&mut client, &mut server);
    }
    let (captured, end) = thread.join().unwrap().unwrap();
    assert_eq!(end, CaptureEnd::PacketLimit);
    assert_eq!(captured.packets.iter().sum::<u64>(), 3);
    close(client, server);
    close(other_client, other_server);
}
