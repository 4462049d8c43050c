//! Counts as floating-point numbers.

/// A count, such as one of bytes or packets, as a floating-point number. Above 2⁵³ it is rounded to
/// the nearest one.
#[must_use]
pub const fn number(count: u64) -> f64 {
    count as f64
}
