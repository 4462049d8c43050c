//! HTTP between a proxy and its clients.

use crate::common::{self, Language, alice, negotiate};
use midspan_explicit::http::{Http, LONGEST_HEAD};
use midspan_explicit::{Failure, Next, Outcome, Refusal};

fn http(input: &str) -> common::Ending {
    negotiate(Language::Http, input.as_bytes(), usize::MAX, None)
}

/// The server, and the bytes for it.
fn wanted(input: &str) -> (String, String) {
    match http(input).next {
        Next::Connect(request) => (
            request.destination.to_string(),
            String::from_utf8_lossy(&request.to_server).into_owned(),
        ),
        other => panic!("{input:?}: {other:?}"),
    }
}

fn refused(input: &str) -> (Refusal, String) {
    let end = http(input);
    let told = String::from_utf8_lossy(&end.told).into_owned();
    match end.next {
        Next::Refuse(refusal) => (refusal, told.lines().next().unwrap_or_default().to_owned()),
        other => panic!("{input:?}: {other:?}"),
    }
}

#[test]
fn a_tunnel_leads_where_it_says() {
    let end = http("CONNECT example.org:443 HTTP/1.1\r\nHost: other.example\r\n\r\n\x16\x03");
    assert_eq!(end.rest, b"\x16\x03");
    let Next::Connect(request) = end.next else {
        panic!("{:?}", end.next);
    };
    assert_eq!(request.destination.to_string(), "example.org:443");
    assert!(request.to_server.is_empty());
    for wrong in [
        "example.org",
        "http://example.org:443",
        "/",
        "example.org:0",
        "a@b:443",
    ] {
        let (refusal, line) = refused(&format!("CONNECT {wrong} HTTP/1.1\r\n\r\n"));
        assert_eq!(
            (refusal, line.as_str()),
            (Refusal::Malformed, "HTTP/1.1 400 Bad Request")
        );
    }
}

#[test]
fn a_request_is_rewritten_for_its_server() {
    let (to, told) = wanted(
        "POST http://Example.org/form?a=b HTTP/1.1\r\nHost: evil.example\r\nUser-Agent: x\r\n\
         Proxy-Connection: keep-alive\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\
         Keep-Alive: timeout=5\r\nTE: trailers\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\
         Proxy-Authorization: Basic eDp5\r\n\r\nabc",
    );
    assert_eq!(to, "example.org:80");
    let expected = "POST /form?a=b HTTP/1.1\r\nHost: example.org\r\nUser-Agent: x\r\n\
                    Content-Length: 3\r\nVia: 1.1 midspan\r\nConnection: close\r\n\r\n";
    assert_eq!(told, expected);
}

#[test]
fn paths_and_authorities_are_written_as_servers_want_them() {
    for (target, to, line, host) in [
        (
            "http://a.example",
            "a.example:80",
            "GET / HTTP/1.0",
            "a.example",
        ),
        (
            "HTTP://a.example?q",
            "a.example:80",
            "GET /?q HTTP/1.0",
            "a.example",
        ),
        (
            "http://[2001:db8::1]/x",
            "[2001:db8::1]:80",
            "GET /x HTTP/1.0",
            "[2001:db8::1]",
        ),
        (
            "http://192.0.2.1:8080/",
            "192.0.2.1:8080",
            "GET / HTTP/1.0",
            "192.0.2.1:8080",
        ),
    ] {
        let (found, told) = wanted(&format!("GET {target} HTTP/1.0\r\n\r\n"));
        assert_eq!(found, to);
        assert!(
            told.starts_with(&format!("{line}\r\nHost: {host}\r\n")),
            "{told}"
        );
    }
    let (_, told) = wanted("OPTIONS http://a.example HTTP/1.1\r\n\r\n");
    assert!(told.starts_with("OPTIONS * HTTP/1.1\r\n"));
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    for fields in [
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Content-Length: +3",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Connection: close, Content-Length\r\nContent-Length: 3",
        "Connection: transfer-encoding",
        "Content-Length : 3",
        "X: a\r\n b",
        "X: a\0b",
    ] {
        let request = format!("POST http://a.example/ HTTP/1.1\r\n{fields}\r\n\r\n");
        let (refusal, line) = refused(&request);
        assert_eq!(refusal, Refusal::Malformed, "{fields}");
        assert_eq!(line, "HTTP/1.1 400 Bad Request");
    }
}

#[test]
fn what_is_not_for_a_proxy_is_refused() {
    let get = |target: &str| refused(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(get("/").1, "HTTP/1.1 400 Bad Request");
    assert_eq!(
        get("http://user:password@a.example/").1,
        "HTTP/1.1 400 Bad Request"
    );
    assert_eq!(get("http:///x").1, "HTTP/1.1 400 Bad Request");
    assert_eq!(get("https://a.example/").1, "HTTP/1.1 501 Not Implemented");
    assert_eq!(get("ftp://a.example/").1, "HTTP/1.1 501 Not Implemented");
    assert_eq!(refused("\x16\x03\x01\x02").0, Refusal::Malformed);
    let endless = format!("GET http://a/ HTTP/1.1\r\nX: {}", "a".repeat(LONGEST_HEAD));
    assert!(refused(&endless).1.contains(" 431 "));
    let many = format!("GET http://a/ HTTP/1.1\r\n{}\r\n", "X: a\r\n".repeat(200));
    assert!(refused(&many).1.contains(" 431 "));
}

#[test]
fn name_and_password_are_asked_for_and_checked() {
    let alice = alice();
    let ask = |field: &str| {
        let request = format!("CONNECT a.example:443 HTTP/1.1\r\n{field}\r\n");
        negotiate(Language::Http, request.as_bytes(), usize::MAX, Some(&alice))
    };
    // alice:secret
    let right = "Proxy-Authorization: basic YWxpY2U6c2VjcmV0\r\n";
    assert!(matches!(ask(right).next, Next::Connect(_)));
    for wrong in [
        String::new(),
        "Proxy-Authorization: Basic YWxpY2U6U2VjcmV0\r\n".to_owned(),
        "Proxy-Authorization: Bearer YWxpY2U6c2VjcmV0\r\n".to_owned(),
        "Proxy-Authorization: Basic YWxpY2U\r\n".to_owned(),
        "Proxy-Authorization: Basic %%%\r\n".to_owned(),
        "Authorization: Basic YWxpY2U6c2VjcmV0\r\n".to_owned(),
        right.repeat(2),
    ] {
        let end = ask(&wrong);
        let refusal = match wrong.starts_with("Proxy-") {
            true => Refusal::Unauthenticated,
            false => Refusal::NoCredentials,
        };
        assert_eq!(end.next, Next::Refuse(refusal), "{wrong}");
        let told = String::from_utf8(end.told).unwrap();
        assert!(told.starts_with("HTTP/1.1 407 ") && told.contains("Proxy-Authenticate: Basic"));
    }
}

#[test]
fn the_outcome_is_told() {
    let mut tunnel = Http::new();
    tunnel.advance(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n", None);
    let connected = Outcome::Connected("192.0.2.1:1".parse().unwrap());
    let told = tunnel.answer(connected);
    assert!(told.starts_with(b"HTTP/1.1 200 ") && told.ends_with(b"\r\n\r\n"));
    let mut plain = Http::new();
    plain.advance(b"GET http://a.example/ HTTP/1.1\r\n\r\n", None);
    assert!(plain.answer(connected).is_empty());
    for (failure, status) in [
        (Failure::Refused, "502"),
        (Failure::TimedOut, "504"),
        (Failure::NameNotFound, "502"),
        (Failure::NotAllowed, "403"),
        (Failure::Shortage, "503"),
        (Failure::TooFast, "429"),
        (Failure::RouteBroken, "502"),
    ] {
        let told = String::from_utf8(plain.answer(Outcome::Failed(failure))).unwrap();
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{told}");
        let (head, body) = told.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }
}
