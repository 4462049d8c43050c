//! One request and its answer: where each ends, what passes of it, and what follows.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use midspan_explicit::http::{
    Exchange, Http, LONGEST_ANSWER_HEAD, Progress, Side, Verdict, Wanted,
};
use midspan_explicit::{Next, Refusal};
use proptest::prelude::*;

/// The exchange that begins with this head of a request.
fn exchange(head: &str) -> Exchange {
    match Http::new().advance(head.as_bytes(), None).next {
        Next::Connect(request) => request.exchange.expect("a plain request"),
        other => panic!("{head}: {other:?}"),
    }
}

fn get() -> Exchange {
    exchange("GET http://a.example/ HTTP/1.1\r\n\r\n")
}

fn post(fields: &str) -> Exchange {
    exchange(&format!(
        "POST http://a.example/ HTTP/1.1\r\n{fields}\r\n\r\n"
    ))
}

/// What passes of these bytes, which come in pieces of these sizes, in turn; and how many of them
/// belong to the message. Opaque bytes are not shown, as a relay does not show them.
fn pass(exchange: &mut Exchange, side: Side, input: &[u8], sizes: &[usize]) -> (Vec<u8>, usize) {
    let mut output = Vec::new();
    let mut taken = 0;
    for size in sizes.iter().cycle() {
        let rest = &input[taken..];
        let piece = &rest[..rest.len().min(*size)];
        let count = match exchange.wanted(side) {
            Wanted::Nothing => break,
            _ if piece.is_empty() => break,
            Wanted::Opaque(most) => {
                let count = piece.len().min(usize::try_from(most).unwrap_or(usize::MAX));
                output.extend(&piece[..count]);
                exchange.handle_passed(side, count as u64);
                count
            }
            Wanted::Bytes => exchange.take_in(side, piece, &mut output),
        };
        taken += count;
        if count == 0 {
            break;
        }
    }
    (output, taken)
}

/// The client gets this for these bytes of a server, which may end the connection after them.
fn answered(exchange: &mut Exchange, bytes: &str, ends: bool) -> String {
    let (output, _) = pass(exchange, Side::Answer, bytes.as_bytes(), &[usize::MAX]);
    if ends {
        exchange.handle_server_end(true);
    }
    String::from_utf8(output).unwrap()
}

const STAYS: Progress = Progress::Answered { stays_open: true };
const CLOSES: Progress = Progress::Answered { stays_open: false };

#[test]
fn a_request_without_a_body_ends_with_its_head() {
    let mut exchange = get();
    assert!(exchange.is_request_complete());
    assert_eq!(exchange.wanted(Side::Request), Wanted::Nothing);
    assert_eq!(
        exchange.look(Side::Request, b"GET http://b.example/"),
        Verdict::Stop
    );
}

#[test]
fn a_request_of_known_length_ends_there() {
    let mut exchange = post("Content-Length: 5");
    assert_eq!(exchange.wanted(Side::Request), Wanted::Opaque(5));
    let (passed, taken) = pass(&mut exchange, Side::Request, b"12345GET http://b/", &[3]);
    assert_eq!((passed.as_slice(), taken), (&b"12345"[..], 5));
    assert!(exchange.is_request_complete());
    // Equal lengths are one length.
    assert_eq!(
        post("Content-Length: 5, 5").wanted(Side::Request),
        Wanted::Opaque(5)
    );
    let twice = post("Content-Length: 5\r\nContent-Length: 5");
    assert_eq!(twice.wanted(Side::Request), Wanted::Opaque(5));
}

#[test]
fn chunks_of_a_request_pass_and_its_trailers_are_sifted() {
    let body = "5;name=\"v\"\r\nhello\r\n00a \r\n0123456789\r\n0\r\n\
                X-Sum: 1\r\nContent-Length: 7\r\nProxy-Authorization: Basic eDp5\r\nHost: b\r\n\r\n";
    let expected = "5;name=\"v\"\r\nhello\r\n00a \r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n";
    let next = "GET http://b.example/ HTTP/1.1\r\n\r\n";
    let stream = format!("{body}{next}");
    for size in 1..stream.len() {
        let mut exchange = post("Transfer-Encoding: chunked");
        let (passed, taken) = pass(&mut exchange, Side::Request, stream.as_bytes(), &[size]);
        assert_eq!(String::from_utf8(passed).unwrap(), expected);
        assert_eq!(taken, body.len(), "{size}");
        assert!(exchange.is_request_complete());
    }
}

#[test]
fn broken_chunks_pass_up_to_the_first_wrong_byte() {
    let long = format!("5;{}\r\nhello\r\n", "x".repeat(300));
    let trailers = format!(
        "0\r\n{}",
        "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(200)
    );
    let many = format!("0\r\n{}\r\n", "X: y\r\n".repeat(100));
    for (body, passing) in [
        ("x", 0),
        ("\r\n", 0),
        (";\r\n", 0),
        ("5\n", 1),
        ("5;a\nb", 3),
        ("5\rx", 2),
        ("5;a\0", 3),
        ("2\r\nabc", 5),
        ("-5\r\n", 0),
        ("0x5\r\n", 1),
        ("8000000000000000\r\n", 15),
        ("00000000000000005\r\n", 16),
        ("0\r\nX: a\n\nGET / HTTP/1.1\r\n\r\n", 3),
        ("0\r\nX: a\r\n b\r\n\r\n", 3),
        ("0\r\nX : a\r\n\r\n", 3),
        (&*long, 257),
        (&*trailers, 3),
        (&*many, 3),
    ] {
        for size in [1, 7, usize::MAX] {
            let mut exchange = post("Transfer-Encoding: chunked");
            let (passed, _) = pass(&mut exchange, Side::Request, body.as_bytes(), &[size]);
            assert_eq!(passed, &body.as_bytes()[..passing], "{body}");
            assert!(!exchange.is_request_complete());
            let Progress::Unanswered(told) = exchange.outcome() else {
                panic!("{body}: {:?}", exchange.outcome());
            };
            assert!(told.starts_with("HTTP/1.1 400 "));
        }
    }
    // The largest size that is taken.
    let mut exchange = post("Transfer-Encoding: chunked");
    pass(&mut exchange, Side::Request, b"7fffffffffffffff\r\n", &[1]);
    assert_eq!(
        exchange.wanted(Side::Request),
        Wanted::Opaque(i64::MAX as u64)
    );
}

#[test]
fn broken_chunks_after_the_answer_has_begun_break_both() {
    let mut exchange = post("Transfer-Encoding: chunked");
    answered(
        &mut exchange,
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na",
        false,
    );
    pass(&mut exchange, Side::Request, b"x", &[1]);
    assert_eq!(exchange.outcome(), Progress::Broken);
    // One that has its answer has harmed nobody but itself.
    let mut exchange = post("Transfer-Encoding: chunked");
    answered(
        &mut exchange,
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        false,
    );
    pass(&mut exchange, Side::Request, b"x", &[1]);
    assert_eq!(exchange.outcome(), CLOSES);
    assert!(!exchange.is_request_complete());
}

#[test]
fn requests_that_could_be_read_in_two_ways_are_refused() {
    for fields in [
        "Content-Length: 5, 6",
        "Content-Length: 5,",
        "Content-Length: 9223372036854775808",
        "Content-Length: 99999999999999999999",
        "Content-Length: 0x5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked;x=y",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: ",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: chunked\r\n ",
    ] {
        let head = format!("POST http://a.example/ HTTP/1.1\r\n{fields}\r\n\r\n");
        let next = Http::new().advance(head.as_bytes(), None).next;
        assert_eq!(next, Next::Refuse(Refusal::Malformed), "{fields}");
    }
    let old = "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    let next = Http::new().advance(old.as_bytes(), None).next;
    assert_eq!(next, Next::Refuse(Refusal::Malformed));
    assert_eq!(
        post("Transfer-Encoding: GZIP, Chunked").wanted(Side::Request),
        Wanted::Bytes
    );
}

#[test]
fn an_answer_of_known_length_leaves_the_client_its_connection() {
    let mut exchange = get();
    let told = answered(
        &mut exchange,
        "HTTP/1.0 200 Fine\r\nContent-Length: 3\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
         Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic realm=\"x\"\r\nUpgrade: h2c\r\n\
         Set-Cookie: a=b\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n",
        false,
    );
    assert_eq!(
        told,
        "HTTP/1.1 200 Fine\r\nSet-Cookie: a=b\r\nContent-Length: 3\r\n\r\nabc"
    );
    assert_eq!(exchange.outcome(), STAYS);
    assert_eq!(exchange.wanted(Side::Answer), Wanted::Nothing);
}

#[test]
fn whether_the_client_keeps_its_connection() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (version, fields, connection) in [
        (1, "", None),
        (1, "Connection: keep-alive\r\n", None),
        (1, "Connection: foo, Close\r\n", Some("close")),
        (1, "Proxy-Connection: close\r\n", Some("close")),
        (0, "", Some("close")),
        (0, "Connection: keep-alive\r\n", Some("keep-alive")),
        (0, "Proxy-Connection: Keep-Alive\r\n", Some("keep-alive")),
    ] {
        let head = format!("GET http://a.example/ HTTP/1.{version}\r\n{fields}\r\n");
        let mut kept = exchange(&head);
        let told = answered(&mut kept, answer, false);
        let line = connection.map(|value| format!("Connection: {value}\r\n"));
        assert_eq!(told.contains("Connection"), line.is_some(), "{head}{told}");
        assert!(told.contains(&line.unwrap_or_default()), "{head}{told}");
        let stays_open = connection != Some("close");
        assert_eq!(kept.outcome(), Progress::Answered { stays_open });
        let mut closed = exchange(&head);
        closed.close_afterwards();
        assert!(answered(&mut closed, answer, false).contains("Connection: close\r\n"));
        assert_eq!(closed.outcome(), CLOSES);
    }
}

#[test]
fn some_answers_have_no_body_whatever_they_say() {
    let length = "Content-Length: 5\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (method, status, field, passes) in [
        ("HEAD", 200, length, true),
        ("HEAD", 200, chunked, true),
        ("HEAD", 404, "", true),
        ("GET", 304, length, true),
        ("GET", 304, chunked, true),
        ("GET", 204, length, false),
        ("GET", 204, chunked, false),
        ("GET", 204, "", true),
    ] {
        let mut exchange = exchange(&format!("{method} http://a.example/ HTTP/1.1\r\n\r\n"));
        let answer = format!("HTTP/1.1 {status} X\r\n{field}\r\nHTTP/1.1 200 OK\r\n\r\n");
        let told = answered(&mut exchange, &answer, false);
        let passing = if passes { field } else { "" };
        assert_eq!(told, format!("HTTP/1.1 {status} X\r\n{passing}\r\n"));
        assert_eq!(exchange.outcome(), STAYS);
    }
}

#[test]
fn interim_answers_pass_as_often_as_they_come() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let mut exchange = post("Content-Length: 3\r\nExpect: 100-continue");
    let repeated = interim.repeat(20);
    assert_eq!(answered(&mut exchange, &repeated, false), repeated);
    assert_eq!(exchange.outcome(), Progress::Going);
    pass(&mut exchange, Side::Request, b"abc", &[1]);
    answered(
        &mut exchange,
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        false,
    );
    assert_eq!(exchange.outcome(), STAYS);
    // A length in an interim answer would be one of nothing.
    let mut odd = get();
    let told = answered(
        &mut odd,
        "HTTP/1.1 102 X\r\nContent-Length: 9\r\n\r\n",
        false,
    );
    assert_eq!(told, "HTTP/1.1 102 X\r\n\r\n");
    // A client of HTTP/1.0 has no interim answers.
    let mut old = self::exchange("GET http://a.example/ HTTP/1.0\r\n\r\n");
    let told = answered(
        &mut old,
        &format!("{interim}HTTP/1.1 200 OK\r\n\r\nx"),
        true,
    );
    assert_eq!(told, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nx");
    assert_eq!(old.outcome(), CLOSES);
}

#[test]
fn an_early_answer_closes_the_connection() {
    let mut exchange = post("Content-Length: 3\r\nExpect: 100-continue");
    let told = answered(
        &mut exchange,
        "HTTP/1.1 413 Big\r\nContent-Length: 0\r\n\r\n",
        false,
    );
    assert!(told.contains("Connection: close\r\n"));
    assert_eq!(exchange.outcome(), CLOSES);
    assert!(!exchange.is_request_complete());
}

#[test]
fn an_answer_without_a_length_ends_with_its_connection() {
    for (fields, is_whole) in [("", true), ("Transfer-Encoding: gzip\r\n", true)] {
        let mut exchange = get();
        let told = answered(
            &mut exchange,
            &format!("HTTP/1.1 200 OK\r\n{fields}\r\nabc"),
            false,
        );
        assert_eq!(
            told,
            format!("HTTP/1.1 200 OK\r\n{fields}Connection: close\r\n\r\nabc")
        );
        assert_eq!(exchange.wanted(Side::Answer), Wanted::Opaque(u64::MAX));
        let mut failed = exchange.clone();
        exchange.handle_server_end(true);
        assert_eq!(exchange.outcome() == CLOSES, is_whole);
        failed.handle_server_end(false);
        assert_eq!(failed.outcome(), Progress::Broken);
    }
}

#[test]
fn a_server_that_ends_early_is_told_from_one_that_has_answered() {
    let cut_off = |answer: &str, in_order| {
        let mut exchange = get();
        answered(&mut exchange, answer, false);
        exchange.handle_server_end(in_order);
        exchange.outcome()
    };
    for in_order in [true, false] {
        for nothing in ["", "HTTP/1.1 200 OK\r\nX:", "HTTP/1.1 100 Continue\r\n\r\n"] {
            let Progress::Unanswered(told) = cut_off(nothing, in_order) else {
                panic!("{nothing}");
            };
            let (head, body) = told.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 502 "));
            assert!(
                head.contains(&format!("Content-Length: {}\r\n", body.len())),
                "{told}"
            );
        }
    }
    for answer in [
        "Content-Length: 5\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{answer}");
        assert_eq!(cut_off(&answer, false), Progress::Broken);
        // An end in order passes as one: the client sees that the body is too short.
        assert_eq!(cut_off(&answer, true), CLOSES);
    }
}

#[test]
fn answers_that_could_be_read_in_two_ways_do_not_pass() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX\0: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad name: a\r\n\r\n",
        "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
        "\x16\x03\x01",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
    ] {
        for size in [1, 5, usize::MAX] {
            let mut exchange = get();
            let (passed, _) = pass(&mut exchange, Side::Answer, answer.as_bytes(), &[size]);
            assert!(passed.is_empty(), "{answer}");
            let Progress::Unanswered(told) = exchange.outcome() else {
                panic!("{answer}: {:?}", exchange.outcome());
            };
            assert!(told.starts_with("HTTP/1.1 502 "));
            let (head, body) = told.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("Content-Length: {}\r\n", body.len())),
                "{told}"
            );
        }
    }
    let mut exchange = get();
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(LONGEST_ANSWER_HEAD));
    answered(&mut exchange, &endless, false);
    assert!(matches!(exchange.outcome(), Progress::Unanswered(_)));
}

#[test]
fn a_length_beside_chunks_does_not_pass() {
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
                1\r\nx\r\n0\r\n\r\n";
    let mut exchange = get();
    let told = answered(&mut exchange, both, false);
    assert_eq!(
        told,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         1\r\nx\r\n0\r\n\r\n"
    );
    assert_eq!(exchange.outcome(), CLOSES);
    // HTTP/1.0 has no chunks: whoever reads them, nothing follows.
    let mut exchange = get();
    let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(answered(&mut exchange, old, false).contains("Connection: close"));
    assert_eq!(exchange.outcome(), CLOSES);
}

#[test]
fn an_answer_is_mended_as_a_proxy_has_to() {
    let mut exchange = get();
    let told = answered(
        &mut exchange,
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nY : c\r\nContent-Length : 2\r\n\r\nabHTTP/1.1 200",
        false,
    );
    assert_eq!(
        told,
        "HTTP/1.1 200 OK\r\nX: a   b\r\nY: c\r\nContent-Length: 2\r\n\r\nab"
    );
    assert_eq!(exchange.outcome(), STAYS);
}

#[test]
fn a_web_socket_that_was_asked_for_becomes_a_tunnel() {
    let head = "GET http://a.example/ HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\n\
                Upgrade: WebSocket\r\nSec-WebSocket-Key: x\r\n\r\n";
    let Next::Connect(request) = Http::new().advance(head.as_bytes(), None).next else {
        panic!("refused");
    };
    let told = String::from_utf8(request.to_server).unwrap();
    assert!(
        told.ends_with("\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
        "{told}"
    );
    assert!(told.contains("Sec-WebSocket-Key: x\r\n"));
    let mut exchange = request.exchange.unwrap();
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Accept: y\r\n\r\n";
    let (passed, taken) = pass(
        &mut exchange,
        Side::Answer,
        format!("{answer}\x01").as_bytes(),
        &[usize::MAX],
    );
    assert_eq!(
        String::from_utf8(passed).unwrap(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\
         Connection: Upgrade\r\n\r\n\x01"
    );
    assert_eq!(taken, answer.len() + 1);
    assert_eq!(exchange.wanted(Side::Request), Wanted::Nothing);
    assert_eq!(exchange.outcome(), Progress::Tunnel);
    // Any other protocol could carry requests to other servers, and is not asked for.
    for upgrade in ["h2c", "websocket, h2c", "TLS/1.0", ""] {
        let head = format!(
            "GET http://a.example/ HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: {upgrade}\r\nHTTP2-Settings: x\r\n\r\n"
        );
        let Next::Connect(request) = Http::new().advance(head.as_bytes(), None).next else {
            panic!("refused");
        };
        let told = String::from_utf8(request.to_server).unwrap();
        assert!(
            !told.contains("pgrade") && !told.contains("HTTP2"),
            "{told}"
        );
        let mut exchange = request.exchange.unwrap();
        assert_eq!(answered(&mut exchange, answer, false), "");
        assert!(matches!(exchange.outcome(), Progress::Unanswered(_)));
    }
}

#[test]
fn an_answer_in_chunks_ends_with_its_trailers() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n\
                  3\r\nabc\r\n0\r\nX: y\r\nContent-Length: 3\r\n\r\n";
    let mut exchange = get();
    let told = answered(
        &mut exchange,
        &format!("{answer}HTTP/1.1 200 OK\r\n\r\n"),
        false,
    );
    assert_eq!(
        told,
        "HTTP/1.1 200 OK\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nX: y\r\n\r\n"
    );
    assert_eq!(exchange.outcome(), STAYS);
    // Broken in the middle.
    let mut exchange = get();
    answered(
        &mut exchange,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd",
        false,
    );
    assert_eq!(exchange.outcome(), Progress::Broken);
}

/// A body with how it is framed, and what must pass of it.
fn body() -> impl Strategy<Value = (String, Vec<u8>, Vec<u8>)> {
    let data = prop::collection::vec(any::<u8>(), 0..200);
    let known = data.prop_map(|data| {
        (
            format!("Content-Length: {}\r\n", data.len()),
            data.clone(),
            data,
        )
    });
    let chunk = (
        prop::collection::vec(any::<u8>(), 1..60),
        "(;[a-z]{1,4}(=[a-z]{1,4})?)?",
    );
    let trailer = prop_oneof![
        "X-[A-Z]{1,5}: [a-z]{0,9}\r\n",
        "Content-Length: 5\r\n",
        "Host: b\r\n"
    ];
    let chunked = (
        prop::collection::vec(chunk, 0..6),
        prop::collection::vec(trailer, 0..4),
    );
    let chunked = chunked.prop_map(|(chunks, trailers)| {
        let mut body = Vec::new();
        for (data, extension) in chunks {
            body.extend(format!("{:x}{extension}\r\n", data.len()).into_bytes());
            body.extend(data);
            body.extend(b"\r\n");
        }
        body.extend(b"0\r\n");
        let mut passing = body.clone();
        for trailer in trailers {
            body.extend(trailer.as_bytes());
            if trailer.starts_with('X') {
                passing.extend(trailer.as_bytes());
            }
        }
        body.extend(b"\r\n");
        passing.extend(b"\r\n");
        ("Transfer-Encoding: chunked\r\n".to_owned(), body, passing)
    });
    prop_oneof![known, chunked]
}

/// Almost the answer of a server.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        "HTTP/1\\.[01] (200|204|304|404|101|100) [A-Za-z ]{0,5}",
        "[ -~]{0,20}"
    ];
    let field = prop_oneof![
        "Content-Length: [0-9 +,]{0,4}",
        "Content-Length: [0-9]",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: [a-z, ]{0,12}",
        "Connection: [a-zA-Z, -]{0,20}",
        "[a-zA-Z-]{1,10} ?: ?[ -~]{0,20}",
    ];
    let rest = prop_oneof!["[0-9a-f]{1,2}\r\n[a-z\r\n0]{0,30}", "[ -~\r\n]{0,60}"];
    (line, prop::collection::vec(field, 0..4), rest).prop_map(|(line, fields, rest)| {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        format!("{line}\r\n{fields}\r\n{rest}").into_bytes()
    })
}

proptest! {
    /// However a request is cut in pieces: its bytes pass, and none behind them.
    #[test]
    fn nothing_behind_a_request_passes(
        (field, body, passing) in body(),
        next in prop::collection::vec(any::<u8>(), 0..100),
        sizes in prop::collection::vec(1_usize..80, 1..6),
    ) {
        let mut exchange = post(field.trim());
        let stream = [&body[..], &next].concat();
        let (passed, taken) = pass(&mut exchange, Side::Request, &stream, &sizes);
        prop_assert!(exchange.is_request_complete());
        prop_assert_eq!(passed, passing);
        prop_assert_eq!(taken, body.len());
    }

    /// The same of an answer, behind interim ones, on a connection that stays open.
    #[test]
    fn nothing_behind_an_answer_passes(
        (field, body, passing) in body(),
        interim in 0_usize..3,
        next in prop::collection::vec(any::<u8>(), 0..100),
        sizes in prop::collection::vec(1_usize..80, 1..6),
    ) {
        let interim = "HTTP/1.1 103 Hints\r\n\r\n".repeat(interim);
        let head = format!("{interim}HTTP/1.1 200 OK\r\n{field}\r\n");
        let stream = [head.as_bytes(), &body, &next].concat();
        let mut exchange = get();
        let (passed, taken) = pass(&mut exchange, Side::Answer, &stream, &sizes);
        prop_assert_eq!(exchange.outcome(), STAYS);
        prop_assert_eq!(passed, [head.as_bytes(), &passing].concat());
        prop_assert_eq!(taken, head.len() + body.len());
    }

    /// Whatever a server sends, in whatever pieces: the client gets the same.
    #[test]
    fn pieces_of_an_answer_do_not_matter(
        stream in prop_oneof![answer(), prop::collection::vec(any::<u8>(), 0..200)],
        sizes in prop::collection::vec(1_usize..40, 1..6),
    ) {
        let (mut whole, mut pieces) = (get(), get());
        let at_once = pass(&mut whole, Side::Answer, &stream, &[usize::MAX]);
        let in_pieces = pass(&mut pieces, Side::Answer, &stream, &sizes);
        prop_assert_eq!(&at_once.0, &in_pieces.0);
        prop_assert_eq!(whole.outcome(), pieces.outcome());
        for exchange in [&mut whole, &mut pieces] {
            exchange.handle_server_end(true);
        }
        prop_assert_eq!(whole.outcome(), pieces.outcome());
        // Another reader of what the client got finds the same end.
        if whole.outcome() == STAYS {
            let mut again = get();
            let read = pass(&mut again, Side::Answer, &at_once.0, &[usize::MAX]);
            prop_assert_eq!(read.1, at_once.0.len());
            prop_assert_eq!(again.outcome(), STAYS);
        }
    }
}
