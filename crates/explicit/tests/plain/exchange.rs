//! One request and its answer, cut into any pieces: the end of each, the bytes that pass, the result.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::exchange::*;
use midspan_explicit::http::{Http, Progress, Side, Verdict, Wanted};
use midspan_explicit::{Next, Refusal};
use proptest::prelude::*;

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
    // The largest size that is accepted.
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
    // A client that has its answer has harmed only itself.
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

/// A body, its framing, and the bytes of it that must pass.
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
    /// With any pieces of a request: its bytes pass, and no bytes after them.
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

    /// The same for an answer, after interim ones, on a connection that stays open.
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

    /// With any bytes of a server, in any pieces, the client gets the same.
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
        // Another parser of the client's bytes finds the same end.
        if whole.outcome() == STAYS {
            let mut again = get();
            let read = pass(&mut again, Side::Answer, &at_once.0, &[usize::MAX]);
            prop_assert_eq!(read.1, at_once.0.len());
            prop_assert_eq!(again.outcome(), STAYS);
        }
    }
}
