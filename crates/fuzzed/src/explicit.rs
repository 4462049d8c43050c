//! What clients of explicit listeners say.

use midspan_explicit::http::Http;
use midspan_explicit::proxy_protocol::{Reading, read};
use midspan_explicit::socks5::Socks5;
use midspan_explicit::{Credentials, Next};

fn alice() -> Credentials {
    Credentials::new([("alice".to_owned(), "secret".to_owned())].into())
}

/// A SOCKS5 client that says anything.
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

/// An HTTP client that says anything.
pub fn http(input: &[u8]) {
    let alice = alice();
    for credentials in [None, Some(&alice)] {
        let step = Http::new().advance(input, credentials);
        assert!(step.consumed <= input.len());
    }
}

/// A connection that begins with anything.
pub fn proxy_protocol(input: &[u8]) {
    if let Reading::Complete(header, length) = read(input) {
        assert!(length <= input.len());
        let whole = input.get(..length).unwrap_or_default();
        assert_eq!(read(whole), Reading::Complete(header, length));
    }
}
