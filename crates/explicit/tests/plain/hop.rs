//! Hops of an overlay: what is written is read again, in pieces of any size; what breaks the rules is
//! refused; nothing behind a head is read.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};

use midspan_explicit::hop::{
    AnswerReader, ConnectTime, Hop, HopAnswer, HopError, HopFailure, HopRequest, InvalidAnswer,
    MOST_CONNECT_TIMES,
};
use midspan_explicit::http::LONGEST_HEAD;
use midspan_explicit::{Destination, Failure, Host, HostName, Next, Outcome, Refusal, Step};
use midspan_policy::overlay::{HopRefusal, NextHop, NodeKind, NodeName};
use midspan_units::TimeSpan;
use proptest::prelude::*;

fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

/// The last step, and the hop, after input in pieces of this size.
fn receive(input: &[u8], size: usize) -> (Hop, Step) {
    let mut hop = Hop::new(name("fra"));
    let (mut held, mut last) = (Vec::new(), None);
    for piece in input.chunks(size) {
        held.extend_from_slice(piece);
        loop {
            let step = hop.advance(&held);
            assert!(step.consumed <= held.len());
            held.drain(..step.consumed);
            let (is_over, consumed) = (step.next != Next::More, step.consumed);
            last = Some(step);
            if is_over {
                return (hop, last.unwrap());
            }
            if consumed == 0 {
                break;
            }
        }
    }
    (hop, last.unwrap())
}

fn request(head: &str) -> HopRequest {
    let (hop, step) = receive(head.as_bytes(), usize::MAX);
    assert!(matches!(step.next, Next::Connect(_)), "{head}: {step:?}");
    hop.request().unwrap().clone()
}

fn answer(head: &[u8]) -> HopAnswer {
    let (taken, answer) = AnswerReader::default().take(head).unwrap();
    assert_eq!(taken, head.len());
    answer.unwrap()
}

#[test]
fn a_request_has_all_its_fields() {
    let read = request(
        "CONNECT Example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\
         Forwarded: for=\"[2001:db8::7]:51812\"\r\nmidspan-route: fra , sin\r\nMidspan-Route: tyo\r\n\
         Via: 1.1 ams,1.1 lon\r\nUser-Agent: x\r\n\r\n",
    );
    assert_eq!(read.destination.to_string(), "example.org:443");
    assert_eq!(read.client, "[2001:db8::7]:51812".parse().ok());
    assert_eq!(read.route, [name("fra"), name("sin"), name("tyo")]);
    assert_eq!(read.via, [name("ams"), name("lon")]);
    // curl --proxytunnel
    let plain = request("CONNECT 192.0.2.1:80 HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n");
    assert!(plain.client.is_none() && plain.route.is_empty() && plain.via.is_empty());
}

#[test]
fn what_is_no_hop_is_refused() {
    let with = |fields: &str| format!("CONNECT a.example:443 HTTP/1.1\r\n{fields}\r\n");
    let host = "Host: a.example:443\r\n";
    for head in [
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(),
        format!("CONNECT a.example:443 HTTP/1.0\r\n{host}\r\n"),
        format!("CONNECT a.example HTTP/1.1\r\n{host}\r\n"),
        with(""),
        with("Host: b.example:443\r\n"),
        with("Host: a.example:80\r\n"),
        with(&host.repeat(2)),
        with(&format!("{host}Content-Length: 0\r\n")),
        with(&format!("{host}Transfer-Encoding: chunked\r\n")),
        with(&format!("{host}Midspan-Route: fra; sin\r\n")),
        with(&format!("{host}Midspan-Route: 10.0.0.1\r\n")),
        with(&format!("{host}Midspan-Route: {}\r\n", "a,".repeat(9))),
        with(&format!("{host}Via: ams\r\n")),
        with(&format!("{host}Via: 1.1 ams (x)\r\n")),
        with(&format!("{host}Forwarded: for=nobody\r\n")),
        with(&format!("{host}Forwarded: for=\"\u{e9}\"\r\n")),
        "\x16\x03\x01\x02".to_owned(),
        with(&format!("X: {}\r\n", "a".repeat(LONGEST_HEAD))),
        with(&"X: a\r\n".repeat(200)),
    ] {
        let (hop, step) = receive(head.as_bytes(), usize::MAX);
        assert_eq!(step.next, Next::Refuse(Refusal::Malformed), "{head}");
        assert!(hop.request().is_none());
        let told = answer(&step.reply).failure.unwrap();
        let expected = (Some(name("fra")), HopError::HttpRequestError);
        assert_eq!((told.node, told.error), expected);
    }
}

#[test]
fn each_failure_arrives_as_the_exit_has_reported_it() {
    let (hop, _) = receive(b"x", 1);
    let none = TimeSpan::ZERO;
    for failure in [
        Failure::Refused,
        Failure::TimedOut,
        Failure::HostUnreachable,
        Failure::NameNotFound,
        Failure::NotAllowed,
        Failure::Shortage,
    ] {
        let read = answer(&hop.answer(Outcome::Failed(failure), none));
        let told = read.failure.clone().unwrap();
        assert_eq!(told.of_client(&name("fra")), failure);
        // A transit node passes it on unchanged.
        assert_eq!(answer(&Hop::new(name("ams")).pass_on(&read, none)), read);
    }
    let told = |refusal| answer(&hop.refuse(refusal)).failure.unwrap().error;
    assert_eq!(told(HopRefusal::Loop), HopError::ProxyLoopDetected);
    assert_eq!(told(HopRefusal::Forged), HopError::HttpRequestDenied);
}

#[test]
fn each_node_adds_the_time_that_it_took() {
    let connected = Outcome::Connected("192.0.2.1:1".parse().unwrap());
    let time = TimeSpan::from_nanoseconds(41_200_000);
    let of_exit = answer(&Hop::new(name("sin")).answer(connected, time));
    let head = Hop::new(name("fra")).pass_on(&of_exit, TimeSpan::from_nanoseconds(7_000));
    let text = String::from_utf8(head.clone()).unwrap();
    assert_eq!(
        text,
        "HTTP/1.1 200 Connection established\r\nServer-Timing: sin;dur=41.200, fra;dur=0.007\r\n\r\n"
    );
    let read = answer(&head);
    let node = name("sin");
    assert_eq!(read.connect_times[0], ConnectTime { node, time });
    // Other elements of the field do not matter.
    let strange =
        b"HTTP/1.1 200 OK\r\nServer-Timing: x;dur=-1, cache;desc=a, a;dur=inf, b;dur=2\r\n\r\n";
    assert_eq!(answer(strange).connect_times.len(), 1);
}

#[test]
fn answers_of_other_proxies_are_understood() {
    let next = |kind| NextHop {
        node: name("squid"),
        leg: name("squid"),
        from: None,
        address: "192.0.2.9:3128".parse().unwrap(),
        kind,
        keys: None,
        rest: Vec::new(),
    };
    let exit = name("squid");
    for (status, expected) in [
        ("403 Forbidden", Failure::NotAllowed),
        ("503 Service Unavailable", Failure::HostUnreachable),
        ("504 Gateway Timeout", Failure::TimedOut),
        ("500 Unable to connect", Failure::HostUnreachable),
    ] {
        let head = format!("HTTP/1.0 {status}\r\nContent-Type: text/html\r\n\r\n");
        let read = answer(head.as_bytes());
        let foreign = read.clone().of_node(&next(NodeKind::Connect));
        assert_eq!(
            foreign.failure.unwrap().of_client(&exit),
            expected,
            "{head}"
        );
        let own = read.of_node(&next(NodeKind::Midspan)).failure.unwrap();
        assert_ne!(own.of_client(&exit), Failure::NotAllowed);
    }
    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    assert!(answer(interim).failure.is_none());
}

#[test]
fn what_is_no_answer_is_an_error() {
    let take = |bytes: &[u8]| AnswerReader::default().take(bytes);
    for bytes in [
        &b"SSH-2.0-x\r\n\r\n"[..],
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 099 x\r\n\r\n",
        b"\r\n\r\n",
        b"\x00",
    ] {
        assert_eq!(take(bytes), Err(InvalidAnswer::Malformed), "{bytes:?}");
    }
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(LONGEST_HEAD));
    assert_eq!(take(long.as_bytes()), Err(InvalidAnswer::TooLarge));
    let interim = "HTTP/1.1 103 Early Hints\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n".repeat(400);
    assert_eq!(take(interim.as_bytes()), Err(InvalidAnswer::TooLarge));
}

/// In pieces of any size: the length of the head, and the answer.
fn in_pieces(input: &[u8], size: usize) -> Result<(usize, Option<HopAnswer>), InvalidAnswer> {
    let mut reader = AnswerReader::default();
    let mut total = 0;
    for piece in input.chunks(size) {
        let (taken, answer) = reader.take(piece)?;
        assert!(taken == piece.len() || answer.is_some());
        total += taken;
        if answer.is_some() {
            return Ok((total, answer));
        }
    }
    Ok((total, None))
}

fn node() -> impl Strategy<Value = NodeName> {
    "[a-z][a-z0-9-]{0,31}".prop_map(|text| name(&text))
}

fn nodes() -> impl Strategy<Value = Vec<NodeName>> {
    prop::collection::vec(node(), 0..=4)
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u16; 8]>().prop_map(|parts| IpAddr::from(parts).to_canonical()),
    ]
}

fn a_request() -> impl Strategy<Value = HopRequest> {
    let host = prop_oneof![
        address().prop_map(Host::Address),
        "[a-z][a-z0-9_]{0,20}(\\.[a-z][a-z0-9]{0,10}){0,3}"
            .prop_map(|text| Host::Name(HostName::new(&text).unwrap())),
    ];
    let client = prop::option::of((address(), any::<u16>()).prop_map(SocketAddr::from));
    (host, 1_u16.., client, nodes(), nodes()).prop_map(|(host, port, client, route, via)| {
        HopRequest {
            destination: Destination::new(host, port).unwrap(),
            client,
            route,
            via,
        }
    })
}

fn an_answer() -> impl Strategy<Value = HopAnswer> {
    let time = (node(), 0_u64..86_400_000_000).prop_map(|(node, microseconds)| ConnectTime {
        node,
        time: TimeSpan::from_nanoseconds(microseconds * 1000),
    });
    let failure =
        (node(), prop::sample::select(HopError::ALL)).prop_map(|(node, error)| HopFailure {
            node: Some(node),
            error,
        });
    let times = prop::collection::vec(time, 0..=MOST_CONNECT_TIMES);
    (prop::option::of(failure), times).prop_map(|(failure, connect_times)| HopAnswer {
        failure,
        connect_times,
    })
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(request in a_request(), size in 1_usize..400) {
        let written = request.write();
        prop_assert!(written.len() < LONGEST_HEAD / 8);
        let with_data = [&written[..], b"data"].concat();
        let (hop, step) = receive(&with_data, size);
        prop_assert_eq!(step.consumed, written.len());
        prop_assert_eq!(hop.request(), Some(&request));
    }

    #[test]
    fn an_answer_is_read_as_it_was_written(answer in an_answer(), size in 1_usize..400) {
        let written = answer.write();
        let with_data = [&written[..], b"HTTP/1.1 data"].concat();
        let read = in_pieces(&with_data, size);
        prop_assert_eq!(read, Ok((written.len(), Some(answer))));
    }

    #[test]
    fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 1..600), size in 1_usize..50) {
        let (_, step) = receive(&input, size);
        prop_assert!(!matches!(step.next, Next::Connect(_)) || step.consumed > 0);
        prop_assert_eq!(in_pieces(&input, size), in_pieces(&input, usize::MAX));
    }

    #[test]
    fn almost_a_hop_is_survived(
        target in "[ -~]{0,20}",
        fields in prop::collection::vec(
            prop_oneof![
                "Host: [a-z.:0-9\\[\\]]{0,20}",
                "Forwarded: (for=)?[ -~]{0,30}",
                "Via: [ -~]{0,30}",
                "Midspan-Route: [a-z0-9, -]{0,30}",
                "[A-Za-z-]{1,10}: [ -~]{0,20}",
            ],
            0..6,
        ),
        size in 1_usize..50,
    ) {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let head = format!("CONNECT {target} HTTP/1.1\r\n{fields}\r\nbytes");
        let (whole, step) = receive(head.as_bytes(), usize::MAX);
        let (pieces, _) = receive(head.as_bytes(), size);
        prop_assert_eq!(whole.request(), pieces.request());
        // What is accepted is written without any byte that could end a line.
        if let (Next::Connect(_), Some(request)) = (step.next, whole.request()) {
            let (again, _) = receive(&request.write(), usize::MAX);
            prop_assert_eq!(again.request(), Some(request));
        }
    }

    #[test]
    fn almost_an_answer_is_survived(
        status in 0_u16..1000,
        fields in prop::collection::vec(
            prop_oneof![
                "Proxy-Status: [ -~]{0,40}",
                "Proxy-Status: [a-z]{1,5}; error=[a-z_]{1,20}",
                "Server-Timing: [ -~]{0,40}",
            ],
            0..4,
        ),
        size in 1_usize..50,
    ) {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let head = format!("HTTP/1.1 {status:03} x\r\n{fields}\r\nbytes");
        let whole = in_pieces(head.as_bytes(), usize::MAX);
        prop_assert_eq!(&whole, &in_pieces(head.as_bytes(), size));
        if let Ok((_, Some(answer))) = whole {
            prop_assert!(answer.connect_times.len() <= MOST_CONNECT_TIMES);
            let written = answer.write();
            prop_assert!(in_pieces(&written, usize::MAX).is_ok_and(|(taken, _)| taken == written.len()));
        }
    }
}

/// The inputs that fuzzing has collected.
#[test]
fn the_corpus_is_survived() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hop");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).unwrap() {
        let input = std::fs::read(file.unwrap().path()).unwrap();
        if let [_, input @ ..] = &input[..]
            && !input.is_empty()
        {
            receive(input, 3);
            let _ = in_pieces(input, 3);
            count += 1;
        }
    }
    assert!(count >= 4, "only {count} inputs found");
}
