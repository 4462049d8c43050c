#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| midspan_fuzzed::tls(input));
