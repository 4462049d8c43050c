//! Every quantity prints as a text that parses back to the same value; no text causes a panic.

use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};
use proptest::prelude::*;

proptest! {
    #[test]
    fn rates_read_back(value in 1u64..) {
        let rate = BitRate::from_bits_per_second(value).unwrap();
        prop_assert_eq!(rate.to_string().parse::<BitRate>().unwrap(), rate);
    }

    #[test]
    fn sizes_read_back(value in any::<u64>()) {
        let size = ByteSize::from_bytes(value);
        prop_assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
    }

    #[test]
    fn times_read_back(value in any::<u64>()) {
        let span = TimeSpan::from_nanoseconds(value);
        prop_assert_eq!(span.to_string().parse::<TimeSpan>().unwrap(), span);
    }

    #[test]
    fn probabilities_read_back(value in 0.0f64..=1.0) {
        let probability = Probability::from_f64(value).unwrap();
        prop_assert_eq!(probability.to_string().parse::<Probability>().unwrap(), probability);
    }

    #[test]
    fn no_text_panics(text in ".{0,40}", number in "[0-9.]{1,60} ?[a-zA-Z/%µ]{0,6}") {
        for text in [text, number] {
            let _ = text.parse::<BitRate>();
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<TimeSpan>();
            let _ = text.parse::<Probability>();
        }
    }

    #[test]
    fn rate_and_time_agree(rate in 1_000u64..100_000_000_000, bytes in 1u64..10_000_000) {
        let rate = BitRate::from_bits_per_second(rate).unwrap();
        let span = rate.transmission_time(bytes);
        // Rounding up to a nanosecond never loses a byte, and adds less than the bytes of one
        // nanosecond.
        prop_assert!(rate.bytes_in(span) >= bytes);
        prop_assert!(rate.bytes_in(span) <= bytes + rate.bits_per_second() / 8_000_000_000 + 1);
    }
}
