//! Properties for any bytes, and the inputs that fuzzing has collected.

use crate::common::{Language, alice, negotiate};
use midspan_explicit::http::Side;
use midspan_explicit::proxy_protocol::{self, Reading};
use midspan_explicit::{Next, http};
use proptest::prelude::*;

/// In pieces or at once, the reply to the client and the result are the same.
fn pieces_do_not_matter(language: Language, input: &[u8], size: usize) {
    let alice = alice();
    for credentials in [None, Some(&alice)] {
        let mut whole = negotiate(language, input, usize::MAX, credentials);
        let mut pieces = negotiate(language, input, size, credentials);
        // Bytes that had not arrived when the negotiation ended.
        whole.rest.clear();
        pieces.rest.clear();
        assert_eq!(whole, pieces);
        if let Next::Connect(request) = whole.next {
            assert!(request.to_server.len() <= 2 * http::LONGEST_HEAD);
        }
    }
}

/// A body of a request, or an answer, is the same in pieces or at once.
fn bodies_do_not_matter(input: &[u8]) {
    let heads = [
        "POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HEAD http://a.example/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ];
    for head in heads {
        let end = negotiate(Language::Http, head.as_bytes(), usize::MAX, None);
        let Next::Connect(request) = end.next else {
            panic!("{head}");
        };
        let Some(exchange) = request.exchange else {
            panic!("{head}");
        };
        for side in [Side::Request, Side::Answer] {
            // The corpus of answers has two bytes of choices before each.
            for input in [input, input.get(2..).unwrap_or_default()] {
                let (mut whole, mut cut) = (exchange.clone(), exchange.clone());
                let (mut at_once, mut pieces) = (Vec::new(), Vec::new());
                let taken = whole.take_in(side, input, &mut at_once);
                assert!(taken <= input.len());
                for piece in input.chunks(3) {
                    if cut.take_in(side, piece, &mut pieces) < piece.len() {
                        break;
                    }
                }
                assert_eq!(at_once, pieces);
                assert_eq!(whole.outcome(), cut.outcome());
            }
        }
    }
}

fn header_is_bounded(input: &[u8]) {
    match proxy_protocol::read(input) {
        Reading::More => assert!(input.len() < proxy_protocol::LONGEST),
        Reading::Complete(header, length) => {
            assert!(length <= input.len());
            let again = proxy_protocol::read(&input[..length]);
            assert_eq!(again, Reading::Complete(header, length));
        }
        Reading::Malformed => {}
    }
}

fn request() -> impl Strategy<Value = String> {
    let method = prop_oneof!["CONNECT", "GET", "POST", "OPTIONS", "[A-Z]{1,8}"];
    let target = prop_oneof![
        "http://[a-z.:0-9@\\[\\]]{0,20}[/?#a-z]{0,5}",
        "[a-z.0-9\\[\\]:]{0,20}:[0-9]{0,6}",
        "[ -~]{0,20}",
    ];
    let field = prop_oneof![
        "Content-Length: [0-9 +,]{0,4}",
        "Transfer-Encoding: [a-z]{0,8}",
        "Connection: [a-zA-Z, -]{0,20}",
        "Proxy-Authorization: Basic [a-zA-Z0-9+/=]{0,20}",
        "[a-zA-Z-]{1,10}: ?[ -~]{0,20}",
    ];
    (method, target, prop::collection::vec(field, 0..6)).prop_map(|(method, target, fields)| {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        format!("{method} {target} HTTP/1.1\r\n{fields}\r\nbody")
    })
}

proptest! {
    #[test]
    fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 0..600), size in 1_usize..50) {
        pieces_do_not_matter(Language::Socks5, &input, size);
        pieces_do_not_matter(Language::Http, &input, size);
        header_is_bounded(&input);
    }

    #[test]
    fn almost_socks5_is_survived(
        methods in prop::collection::vec(0_u8..4, 0..4),
        rest in prop::collection::vec(0_u8..6, 0..40),
        size in 1_usize..20,
    ) {
        let mut input = vec![5, u8::try_from(methods.len()).unwrap()];
        input.extend(methods);
        input.extend(rest);
        pieces_do_not_matter(Language::Socks5, &input, size);
    }

    #[test]
    fn almost_http_is_survived(input in request(), size in 1_usize..50) {
        pieces_do_not_matter(Language::Http, input.as_bytes(), size);
    }

    /// With any bytes of the client, the server gets one head, of one request.
    #[test]
    fn the_server_gets_one_head(input in request()) {
        let end = negotiate(Language::Http, input.as_bytes(), usize::MAX, None);
        if let Next::Connect(wanted) = end.next && !wanted.to_server.is_empty() {
            let mut fields = [httparse::EMPTY_HEADER; 200];
            let mut head = httparse::Request::new(&mut fields);
            let length = head.parse(&wanted.to_server).unwrap().unwrap();
            prop_assert_eq!(length, wanted.to_server.len());
            let count = |name: &str| head.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count();
            prop_assert_eq!(count("host"), 1);
            prop_assert_eq!(count("connection"), 1);
            prop_assert_eq!(count("proxy-authorization"), 0);
            prop_assert!(count("content-length") + count("transfer-encoding") <= 2);
        }
    }

    #[test]
    fn almost_a_header_is_survived(
        start in prop::sample::select(vec![
            &b"PROXY TCP4 "[..],
            b"PROXY TCP6 ",
            b"\r\n\r\n\0\r\nQUIT\n",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        header_is_bounded(&[start, &rest].concat());
    }
}

/// `fuzz/corpus` has a folder for each target of `cargo fuzz`.
#[test]
fn the_corpus_is_survived() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut count = 0;
    for target in ["socks5", "http", "http_answer", "proxy_protocol"] {
        for file in std::fs::read_dir(corpus.join(target)).unwrap() {
            let input = std::fs::read(file.unwrap().path()).unwrap();
            pieces_do_not_matter(Language::Socks5, &input, 1);
            pieces_do_not_matter(Language::Http, &input, 7);
            header_is_bounded(&input);
            bodies_do_not_matter(&input);
            count += 1;
        }
    }
    assert!(count >= 9, "only {count} inputs found");
}
