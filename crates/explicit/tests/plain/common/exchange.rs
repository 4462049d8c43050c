//! Exchanges, and the bytes that they let pass.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use midspan_explicit::Next;
use midspan_explicit::http::{Exchange, Http, Progress, Side, Wanted};

/// The exchange that begins with this head of a request.
pub fn exchange(head: &str) -> Exchange {
    match Http::new().advance(head.as_bytes(), None).next {
        Next::Connect(request) => request.exchange.expect("a plain request"),
        other => panic!("{head}: {other:?}"),
    }
}

pub fn get() -> Exchange {
    exchange("GET http://a.example/ HTTP/1.1\r\n\r\n")
}

pub fn post(fields: &str) -> Exchange {
    exchange(&format!(
        "POST http://a.example/ HTTP/1.1\r\n{fields}\r\n\r\n"
    ))
}

/// The part of these bytes that passes, if they arrive in pieces of these sizes, in turn; and the
/// number of bytes that belong to the message. Opaque bytes are not passed in, as in a relay.
pub fn pass(
    exchange: &mut Exchange,
    side: Side,
    input: &[u8],
    sizes: &[usize],
) -> (Vec<u8>, usize) {
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

/// The client's bytes for these bytes of a server, which may end the connection after them.
pub fn answered(exchange: &mut Exchange, bytes: &str, ends: bool) -> String {
    let (output, _) = pass(exchange, Side::Answer, bytes.as_bytes(), &[usize::MAX]);
    if ends {
        exchange.handle_server_end(true);
    }
    String::from_utf8(output).unwrap()
}

pub const STAYS: Progress = Progress::Answered { stays_open: true };
pub const CLOSES: Progress = Progress::Answered { stays_open: false };
