use proptest::prelude::*;

use super::*;

#[test]
fn every_unit_reads_well() {
    for (value, unit, text) in [
        (1.8123, "s", "1.81 s"),
        (0.56, "s", "560 ms"),
        (0.0, "s", "0 s"),
        (12e-6, "s", "12 µs"),
        (4e-10, "s", "0.4 ns"),
        (1234.4, "s", "1,234 s"),
        (19_200_000.0, "bit/s", "19.2 Mbit/s"),
        (8_000.0, "bit/s", "8 kbit/s"),
        (10_000_000.0, "bytes", "10 MB"),
        (1448.0, "bytes", "1.45 KB"),
        (512.0, "bytes", "512 B"),
        (0.36, "share", "36 %"),
        (0.001, "share", "0.1 %"),
        (1234.0, "", "1,234"),
        (1_234_567.0, "", "1,234,567"),
        (3.5, "", "3.5"),
        (0.333_33, "", "0.333"),
        (-1.5, "s", "-1.5 s"),
        (12.0, "CPU-s/GB", "12 CPU-s/GB"),
    ] {
        assert_eq!(format(value, unit), text, "{value} {unit}");
    }
}

#[test]
fn rounding_moves_to_the_next_prefix() {
    assert_eq!(format(0.999_6, "s"), "1 s");
    assert_eq!(format(0.999_4, "s"), "999 ms");
    assert_eq!(format(999_999.0, "bit/s"), "1 Mbit/s");
}

#[test]
fn a_value_that_is_no_number_is_shown() {
    assert_eq!(format(f64::NAN, "s"), "n/a");
    assert_eq!(format(f64::INFINITY, "bit/s"), "∞ bit/s");
    assert_eq!(format(f64::NEG_INFINITY, ""), "-∞");
    assert_eq!(format(f64::MAX, ""), "1.8e308");
    assert_eq!(format(-1e-300, ""), "-1e-300");
    assert_eq!(format(-0.0, ""), "0");
}

#[test]
fn the_spread_is_in_the_unit_of_the_value() {
    let text = |value, low, high| format_with_spread(value, low, high, "s");
    assert_eq!(text(1.81, Some(1.79), Some(1.85)), "1.81 s (1.79–1.85)");
    assert_eq!(text(0.9, Some(0.8), Some(1.2)), "900 ms (800–1,200)");
    assert_eq!(text(-1.0, Some(-2.0), Some(0.5)), "-1 s (-2 to 0.5)");
    assert_eq!(text(1.0, None, Some(2.0)), "1 s (at most 2)");
    assert_eq!(text(1.0, None, None), "1 s");
}

#[test]
fn a_column_shares_its_unit_where_it_can() {
    let symbol =
        |values: &[f64], unit| Scale::common(values, unit).map(|scale| scale.symbol().to_owned());
    assert_eq!(symbol(&[0.56, 0.62], "s").as_deref(), Some("ms"));
    assert_eq!(symbol(&[0.56, 13.6], "s").as_deref(), Some("s"));
    assert_eq!(symbol(&[350e-6, 13.6], "s"), None);
    assert_eq!(symbol(&[15e6, 1.2e9], "bit/s").as_deref(), Some("Mbit/s"));
    assert_eq!(symbol(&[0.0, f64::NAN], "s").as_deref(), Some("s"));
    assert_eq!(symbol(&[1.0, 5000.0], "").as_deref(), Some(""));
    assert_eq!(symbol(&[1.0, 1e18], ""), None);
}

#[test]
fn decimals_line_up() {
    let column = |values: &[f64], unit| -> Vec<String> {
        let scale = Scale::common(values, unit).unwrap();
        let decimals = scale.decimals(values);
        values
            .iter()
            .map(|&value| scale.number(value, Some(decimals)))
            .collect()
    };
    assert_eq!(column(&[1.81, 3.73, 13.6], "s"), ["1.81", "3.73", "13.60"]);
    assert_eq!(column(&[0.562, 13.612], "s"), ["0.56", "13.61"]);
    assert_eq!(column(&[1e5, 1e6, 1e7], "bytes"), ["0.1", "1.0", "10.0"]);
    assert_eq!(column(&[12.0, 0.0, 1234.0], ""), ["12", "0", "1,234"]);
    assert_eq!(column(&[0.15, 1234.0], ""), ["0.15", "1,234.00"]);
    assert_eq!(column(&[0.0, 0.0], "s"), ["0", "0"]);
}

proptest! {
    #[test]
    fn text_is_close_to_the_value(value in -1e14_f64..1e14) {
        let text = format(value, "").replace(',', "");
        let back: f64 = text.parse().unwrap();
        prop_assert!((back - value).abs() <= value.abs() * 0.005 + 1e-9, "{value} {text}");
    }

    #[test]
    fn any_bits_are_formatted(bits: u64, unit in "s|bit/s|bytes|share||.*") {
        let value = f64::from_bits(bits);
        prop_assert!(!format(value, &unit).is_empty());
        let _ = format_with_spread(value, Some(value), Some(-value), &unit);
        if let Some(scale) = Scale::common(&[value, 1.0], &unit) {
            let decimals = scale.decimals(&[value, 1.0]);
            prop_assert!(scale.number(value, Some(decimals)).len() < 64);
        }
    }
}
