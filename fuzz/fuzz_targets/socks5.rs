//! A SOCKS5 client that says anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_explicit::socks5::Socks5;
use midspan_explicit::{Credentials, Next};

fuzz_target!(|input: &[u8]| {
    let alice = Credentials::new([("alice".to_owned(), "secret".to_owned())].into());
    for credentials in [None, Some(&alice)] {
        let mut socks5 = Socks5::new();
        let mut rest = input;
        loop {
            let step = socks5.advance(rest, credentials);
            rest = &rest[step.consumed..];
            if step.next != Next::More || step.consumed == 0 {
                break;
            }
        }
    }
});
