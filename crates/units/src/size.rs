//! Amounts of data in bytes.

use std::fmt;
use std::str::FromStr;

use crate::quantity::{Form, ParseError, Unit};

/// An amount of data in bytes. KB, MB, GB are decimal; KiB, MiB, GiB are binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(u64);

const FORM: Form = Form {
    kind: "size",
    example: "64 KiB",
    low: "0 B",
    high: "16 EiB",
    units: &[
        ("B", 1),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ],
};

/// Binary prefixes are used for printing, so that a buffer of 64 KiB is not printed as 65.536 KB.
const BINARY: &[Unit] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];
const DECIMAL: &[Unit] = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

impl ByteSize {
    /// A size of `bytes`.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        FORM.parse(text).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole_kib = self.0 >= 1 << 10 && self.0.is_multiple_of(1 << 10);
        let units = if whole_kib && !self.0.is_multiple_of(1_000) {
            BINARY
        } else {
            DECIMAL
        };
        f.write_str(&Form::print(self.0, units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_binary_prefixes_differ() {
        assert_eq!("1 MB".parse::<ByteSize>().unwrap().bytes(), 1_000_000);
        assert_eq!("1 MiB".parse::<ByteSize>().unwrap().bytes(), 1_048_576);
    }

    #[test]
    fn the_natural_prefix_is_printed() {
        assert_eq!(ByteSize::from_bytes(65_536).to_string(), "64 KiB");
        assert_eq!(ByteSize::from_bytes(10_000_000).to_string(), "10 MB");
        assert_eq!(ByteSize::from_bytes(0).to_string(), "0 B");
    }
}
