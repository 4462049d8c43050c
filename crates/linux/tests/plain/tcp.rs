//! Options and `TCP_INFO` of real connections on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use midspan_linux::capability::{self, Capability};
use midspan_linux::tcp;
use midspan_units::{ByteSize, Dscp, TimeSpan};

const LIMIT: Duration = Duration::from_secs(10);

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    (opened, accepted)
}

#[test]
fn information_counts_what_was_sent() {
    let (mut opened, mut accepted) = connection();
    let data = vec![1; 100_000];
    let reader = std::thread::spawn(move || {
        let mut read = vec![0; 100_000];
        accepted.read_exact(&mut read).unwrap();
        accepted
    });
    opened.write_all(&data).unwrap();
    let accepted = reader.join().unwrap();
    let start = Instant::now();
    while tcp::unacknowledged_bytes(&opened).unwrap() != ByteSize::default() {
        assert!(start.elapsed() < LIMIT, "never acknowledged");
        std::thread::sleep(Duration::from_millis(1));
    }
    let sender = tcp::information(&opened).unwrap();
    assert!(sender.round_trip_time().is_some());
    assert!(sender.minimum_round_trip_time().is_some());
    assert!(sender.delivery_rate().is_some());
    assert!(sender.segment_size() > 500);
    assert!(sender.congestion_window() >= 10);
    assert!(sender.peer_window() > 0);
    assert_eq!(sender.unacknowledged(), 0);
    assert_eq!(sender.not_sent(), ByteSize::default());
    // The SYN counts as one.
    assert!((100_000..=100_001).contains(&sender.bytes_acknowledged().bytes()));
    let receiver = tcp::information(&accepted).unwrap();
    assert_eq!(receiver.bytes_received().bytes(), 100_000);
    assert_eq!(receiver.bytes_acknowledged().bytes(), 0);
}

#[test]
fn the_list_of_connections_has_each_end_with_its_information() {
    let (opened, accepted) = connection();
    // A socket for both versions of IP, whose peer has an IPv4 address; without IPv6, another one.
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("127.0.0.1:0"));
    let listener = listener.unwrap();
    let port = listener.local_addr().unwrap().port();
    let both = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let list = tcp::TcpSockets::open().unwrap();
    for _ in 0..2 {
        let mut found = Vec::new();
        list.each(|socket| found.push(socket)).unwrap();
        let ends = |local, remote| {
            let same = |socket: &&tcp::TcpSocket| (socket.local, socket.remote) == (local, remote);
            found.iter().filter(same).collect::<Vec<_>>()
        };
        for socket in [&opened, &accepted, &both] {
            let (local, remote) = (socket.local_addr().unwrap(), socket.peer_addr().unwrap());
            let [own] = ends(local, remote)[..] else {
                panic!("{local} {remote}: {found:?}");
            };
            let known = tcp::information(socket).unwrap();
            assert_eq!(
                own.information.congestion_window(),
                known.congestion_window()
            );
            assert_eq!(own.information.segment_size(), known.segment_size());
            // The same socket by its name.
            let again = list.read(&own.name).unwrap().unwrap();
            assert_eq!((again.local, again.cookie), (own.local, own.cookie));
            assert_eq!(again.information.segment_size(), known.segment_size());
            // The other end is another socket.
            let [other] = ends(remote, local)[..] else {
                panic!("{remote} {local}: {found:?}");
            };
            assert_ne!(own.cookie, other.cookie);
        }
    }
    // A socket that is gone: closed by a reset, so it does not wait.
    let (local, remote) = (opened.local_addr().unwrap(), opened.peer_addr().unwrap());
    let mut name = None;
    list.each(|socket| {
        if (socket.local, socket.remote) == (local, remote) {
            name = Some(socket.name);
        }
    })
    .unwrap();
    tcp::set_reset_on_close(&opened, true).unwrap();
    drop(opened);
    assert!(list.read(&name.unwrap()).unwrap().is_none());
    drop(accepted);
    let mut listening = false;
    list.each(|socket| listening |= socket.remote.port() == 0)
        .unwrap();
    assert!(!listening, "a listening socket is no connection");
}

#[test]
fn unread_data_stays_in_the_send_queue() {
    let (mut opened, _accepted) = connection();
    opened.set_nonblocking(true).unwrap();
    let data = vec![1; 1 << 20];
    let mut written = 0;
    let start = Instant::now();
    loop {
        match opened.write(&data) {
            Ok(bytes) => written += bytes as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < LIMIT);
    }
    let queued = tcp::unacknowledged_bytes(&opened).unwrap().bytes();
    assert!(0 < queued && queued <= written, "{queued} of {written}");
    assert!(tcp::information(&opened).unwrap().not_sent().bytes() <= queued);
    // The kernel counts these times in ticks of some milliseconds.
    while tcp::information(&opened).unwrap().busy_time() == TimeSpan::ZERO {
        assert!(start.elapsed() < LIMIT, "never busy");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_pacing_rate_beyond_32_bits_is_kept() {
    let (opened, _accepted) = connection();
    let rate = "100 Gbit/s".parse().unwrap();
    tcp::set_pacing_rate(&opened, Some(rate)).unwrap();
    assert_eq!(tcp::pacing_rate(&opened).unwrap(), Some(rate));
}

#[test]
fn closing_resets_when_asked_to() {
    for reset in [true, false] {
        let (opened, mut accepted) = connection();
        tcp::set_reset_on_close(&opened, true).unwrap();
        tcp::set_reset_on_close(&opened, reset).unwrap();
        drop(opened);
        accepted.set_read_timeout(Some(LIMIT)).unwrap();
        let read = accepted.read(&mut [0; 1]);
        if reset {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
        } else {
            assert_eq!(read.unwrap(), 0);
        }
    }
}

/// Capabilities belong to a thread, so the others keep theirs.
#[test]
fn a_mark_is_inherited_by_accepted_connections() {
    if !capability::is_held(Capability::CAP_NET_ADMIN).unwrap() {
        println!("skipped: no CAP_NET_ADMIN");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    tcp::set_mark(&listener, 0x0300_0000).unwrap();
    let _opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(tcp::mark(&accepted).unwrap(), 0x0300_0000);
}

#[test]
fn accepted_sockets_inherit_the_dscp_of_the_listener() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else {
            println!("skipped: this machine has no {address}");
            continue;
        };
        let class = "af41".parse().unwrap();
        assert_eq!(tcp::dscp(&listener).unwrap(), Dscp::default());
        tcp::set_dscp(&listener, class).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(tcp::dscp(&accepted).unwrap(), class, "{address}");
        assert_eq!(tcp::dscp(&client).unwrap(), Dscp::default(), "{address}");
        tcp::set_dscp(&listener, Dscp::default()).unwrap();
        assert_eq!(tcp::dscp(&listener).unwrap(), Dscp::default());
        assert_eq!(tcp::dscp(&accepted).unwrap(), class, "{address}");
    }
}

/// Linux passes the DSCP of a SYN on once.
#[test]
fn the_dscp_of_a_syn_is_kept_until_it_is_read() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else {
            println!("skipped: this machine has no {address}");
            continue;
        };
        let address = listener.local_addr().unwrap();
        let class = "ef".parse().unwrap();
        let call = || {
            let domain = socket2::Domain::for_address(address);
            let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
            tcp::set_dscp(&socket, class).unwrap();
            socket.connect(&address.into()).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            (socket, accepted)
        };
        let (_client, accepted) = call();
        assert_eq!(tcp::saved_dscp(&accepted).unwrap(), None, "{address}");
        tcp::set_save_syn(&listener, true).unwrap();
        let (_client, accepted) = call();
        assert_eq!(
            tcp::saved_dscp(&accepted).unwrap(),
            Some(class),
            "{address}"
        );
        assert_eq!(tcp::saved_dscp(&accepted).unwrap(), None, "{address}");
        assert_eq!(tcp::dscp(&accepted).unwrap(), Dscp::default());
    }
}

#[test]
fn a_congestion_control_that_does_not_exist_is_named() {
    tcp::load_congestion_control("cubic").unwrap();
    let error = tcp::load_congestion_control("none-such").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.to_string().contains("no module tcp_none-such"),
        "{error}"
    );
}

#[test]
fn bbr_begins_again_where_it_is_set() {
    let (client, _server) = connection();
    tcp::set_congestion_control(&client, "cubic").unwrap();
    tcp::begin_bbr_again(&client).unwrap();
    assert_eq!(tcp::congestion_control(&client).unwrap(), "cubic");
    match tcp::set_congestion_control(&client, "bbr") {
        Ok(()) => {}
        Err(error) => return println!("skipped: this kernel has no BBR: {error}"),
    }
    tcp::begin_bbr_again(&client).unwrap();
    assert_eq!(tcp::congestion_control(&client).unwrap(), "bbr");
}

#[test]
fn a_least_timeout_is_set_where_the_kernel_has_it() {
    let (client, _server) = connection();
    let time = TimeSpan::from_milliseconds(60);
    match tcp::has_least_timeout() {
        true => {
            tcp::set_least_timeout(&client, time).unwrap();
            assert_eq!(tcp::least_timeout(&client).unwrap(), time);
        }
        false => assert!(tcp::set_least_timeout(&client, time).is_err()),
    }
    let long = TimeSpan::from_seconds(1);
    assert!(tcp::set_least_timeout(&client, long).is_err());
}
