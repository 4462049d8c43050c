//! An HTTP client that says anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_explicit::Credentials;
use midspan_explicit::http::Http;

fuzz_target!(|input: &[u8]| {
    let alice = Credentials::new([("alice".to_owned(), "secret".to_owned())].into());
    for credentials in [None, Some(&alice)] {
        let step = Http::new().advance(input, credentials);
        assert!(step.consumed <= input.len());
    }
});
