//! A field in a packet's mark.

use thiserror::Error;

/// Adjacent bits of the 32-bit packet mark. Other programs may use the other bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkField(u32);

/// Why a mask cannot be a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MarkFieldError {
    /// No bit is set.
    #[error("the mask has no bit: give at least one, as in \"0x0f000000\"")]
    Empty,
    /// The bits are not adjacent.
    #[error("the bits of the mask {0:#010x} are not adjacent, as in \"0x0f000000\"")]
    Scattered(u32),
}

impl MarkField {
    /// The field of the bits that are set in `mask`.
    ///
    /// # Errors
    /// See [`MarkFieldError`].
    pub const fn new(mask: u32) -> Result<Self, MarkFieldError> {
        if mask == 0 {
            return Err(MarkFieldError::Empty);
        }
        let low = mask >> mask.trailing_zeros();
        // Ones only at the low end: adding one clears them all.
        if low & low.wrapping_add(1) != 0 {
            return Err(MarkFieldError::Scattered(mask));
        }
        Ok(Self(mask))
    }

    /// The bits of the field.
    #[must_use]
    pub const fn mask(self) -> u32 {
        self.0
    }

    /// How many marks the field has; zero stands for "no mark" and is not one of them.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0 >> self.0.trailing_zeros()
    }

    /// The mark with this index, from 0; `None` from [`count`](Self::count) on.
    #[must_use]
    pub const fn value(self, index: u32) -> Option<u32> {
        if index >= self.count() {
            return None;
        }
        Some((index + 1) << self.0.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stay_within_the_field() {
        let field = MarkField::new(0x0f00_0000).unwrap();
        assert_eq!(field.count(), 15);
        assert_eq!(field.value(0), Some(0x0100_0000));
        assert_eq!(field.value(14), Some(0x0f00_0000));
        assert_eq!(field.value(15), None);
    }

    #[test]
    fn the_largest_and_the_smallest_field() {
        let all = MarkField::new(u32::MAX).unwrap();
        assert_eq!(all.count(), u32::MAX);
        assert_eq!(all.value(u32::MAX - 1), Some(u32::MAX));
        let one = MarkField::new(1 << 31).unwrap();
        assert_eq!((one.count(), one.value(0)), (1, Some(1 << 31)));
    }

    #[test]
    fn scattered_bits_are_refused() {
        assert_eq!(MarkField::new(0), Err(MarkFieldError::Empty));
        assert_eq!(MarkField::new(0x101), Err(MarkFieldError::Scattered(0x101)));
    }
}
