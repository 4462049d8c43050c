//! An HTTP client that says anything: a head, and the body that it announces, in two pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_explicit::http::{Http, Side};
use midspan_explicit::{Credentials, Next};

fuzz_target!(|input: &[u8]| {
    let alice = Credentials::new([("alice".to_owned(), "secret".to_owned())].into());
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
            assert_eq!((taken, &whole), (in_pieces, &cut));
            assert_eq!(exchange, pieces);
            assert!(whole.len() <= 2 * taken);
        }
    }
});
