//! Answers of servers, as clients of a proxy get them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::exchange::*;
use midspan_explicit::Next;
use midspan_explicit::http::{Http, LONGEST_ANSWER_HEAD, Progress, Side, Wanted};

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
    // A length in an interim answer refers to no body.
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
        // A FIN passes as a FIN: the client sees that the body is too short.
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
    // HTTP/1.0 has no chunks: a program may read them or not, but no answer follows on the connection.
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
    // Any other protocol could carry requests to other servers; the proxy does not request it.
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
    // The answer ends in its middle.
    let mut exchange = get();
    answered(
        &mut exchange,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd",
        false,
    );
    assert_eq!(exchange.outcome(), Progress::Broken);
}
