//! SOCKS5, byte by byte as in RFC 1928 and RFC 1929.

use crate::common::{self, Language, alice, negotiate};
use midspan_explicit::socks5::Socks5;
use midspan_explicit::{Failure, Next, Outcome, Refusal};

fn socks5(input: &[u8], with_password: bool) -> common::Ending {
    let alice = alice();
    let credentials = with_password.then_some(&alice);
    negotiate(Language::Socks5, input, usize::MAX, credentials)
}

fn destination(next: &Next) -> String {
    match next {
        Next::Connect(request) => request.destination.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_kind_of_address_is_understood() {
    let cases: [(&[u8], &str); 4] = [
        (b"\x05\x01\0\x01\xc0\0\x02\x01\0\x50", "192.0.2.1:80"),
        (
            b"\x05\x01\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb",
            "[2001:db8::1]:443",
        ),
        (b"\x05\x01\0\x03\x0bexample.org\0\x50", "example.org:80"),
        // An address in the place of a name.
        (b"\x05\x01\0\x03\x09192.0.2.1\0\x50", "192.0.2.1:80"),
    ];
    for (request, expected) in cases {
        let input = [b"\x05\x02\x01\0", request, b"early"].concat();
        let end = socks5(&input, false);
        assert_eq!(destination(&end.next), expected);
        assert_eq!(end.told, b"\x05\0");
        assert_eq!(end.rest, b"early");
    }
}

#[test]
fn name_and_password_are_asked_for_and_checked() {
    let request = b"\x05\x01\0\x01\xc0\0\x02\x01\0\x50";
    let right = [&b"\x05\x02\0\x02\x01\x05alice\x06secret"[..], request].concat();
    let end = socks5(&right, true);
    assert_eq!(end.told, b"\x05\x02\x01\0");
    assert_eq!(destination(&end.next), "192.0.2.1:80");

    let wrong = [&b"\x05\x01\x02\x01\x05alice\x06Secret"[..], request].concat();
    let end = socks5(&wrong, true);
    assert_eq!(end.told, b"\x05\x02\x01\x01");
    assert_eq!(end.next, Next::Refuse(Refusal::Unauthenticated));

    // A client that refuses to authenticate.
    let end = socks5(&[&b"\x05\x01\0"[..], request].concat(), true);
    assert_eq!(end.told, b"\x05\xff");
    assert_eq!(end.next, Next::Refuse(Refusal::NoCredentials));
    // A client that requires authentication, if the listener has no users.
    let end = socks5(b"\x05\x01\x02", false);
    assert_eq!(end.told, b"\x05\xff");
}

#[test]
fn what_is_not_done_is_refused_by_its_code() {
    let refused = |request: &[u8]| {
        let end = socks5(&[b"\x05\x01\0", request].concat(), false);
        (end.told.get(3).copied(), end.next)
    };
    let bind = b"\x05\x02\0\x01\xc0\0\x02\x01\0\x50";
    assert_eq!(refused(bind), (Some(7), Next::Refuse(Refusal::Unsupported)));
    let udp = b"\x05\x03\0\x01\0\0\0\0\0\0";
    assert_eq!(refused(udp), (Some(7), Next::Refuse(Refusal::Unsupported)));
    let type_of_address = b"\x05\x01\0\x02\xc0\0\x02\x01\0\x50";
    let expected = (Some(8), Next::Refuse(Refusal::Unsupported));
    assert_eq!(refused(type_of_address), expected);
    for malformed in [
        &b"\x05\x01\0\x01\xc0\0\x02\x01\0\0"[..],
        b"\x05\x01\0\x03\x03a b\0\x50",
        b"\x05\x01\0\x03\0\0\x50",
        b"\x05\x01\0\x03\x02\xff\xfe\0\x50",
    ] {
        let expected = (Some(1), Next::Refuse(Refusal::Malformed));
        assert_eq!(refused(malformed), expected);
    }
    // HTTP and TLS get no answer.
    for other in [&b"GET /"[..], b"\x16\x03\x01"] {
        let end = socks5(other, false);
        assert_eq!(end.next, Next::Refuse(Refusal::Malformed));
        assert!(end.told.is_empty());
    }
}

#[test]
fn a_client_of_version_4_is_told_that_it_is_rejected() {
    for with_password in [false, true] {
        let end = socks5(b"\x04\x01\0\x50\xc0\0\x02\x01\0", with_password);
        assert_eq!(end.next, Next::Refuse(Refusal::Unsupported));
        assert_eq!(end.told, b"\0\x5b\0\0\0\0\0\0");
    }
}

#[test]
fn the_outcome_is_told() {
    let socks5 = Socks5::new();
    let local = "192.0.2.9:4660".parse().unwrap();
    let told = socks5.answer(Outcome::Connected(local));
    assert_eq!(told, b"\x05\0\0\x01\xc0\0\x02\x09\x12\x34");
    let local = "[2001:db8::9]:4660".parse().unwrap();
    let told = socks5.answer(Outcome::Connected(local));
    assert_eq!(told.len(), 4 + 16 + 2);
    for (failure, code) in [
        (Failure::Shortage, 1),
        (Failure::RouteBroken, 1),
        (Failure::NotAllowed, 2),
        (Failure::TooFast, 2),
        (Failure::NetworkUnreachable, 3),
        (Failure::HostUnreachable, 4),
        (Failure::NameNotFound, 4),
        (Failure::Refused, 5),
        (Failure::TimedOut, 6),
    ] {
        let told = socks5.answer(Outcome::Failed(failure));
        assert_eq!(told, [5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{failure:?}");
    }
}
