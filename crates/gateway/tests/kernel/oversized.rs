//! Oversized segments in IP fragments, and windows read with a larger scale, between two network
//! namespaces.
//!
//! Runs as root and, where the kernel allows user namespaces, as an ordinary user.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::two_namespaces::{LIMIT, connect, listener, numbers, two_namespaces};
use midspan_gateway::initial_window::{InitialWindows, MarkedRoute};
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::nftables;
use midspan_linux::packet_socket::{PacketSocket, Sight};
use midspan_linux::tcp::{self, Repair};
use midspan_testbed::{kernel_test, skip, skip_part};
use socket2::{Domain, Socket, Type};

/// Data of an oversized segment in three fragments of 1,500 bytes (Hasegawa §6.4).
const THREE_FRAGMENTS: u16 = 4420;
const NEAR: &str = "192.0.2.1:0";
const FAR: &str = "192.0.2.2:0";

fn route(size: u16) -> MarkedRoute {
    MarkedRoute {
        initial_window: Some(3),
        locked_mtu: Some(u32::from(size) + 40),
        through_device: None,
    }
}

/// The proxy's socket and the client's socket of a connection that the client opened.
fn pair(proxy: &NetworkNamespace, client: &NetworkNamespace) -> (TcpStream, TcpStream) {
    let listening = proxy.run(|| listener(NEAR.parse().unwrap(), None)).unwrap();
    let address = listening.local_addr().unwrap();
    let far: SocketAddr = FAR.parse().unwrap();
    let opened = client.run(move || connect(far, address, None)).unwrap();
    let (accepted, _) = listening.accept().unwrap();
    for end in [&accepted, &opened] {
        end.set_read_timeout(Some(LIMIT)).unwrap();
        end.set_write_timeout(Some(LIMIT)).unwrap();
    }
    (accepted, opened)
}

/// Sets the route of segments in three fragments, until the first value is dropped; returns it and
/// its mark. Prepares the connection for these segments.
fn prepare(proxy: &NetworkNamespace, accepted: &TcpStream) -> (InitialWindows, u32) {
    let wanted = BTreeSet::from([(0, route(THREE_FRAGMENTS))]);
    let installed = proxy
        .run(move || InitialWindows::install_groups(numbers(), &wanted).unwrap())
        .unwrap();
    let mark = installed.mark_of_group(0, route(THREE_FRAGMENTS)).unwrap();
    let repair = Repair {
        segment_ceiling: Some(THREE_FRAGMENTS),
        ..Repair::default()
    };
    tcp::repair(accepted, repair).unwrap();
    (installed, mark)
}

#[kernel_test]
fn what_was_agreed_on_is_read() {
    let (proxy, client) = &two_namespaces();
    let (accepted, opened) = pair(proxy, client);
    let (near, far) = (
        tcp::agreed(&accepted).unwrap(),
        tcp::agreed(&opened).unwrap(),
    );
    assert_eq!((near.segment_size, near.path_mtu), (1460, Some(1500)));
    assert!(near.timestamps);
    // The own scale of one end is the peer's scale of the other end.
    assert_eq!(near.peer_window_scale, far.own_window_scale);
    assert_eq!(near.own_window_scale, far.peer_window_scale);
    let window = tcp::information(&accepted).unwrap().peer_window();
    let repair = Repair {
        window_scales: Some((near.peer_window_scale + 2, near.own_window_scale)),
        ..Repair::default()
    };
    tcp::repair(&accepted, repair).unwrap();
    let after = tcp::agreed(&accepted).unwrap();
    assert_eq!(after.peer_window_scale, near.peer_window_scale + 2);
    assert_eq!(after.own_window_scale, near.own_window_scale);
    // The proxy reads the client's next packet with the new scale.
    (&opened).write_all(b"x").unwrap();
    (&accepted).read_exact(&mut [0]).unwrap();
    let seen = tcp::information(&accepted).unwrap().peer_window();
    assert!(seen >= window * 3, "{window} became {seen}");
}

/// The request has arrived before the repair, and no other ACK follows it: the new window holds at
/// once, and the answer leaves in one flight.
#[kernel_test]
fn a_window_that_is_set_in_the_repair_holds_at_once() {
    let (proxy, client) = &two_namespaces();
    let (accepted, opened) = pair(proxy, client);
    (&opened).write_all(b"request").unwrap();
    let mut request = [0; 7];
    while accepted.peek(&mut request).unwrap() < 7 {}
    let agreed = tcp::agreed(&accepted).unwrap();
    let window = tcp::information(&accepted).unwrap().peer_window();
    let scaled = window << 4;
    let repair = Repair {
        window_scales: Some((agreed.peer_window_scale + 4, agreed.own_window_scale)),
        window: Some(scaled),
        ..Repair::default()
    };
    tcp::repair(&accepted, repair).unwrap();
    assert_eq!(tcp::information(&accepted).unwrap().peer_window(), scaled);
    (&accepted).read_exact(&mut request).unwrap();
    assert_eq!(&request, b"request");
    // All of it arrives, and so does what the client sends afterwards.
    let answer = vec![7; 300_000];
    let sent = answer.clone();
    let reader = std::thread::spawn(move || {
        let mut received = vec![0; 300_000];
        (&opened).read_exact(&mut received).unwrap();
        (&opened).write_all(b"thanks").unwrap();
        received
    });
    (&accepted).write_all(&sent).unwrap();
    assert!(reader.join().unwrap() == answer);
    (&accepted).read_exact(&mut [0; 6]).unwrap();
}

/// A listener with `SO_REUSEADDR`, as the proxy's.
fn reusing(address: SocketAddr) -> TcpListener {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(16).unwrap();
    socket.into()
}

/// A listener binds at once although a thousand repaired connections of its address are open or in
/// TIME_WAIT.
#[kernel_test]
fn repaired_connections_do_not_keep_the_address() {
    let (proxy, client) = &two_namespaces();
    let listening = proxy.run(|| reusing(NEAR.parse().unwrap())).unwrap();
    let address = listening.local_addr().unwrap();
    let far: SocketAddr = FAR.parse().unwrap();
    let mut open = Vec::new();
    for number in 0..1_000 {
        let opened = client.run(move || connect(far, address, None)).unwrap();
        let (accepted, _) = listening.accept().unwrap();
        let agreed = tcp::agreed(&accepted).unwrap();
        let repair = Repair {
            window_scales: Some((agreed.peer_window_scale + 1, agreed.own_window_scale)),
            ..Repair::default()
        };
        tcp::repair(&accepted, repair).unwrap();
        if number % 3 == 0 {
            tcp::route_again(&accepted).unwrap();
        }
        let reuses = rustix::net::sockopt::socket_reuseaddr(&accepted).unwrap();
        assert!(reuses, "SO_REUSEADDR is gone");
        match number % 2 {
            // The proxy closes first: its end stays in TIME_WAIT.
            0 => {
                drop(accepted);
                assert_eq!((&opened).read(&mut [0]).unwrap(), 0);
            }
            _ => open.push((accepted, opened)),
        }
    }
    drop(listening);
    let again = proxy.run(move || reusing(address)).unwrap();
    assert_eq!(again.local_addr().unwrap(), address);
    drop(open);
}

/// One socket sends `bytes` and the other reads them. `meanwhile` runs again and again.
fn transfer(from: TcpStream, to: &TcpStream, bytes: &[u8], mut meanwhile: impl FnMut(&TcpStream)) {
    let watched = from.try_clone().unwrap();
    let sent = bytes.to_vec();
    let sender = std::thread::spawn(move || {
        (&from).write_all(&sent).unwrap();
        from.shutdown(std::net::Shutdown::Write).unwrap();
    });
    to.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let (mut received, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let begun = Instant::now();
    loop {
        match { to }.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        meanwhile(&watched);
        assert!(begun.elapsed() < 3 * LIMIT, "stuck at {}", received.len());
    }
    sender.join().unwrap();
    assert!(received == bytes, "not what was sent");
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * i / 7 % 253) as u8).collect()
}

/// The first data that is written after the change leaves in whole oversized segments, although
/// nothing was in flight.
#[kernel_test]
fn a_live_connection_takes_the_size_at_once() {
    let (proxy, client) = &two_namespaces();
    let (accepted, opened) = pair(proxy, client);
    let (_installed, mark) = prepare(proxy, &accepted);
    let carry = |count: usize| {
        let bytes = pattern(count);
        (&accepted).write_all(&bytes).unwrap();
        let mut received = vec![0; count];
        (&opened).read_exact(&mut received).unwrap();
        assert!(received == bytes, "not what was sent");
        let begun = Instant::now();
        while tcp::information(&accepted).unwrap().unacknowledged() > 0 {
            assert!(begun.elapsed() < LIMIT, "never acknowledged");
            std::thread::sleep(Duration::from_millis(1));
        }
        tcp::information(&accepted).unwrap().segments_sent()
    };
    let before = carry(3000);
    tcp::set_fragmenting(&accepted, true).unwrap();
    tcp::set_mark(&accepted, mark).unwrap();
    tcp::route_again(&accepted).unwrap();
    // Timestamps take 12 bytes of each segment.
    let after = carry(usize::from(THREE_FRAGMENTS) - 12);
    assert_eq!(after - before, 1);
}

#[kernel_test]
fn oversized_segments_leave_as_fragments() {
    let (proxy, client) = &two_namespaces();
    let (accepted, opened) = pair(proxy, client);
    let (_installed, mark) = prepare(proxy, &accepted);
    let mut capture = proxy
        .run(|| PacketSocket::open("near", 4096, Sight::Both).unwrap())
        .unwrap();
    tcp::set_fragmenting(&accepted, true).unwrap();
    tcp::set_mark(&accepted, mark).unwrap();
    let bytes = pattern(400_000);
    let (mut fragments, mut datagrams, mut acks, mut largest) = (0, BTreeSet::new(), 0, 0);
    let mut look = |_: &TcpStream| {
        let seen = |frame: &[u8], is_outgoing: bool, length: usize| {
            let packet = &frame[14..];
            if packet[0] >> 4 != 4 || packet[9] != 6 {
                return;
            }
            if !is_outgoing {
                acks += 1;
                return;
            }
            let offset = u16::from_be_bytes([packet[6], packet[7]]);
            assert_eq!(
                offset & 0x4000,
                0,
                "fragments may not be fragmented further"
            );
            if offset & 0x3fff != 0 {
                fragments += 1;
                largest = largest.max(length - 14);
                datagrams.insert([packet[4], packet[5]]);
            }
        };
        let mut seen = seen;
        while capture
            .receive(|received| seen(received.frame, received.is_outgoing, received.length))
            .is_some()
        {}
    };
    let segment = tcp::information(&accepted).unwrap().segment_size();
    transfer(accepted, &opened, &bytes, &mut look);
    look(&opened);
    assert_eq!(capture.take_drops().unwrap(), 0);
    println!(
        "{fragments} fragments of {} datagrams, {acks} from the client",
        datagrams.len()
    );
    // 12 bytes of each segment are timestamps.
    assert!(segment == 1448 || segment == 4408, "{segment}");
    assert_eq!(largest, 1500);
    assert!(datagrams.len() >= 400_000 / 4408 / 2, "{}", datagrams.len());
    assert!(fragments >= 2 * datagrams.len());
    // One ACK for each oversized segment at most, and few others.
    assert!(acks <= 400_000 / 4408 + 40, "{acks}");
}

/// Makes the client drop fragments; returns the error if that fails.
fn drop_fragments(client: &NetworkNamespace) -> Result<(), nftables::NftablesError> {
    let dropping = client.run(|| {
        nftables::apply(
            "table inet broken {
                chain in {
                    type filter hook prerouting priority -450
                    ip frag-off & 0x3fff != 0 drop
                }
            }",
        )
    });
    dropping.unwrap()
}

fn take_fragments(client: &NetworkNamespace) {
    client
        .run(|| nftables::apply("delete table inet broken"))
        .unwrap()
        .unwrap();
}

/// As soon as the probe has left, segments have the normal size again. Then slow start may begin
/// again.
#[kernel_test]
fn the_first_retransmission_of_a_probe_arrives() {
    let (proxy, client) = &two_namespaces();
    if let Err(error) = drop_fragments(client) {
        return skip(&error.to_string());
    }
    let (accepted, opened) = pair(proxy, client);
    tcp::set_congestion_control(&accepted, "reno").unwrap();
    let (_installed, mark) = prepare(proxy, &accepted);
    tcp::set_fragmenting(&accepted, true).unwrap();
    tcp::set_mark(&accepted, mark).unwrap();
    tcp::route_again(&accepted).unwrap();
    let bytes = pattern(usize::from(THREE_FRAGMENTS) - 12);
    (&accepted).write_all(&bytes).unwrap();
    tcp::set_mark(&accepted, 0).unwrap();
    tcp::set_fragmenting(&accepted, false).unwrap();
    tcp::route_again(&accepted).unwrap();
    let mut received = vec![0; bytes.len()];
    (&opened).read_exact(&mut received).unwrap();
    assert!(received == bytes, "not what was sent");
    let begun = Instant::now();
    let sample = loop {
        let sample = tcp::information(&accepted).unwrap();
        if sample.unacknowledged() == 0 {
            break sample;
        }
        assert!(begun.elapsed() < LIMIT, "never acknowledged");
        std::thread::sleep(Duration::from_millis(1));
    };
    take_fragments(client);
    let again = sample.segments_retransmitted();
    println!("{again} segments sent again");
    // Four segments of the normal size. If one had left oversized again, the number would be one
    // higher, or the reply would be late.
    assert_eq!(sample.segments_sent() - again, 1);
    assert!(again >= 4, "{again}");
    assert!(sample.slow_start_threshold().is_some());
    if !tcp::slow_start_again(&accepted).unwrap() {
        return skip_part("no BBR");
    }
    assert_eq!(tcp::congestion_control(&accepted).unwrap(), "reno");
    let after = tcp::information(&accepted).unwrap();
    assert_eq!(after.slow_start_threshold(), None);
    assert_eq!(after.congestion_window(), sample.congestion_window());
}

#[kernel_test]
fn going_back_cuts_the_queue_again() {
    let (proxy, client) = &two_namespaces();
    if let Err(error) = drop_fragments(client) {
        return skip(&error.to_string());
    }
    let (accepted, opened) = pair(proxy, client);
    let (_installed, mark) = prepare(proxy, &accepted);
    tcp::set_fragmenting(&accepted, true).unwrap();
    tcp::set_mark(&accepted, mark).unwrap();
    let mut went_back = false;
    transfer(accepted, &opened, &pattern(300_000), |watched| {
        if !went_back && tcp::information(watched).unwrap().timeouts_pending() > 0 {
            went_back = true;
            tcp::set_mark(watched, 0).unwrap();
            tcp::set_fragmenting(watched, false).unwrap();
        }
    });
    assert!(went_back, "nothing was lost");
    take_fragments(client);
}

#[kernel_test]
fn nothing_is_changed_after_the_first_byte() {
    let (proxy, client) = &two_namespaces();
    let (accepted, opened) = pair(proxy, client);
    (&accepted).write_all(b"x").unwrap();
    (&opened).read_exact(&mut [0]).unwrap();
    let repair = Repair {
        segment_ceiling: Some(THREE_FRAGMENTS),
        ..Repair::default()
    };
    let error = tcp::repair(&accepted, repair).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    // The connection continues.
    (&accepted).write_all(b"y").unwrap();
    (&opened).read_exact(&mut [0]).unwrap();
}
