//! Whole negotiations, in pieces of any size.
#![allow(dead_code, reason = "not every test file uses all of it")]

pub mod exchange;

use midspan_explicit::http::Http;
use midspan_explicit::socks5::Socks5;
use midspan_explicit::{Credentials, Next, Step};

/// The protocol of the negotiation.
#[derive(Debug, Clone, Copy)]
pub enum Language {
    Socks5,
    Http,
}

/// How a negotiation ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ending {
    /// The bytes for the client.
    pub told: Vec<u8>,
    pub next: Next,
    /// The remaining bytes for the server.
    pub rest: Vec<u8>,
}

pub fn alice() -> Credentials {
    Credentials::new([("alice".to_owned(), "secret".to_owned())].into())
}

/// Passes `input` in pieces of `size`, as they would arrive from the network.
pub fn negotiate(
    language: Language,
    input: &[u8],
    size: usize,
    credentials: Option<&Credentials>,
) -> Ending {
    let (mut socks5, mut http) = (Socks5::new(), Http::new());
    let mut advance = |input: &[u8]| match language {
        Language::Socks5 => socks5.advance(input, credentials),
        Language::Http => http.advance(input, credentials),
    };
    let (mut held, mut told) = (Vec::new(), Vec::new());
    for piece in input.chunks(size) {
        held.extend_from_slice(piece);
        loop {
            let Step {
                consumed,
                reply,
                next,
            } = advance(&held);
            assert!(consumed <= held.len(), "more is consumed than there was");
            held.drain(..consumed);
            told.extend_from_slice(&reply);
            if next != Next::More {
                return Ending {
                    told,
                    next,
                    rest: held,
                };
            }
            if consumed == 0 {
                break;
            }
        }
    }
    Ending {
        told,
        next: Next::More,
        rest: held,
    }
}
