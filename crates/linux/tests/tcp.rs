//! Options and `TCP_INFO` of real connections on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use midspan_linux::capability::{self, Capability};
use midspan_linux::tcp::{self, LegError};
use midspan_policy::{Buffer, LegStart};
use midspan_units::{ByteSize, TimeSpan};

const LIMIT: Duration = Duration::from_secs(10);

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    (opened, accepted)
}

#[test]
fn a_sample_counts_what_was_sent() {
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
    let sender = tcp::sample(&opened).unwrap();
    assert!(sender.round_trip_time.is_some());
    assert!(sender.minimum_round_trip_time.is_some());
    assert!(sender.delivery_rate.is_some());
    assert!(sender.segment_size > 500);
    assert!(sender.congestion_window >= 10);
    assert!(sender.peer_window > 0);
    assert_eq!(sender.unacknowledged, 0);
    assert_eq!(sender.not_sent, ByteSize::default());
    // The SYN counts as one.
    assert!((100_000..=100_001).contains(&sender.bytes_acknowledged.bytes()));
    let receiver = tcp::sample(&accepted).unwrap();
    assert_eq!(receiver.bytes_received.bytes(), 100_000);
    assert_eq!(receiver.bytes_acknowledged.bytes(), 0);
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
    assert!(tcp::sample(&opened).unwrap().not_sent.bytes() <= queued);
    // The kernel counts these times in ticks of some milliseconds.
    while tcp::sample(&opened).unwrap().limited.busy == TimeSpan::ZERO {
        assert!(start.elapsed() < LIMIT, "never busy");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_option_of_a_leg_is_set() {
    let (opened, _accepted) = connection();
    let start = LegStart {
        congestion_control: Some("reno".to_owned()),
        send_buffer: Buffer::Fixed(ByteSize::from_bytes(100_000)),
        receive_buffer: Buffer::Fixed(ByteSize::from_bytes(50_000)),
        notsent_lowat: Some(ByteSize::from_bytes(16_384)),
        pacing_rate: Some("8.8 Mbit/s".parse().unwrap()),
        keepalive: Some(TimeSpan::from_milliseconds(59_500)),
        user_timeout: Some(TimeSpan::from_seconds(30)),
        ..LegStart::default()
    };
    tcp::apply(&opened, &start).unwrap();
    assert_eq!(tcp::congestion_control(&opened).unwrap(), "reno");
    assert_eq!(tcp::send_buffer(&opened).unwrap().bytes(), 200_000);
    assert_eq!(tcp::receive_buffer(&opened).unwrap().bytes(), 100_000);
    assert_eq!(tcp::notsent_lowat(&opened).unwrap().bytes(), 16_384);
    assert_eq!(tcp::pacing_rate(&opened).unwrap(), start.pacing_rate);
    let minute = TimeSpan::from_seconds(60);
    assert_eq!(tcp::keepalive(&opened).unwrap(), Some(minute));
    assert_eq!(tcp::user_timeout(&opened).unwrap(), start.user_timeout);

    tcp::set_pacing_rate(&opened, None).unwrap();
    assert_eq!(tcp::pacing_rate(&opened).unwrap(), None);
}

#[test]
fn a_pacing_rate_beyond_32_bits_is_kept() {
    let (opened, _accepted) = connection();
    let rate = "100 Gbit/s".parse().unwrap();
    tcp::set_pacing_rate(&opened, Some(rate)).unwrap();
    assert_eq!(tcp::pacing_rate(&opened).unwrap(), Some(rate));
}

#[test]
fn nothing_asked_for_changes_nothing() {
    let (opened, _accepted) = connection();
    let before = (
        tcp::send_buffer(&opened).unwrap(),
        tcp::congestion_control(&opened).unwrap(),
        tcp::keepalive(&opened).unwrap(),
        tcp::user_timeout(&opened).unwrap(),
    );
    tcp::apply(&opened, &LegStart::default()).unwrap();
    let after = (
        tcp::send_buffer(&opened).unwrap(),
        tcp::congestion_control(&opened).unwrap(),
        None,
        None,
    );
    assert_eq!(before, after);
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

#[test]
fn an_unknown_congestion_control_names_those_that_exist() {
    let start = LegStart {
        congestion_control: Some("nonsuch".to_owned()),
        ..LegStart::default()
    };
    let error = tcp::check(&start).unwrap_err().to_string();
    let available = tcp::available_congestion_controls().unwrap();
    assert!(!available.is_empty());
    let beginning = format!(
        "congestion_control = \"nonsuch\": this kernel does not offer it; it offers {} (",
        available.join(", ")
    );
    assert!(error.starts_with(&beginning), "{error}");
}

/// Capabilities belong to a thread, so the others keep theirs.
#[test]
fn a_restricted_congestion_control_says_what_is_missing() {
    let unrestricted = tcp::unrestricted_congestion_controls().unwrap();
    let available = tcp::available_congestion_controls().unwrap();
    let Some(name) = available
        .into_iter()
        .find(|name| !unrestricted.contains(name))
    else {
        println!("skipped: every congestion control of this kernel is open to all");
        return;
    };
    let start = LegStart {
        congestion_control: Some(name.clone()),
        ..LegStart::default()
    };
    let error = std::thread::spawn(move || {
        capability::give_up_all_but(&[]).unwrap();
        tcp::check(&start).unwrap_err().to_string()
    })
    .join()
    .unwrap();
    let beginning = format!("congestion_control = \"{name}\" needs CAP_NET_ADMIN, only ");
    assert!(error.starts_with(&beginning), "{error}");
}

#[test]
fn a_buffer_beyond_the_limit_is_refused_not_cut() {
    let limit = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    let start = LegStart {
        send_buffer: Buffer::Fixed(ByteSize::from_bytes(2 * limit)),
        ..LegStart::default()
    };
    let error = std::thread::spawn(move || {
        capability::give_up_all_but(&[]).unwrap();
        tcp::check(&start).unwrap_err()
    })
    .join()
    .unwrap();
    let LegError::BufferTooLarge {
        limit: allowed,
        sysctl,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((allowed.bytes(), sysctl), (limit, "net.core.wmem_max"));
}

#[test]
fn a_keepalive_beyond_the_range_is_refused() {
    let start = LegStart {
        keepalive: Some(TimeSpan::from_seconds(40_000)),
        ..LegStart::default()
    };
    assert_eq!(
        tcp::check(&start).unwrap_err().to_string(),
        "keepalive = \"40000 s\" is out of range: it lies between 1 s and 32767 s"
    );
}

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
fn a_receive_buffer_set_before_listening_is_inherited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = LegStart {
        receive_buffer: Buffer::Fixed(ByteSize::from_bytes(70_000)),
        ..LegStart::default()
    };
    tcp::apply_before_listen(&listener, &start).unwrap();
    let _opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(tcp::receive_buffer(&accepted).unwrap().bytes(), 140_000);
}

#[test]
fn keepalive_of_a_listener_is_inherited_and_can_be_switched_off() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let accepted = || {
        let _opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        tcp::keepalive(&accepted).unwrap()
    };
    let idle = TimeSpan::from_seconds(77);
    let start = LegStart {
        keepalive: Some(idle),
        ..LegStart::default()
    };
    tcp::apply_before_listen(&listener, &start).unwrap();
    assert_eq!(accepted(), Some(idle));
    tcp::change_listener(&listener, &LegStart::default(), None).unwrap();
    assert_eq!(accepted(), None);
    tcp::change_listener(&listener, &start, None).unwrap();
    assert_eq!(accepted(), Some(idle));
}

#[test]
fn congestion_control_set_before_listening_is_inherited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // One that is not the system's default, or else inheriting proves nothing.
    let default = tcp::congestion_control(&listener).unwrap();
    let known = tcp::unrestricted_congestion_controls().unwrap();
    let Some(other) = known.iter().find(|name| **name != default) else {
        println!("skipped: only {default} is there");
        return;
    };
    let start = LegStart {
        congestion_control: Some(other.clone()),
        ..LegStart::default()
    };
    tcp::apply_before_listen(&listener, &start).unwrap();
    let _opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(&tcp::congestion_control(&accepted).unwrap(), other);
}
