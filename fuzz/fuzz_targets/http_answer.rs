//! An HTTP server that answers anything. The first byte chooses the request, the second where the
//! answer is cut in two.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_explicit::Next;
use midspan_explicit::http::{Http, Progress, Side};

const REQUESTS: [&[u8]; 4] = [
    b"GET http://a.example/ HTTP/1.1\r\n\r\n",
    b"HEAD http://a.example/ HTTP/1.1\r\n\r\n",
    b"GET http://a.example/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET http://a.example/ HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
];

fuzz_target!(|input: &[u8]| {
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
});
