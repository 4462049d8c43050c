//! A connection that begins with anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_explicit::proxy_protocol::{Reading, read};

fuzz_target!(|input: &[u8]| {
    if let Reading::Complete(header, length) = read(input) {
        assert_eq!(read(&input[..length]), Reading::Complete(header, length));
    }
});
