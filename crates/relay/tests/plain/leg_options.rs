//! Options of legs, on real connections on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{TcpListener, TcpStream};

use midspan_linux::capability;
use midspan_linux::tcp;
use midspan_policy::{Buffer, LegStart};
use midspan_relay::leg_options::{self, LegError};
use midspan_units::{ByteSize, TimeSpan};

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    (opened, accepted)
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
    leg_options::apply(&opened, &start).unwrap();
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
fn nothing_asked_for_changes_nothing() {
    let (opened, _accepted) = connection();
    let before = (
        tcp::send_buffer(&opened).unwrap(),
        tcp::congestion_control(&opened).unwrap(),
        tcp::keepalive(&opened).unwrap(),
        tcp::user_timeout(&opened).unwrap(),
    );
    leg_options::apply(&opened, &LegStart::default()).unwrap();
    let after = (
        tcp::send_buffer(&opened).unwrap(),
        tcp::congestion_control(&opened).unwrap(),
        None,
        None,
    );
    assert_eq!(before, after);
}

#[test]
fn an_unknown_congestion_control_names_those_that_exist() {
    let start = LegStart {
        congestion_control: Some("nonsuch".to_owned()),
        ..LegStart::default()
    };
    let error = leg_options::check(&start).unwrap_err().to_string();
    let available = tcp::available_congestion_controls().unwrap();
    assert!(!available.is_empty());
    let beginning = format!(
        "congestion_control = \"nonsuch\": this kernel does not offer it; it offers {} (",
        available.join(", ")
    );
    assert!(error.starts_with(&beginning), "{error}");
}

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
        leg_options::check(&start).unwrap_err().to_string()
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
        leg_options::check(&start).unwrap_err()
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
        leg_options::check(&start).unwrap_err().to_string(),
        "keepalive = \"40000 s\" is out of range: it lies between 1 s and 32767 s"
    );
}

#[test]
fn a_receive_buffer_set_before_listening_is_inherited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = LegStart {
        receive_buffer: Buffer::Fixed(ByteSize::from_bytes(70_000)),
        ..LegStart::default()
    };
    leg_options::apply_before_listen(&listener, &start).unwrap();
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
    leg_options::apply_before_listen(&listener, &start).unwrap();
    assert_eq!(accepted(), Some(idle));
    leg_options::change_listener(&listener, &LegStart::default(), None).unwrap();
    assert_eq!(accepted(), None);
    leg_options::change_listener(&listener, &start, None).unwrap();
    assert_eq!(accepted(), Some(idle));
    // An option that is refused is reported. It does not keep the others from being set.
    let refused = LegStart {
        congestion_control: Some("none-such".to_owned()),
        keepalive: Some(TimeSpan::from_seconds(55)),
        ..LegStart::default()
    };
    let error = leg_options::change_listener(&listener, &refused, None).unwrap_err();
    assert_eq!(error.key(), "congestion_control");
    assert_eq!(accepted(), refused.keepalive);
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
    leg_options::apply_before_listen(&listener, &start).unwrap();
    let _opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(&tcp::congestion_control(&accepted).unwrap(), other);
}
