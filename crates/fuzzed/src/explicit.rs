//! Input from clients of explicit listeners.

use midspan_explicit::hop::{AnswerReader, Hop, RowReader, row_answer};
use midspan_explicit::http::{Http, Progress, Side};
use midspan_explicit::proxy_protocol::{Reading, read};
use midspan_explicit::socks5::Socks5;
use midspan_explicit::{Credentials, Next};
use midspan_policy::overlay::{NodeName, Row};

fn alice() -> Credentials {
    Credentials::new([("alice".to_owned(), "secret".to_owned())].into())
}

/// A SOCKS5 client that sends any bytes.
pub fn socks5(input: &[u8]) {
    let alice = alice();
    for credentials in [None, Some(&alice)] {
        let mut socks5 = Socks5::new();
        let mut rest = input;
        loop {
            let step = socks5.advance(rest, credentials);
            assert!(step.consumed <= rest.len());
            rest = rest.get(step.consumed..).unwrap_or_default();
            if step.next != Next::More || step.consumed == 0 {
                break;
            }
        }
    }
}

/// An HTTP client that sends any bytes: a head, and the announced body, in two pieces.
pub fn http(input: &[u8]) {
    let alice = alice();
    for credentials in [None, Some(&alice)] {
        let step = Http::new().advance(input, credentials);
        assert!(step.consumed <= input.len());
        if let Next::Connect(request) = step.next
            && let Some(mut exchange) = request.exchange
        {
            let body = &input[step.consumed..];
            let mut pieces = exchange.clone();
            let (mut whole, mut cut) = (Vec::new(), Vec::new());
            let taken = exchange.take_in(Side::Request, body, &mut whole);
            let (first, second) = body.split_at(body.len() / 2);
            let mut in_pieces = pieces.take_in(Side::Request, first, &mut cut);
            if in_pieces == first.len() {
                in_pieces += pieces.take_in(Side::Request, second, &mut cut);
            }
            assert_eq!(whole, cut);
            assert_eq!(exchange, pieces);
            // Trailer fields before the fault in a broken request may have been kept or not.
            if exchange.outcome() == Progress::Going {
                assert_eq!(taken, in_pieces);
            }
            assert!(whole.len() <= 2 * taken);
        }
    }
}

const REQUESTS: [&[u8]; 4] = [
    b"GET http://a.example/ HTTP/1.1\r\n\r\n",
    b"HEAD http://a.example/ HTTP/1.1\r\n\r\n",
    b"GET http://a.example/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET http://a.example/ HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
];

/// An HTTP server that answers with any bytes. The first byte selects the request, the second the
/// position at which the answer is cut in two.
pub fn http_answer(input: &[u8]) {
    let [request, cut, answer @ ..] = input else {
        return;
    };
    let head = REQUESTS[usize::from(*request) % REQUESTS.len()];
    let Next::Connect(request) = Http::new().advance(head, None).next else {
        panic!("a request is refused");
    };
    let Some(mut exchange) = request.exchange else {
        panic!("a tunnel");
    };
    let mut pieces = exchange.clone();
    let (mut told, mut told_in_pieces) = (Vec::new(), Vec::new());
    let taken = exchange.take_in(Side::Answer, answer, &mut told);
    assert!(taken <= answer.len());
    let (first, second) = answer.split_at(usize::from(*cut).min(answer.len()));
    if pieces.take_in(Side::Answer, first, &mut told_in_pieces) == first.len() {
        pieces.take_in(Side::Answer, second, &mut told_in_pieces);
    }
    assert_eq!(told, told_in_pieces);
    assert_eq!(exchange.outcome(), pieces.outcome());
    exchange.handle_server_end(true);
    assert_ne!(exchange.outcome(), Progress::Going);
}

/// A node of an overlay that sends any bytes: as a request if the first byte is even, otherwise as an
/// answer. The second byte selects the position at which they are cut in two.
pub fn hop(input: &[u8]) {
    let [kind, cut, bytes @ ..] = input else {
        return;
    };
    let cut = usize::from(*cut).min(bytes.len());
    match kind % 2 {
        0 => hop_request(bytes, cut),
        _ => hop_answer(bytes, cut),
    }
}

fn hop_request(bytes: &[u8], cut: usize) {
    let Ok(own) = "fra".parse::<NodeName>() else {
        panic!("the name of a node is refused");
    };
    let new = || Hop::new(own.clone());
    let mut hop = new();
    let step = hop.advance(bytes);
    assert!(step.consumed <= bytes.len());
    let (Next::Connect(_), Some(request)) = (step.next, hop.request()) else {
        return;
    };
    let written = request.write();
    let mut again = new();
    assert_eq!(again.advance(&written).consumed, written.len());
    assert_eq!(again.request(), Some(request));
    let mut pieces = new();
    let first = pieces.advance(&bytes[..cut]);
    if first.next == Next::More && first.consumed == 0 {
        pieces.advance(bytes);
    }
    assert!(pieces.request().is_none_or(|pieces| pieces == request));
}

fn hop_answer(bytes: &[u8], cut: usize) {
    let whole = AnswerReader::default().take(bytes);
    let mut reader = AnswerReader::default();
    let (first, second) = bytes.split_at(cut);
    let in_pieces = match reader.take(first) {
        Ok((taken, None)) => {
            assert_eq!(taken, first.len());
            (reader.take(second)).map(|(more, answer)| (taken + more, answer))
        }
        over => over,
    };
    assert_eq!(whole, in_pieces);
    if let Ok((taken, Some(answer))) = whole {
        assert!(taken <= bytes.len());
        let written = answer.write();
        let again = AnswerReader::default().take(&written);
        assert!(again.is_ok_and(|(taken, answer)| taken == written.len() && answer.is_some()));
    }
}

/// A node of an overlay that answers the request for a row with any bytes. The first byte selects the
/// position at which they are cut in two, and whether a row was there before.
pub fn overlay_row(input: &[u8]) {
    let [cut, bytes @ ..] = input else {
        return;
    };
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let mut reader = RowReader::default();
    if *cut > 127 {
        // It has a row already: an answer may be without one.
        let _ = reader.take(&row_answer(&Row::default(), None));
    }
    let in_pieces = match reader.take(first) {
        Ok(None) => reader.take(second),
        over => over,
    };
    let Ok(Some(row)) = in_pieces else {
        return;
    };
    let written = row_answer(&row, None);
    assert_eq!(RowReader::default().take(&written), Ok(Some(row)));
}

/// A connection that begins with any bytes.
pub fn proxy_protocol(input: &[u8]) {
    if let Reading::Complete(header, length) = read(input) {
        assert!(length <= input.len());
        let whole = input.get(..length).unwrap_or_default();
        assert_eq!(read(whole), Reading::Complete(header, length));
    }
}
