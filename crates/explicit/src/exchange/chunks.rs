//! The chunked transfer coding (RFC 9112 §7.1), parsed while it passes.
//!
//! Sizes, extensions and data pass unchanged as soon as each byte is known to be valid. So no byte of them is
//! kept, and the first invalid byte does not pass. Trailer fields are kept until the end of the last one,
//! because some of them must not pass.

use super::{Verdict, fields};

/// Most bytes after the size in its line.
const LONGEST_EXTENSION: u16 = 256;
/// Most bytes of trailer fields.
const LONGEST_TRAILERS: usize = 4 * 1024;
/// Most trailer fields.
const MOST_TRAILERS: usize = 64;
/// Most digits of a size, including leading zeros.
const MOST_DIGITS: u8 = 16;

/// How far the coding has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// In the number of a chunk's bytes.
    Size { digits: u8, size: u64 },
    /// After the number, in its line.
    Extension { size: u64, length: u16 },
    /// The carriage return of that line has been read.
    SizeEnd { size: u64 },
    /// In the data, of which this number of bytes is left.
    Data { left: u64 },
    /// After the data.
    DataEnd,
    /// The carriage return after the data has been read.
    DataLineFeed,
    /// After the last chunk.
    Trailers(Vec<u8>),
    /// The whole body has been read.
    Complete,
    /// The rules were violated.
    Malformed,
}

impl Chunks {
    /// Nothing has been read yet.
    pub const fn new() -> Self {
        Self::Size { digits: 0, size: 0 }
    }

    /// The treatment of the next bytes.
    pub fn look(&mut self, input: &[u8]) -> Verdict {
        let passing = self.pass(input);
        match self {
            _ if passing > 0 => Verdict::Pass(passing),
            Self::Trailers(_) => self.trailers(input),
            _ => Verdict::Stop,
        }
    }

    /// This many bytes of a chunk's data have passed.
    pub fn handle_passed(&mut self, count: u64) {
        if let Self::Data { left } = self {
            *left = left.saturating_sub(count);
            if *left == 0 {
                *self = Self::DataEnd;
            }
        }
    }

    /// The number of bytes, from the first, that pass unchanged.
    fn pass(&mut self, input: &[u8]) -> usize {
        let mut passed = 0;
        while let Some(byte) = input.get(passed) {
            if let Self::Data { left } = *self {
                let here = (input.len() - passed) as u64;
                let count = left.min(here);
                self.handle_passed(count);
                passed += usize::try_from(count).unwrap_or(usize::MAX);
                continue;
            }
            *self = match *self {
                Self::Size { digits, size } => size_digit(*byte, digits, size),
                Self::Extension { size, .. } if *byte == b'\r' => Self::SizeEnd { size },
                Self::Extension { size, length } if is_plain(*byte, length) => Self::Extension {
                    size,
                    length: length + 1,
                },
                Self::SizeEnd { size: 0 } if *byte == b'\n' => Self::Trailers(Vec::new()),
                Self::SizeEnd { size } if *byte == b'\n' => Self::Data { left: size },
                Self::DataEnd if *byte == b'\r' => Self::DataLineFeed,
                Self::DataLineFeed if *byte == b'\n' => Self::new(),
                Self::Trailers(_) | Self::Complete => return passed,
                _ => Self::Malformed,
            };
            if matches!(self, Self::Malformed) {
                return passed;
            }
            passed += 1;
        }
        passed
    }

    fn trailers(&mut self, input: &[u8]) -> Verdict {
        let Self::Trailers(kept) = self else {
            return Verdict::Stop;
        };
        for (place, byte) in input.iter().enumerate() {
            kept.push(*byte);
            if kept == b"\r\n" || kept.ends_with(b"\r\n\r\n") {
                let Some(passing) = passing_trailers(kept) else {
                    break;
                };
                *self = Self::Complete;
                return Verdict::Replace(place + 1, passing);
            }
            if kept.len() >= LONGEST_TRAILERS {
                break;
            }
            if place + 1 == input.len() {
                return Verdict::Take(input.len());
            }
        }
        *self = Self::Malformed;
        Verdict::Stop
    }
}

fn size_digit(byte: u8, digits: u8, size: u64) -> Chunks {
    let digit = char::from(byte).to_digit(16);
    match (digit, byte) {
        (Some(digit), _) if digits < MOST_DIGITS => {
            let size = size << 4 | u64::from(digit);
            match i64::try_from(size) {
                Ok(_) => Chunks::Size {
                    digits: digits + 1,
                    size,
                },
                Err(_) => Chunks::Malformed,
            }
        }
        (None, b'\r') if digits > 0 => Chunks::SizeEnd { size },
        (None, b';' | b' ' | b'\t') if digits > 0 => Chunks::Extension { size, length: 1 },
        _ => Chunks::Malformed,
    }
}

/// Whether an extension of this length may have this byte as its next.
const fn is_plain(byte: u8, length: u16) -> bool {
    length < LONGEST_EXTENSION && matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// The trailer section without the fields that must not pass; `None` if it is invalid.
fn passing_trailers(section: &[u8]) -> Option<Vec<u8>> {
    let mut trailers = [httparse::EMPTY_HEADER; MOST_TRAILERS];
    let Ok(httparse::Status::Complete((length, trailers))) =
        httparse::parse_headers(section, &mut trailers)
    else {
        return None;
    };
    // A program that treats a line feed alone as the end of a line would find the end earlier.
    if length != section.len() {
        return None;
    }
    let mut passing = Vec::with_capacity(section.len());
    for field in trailers.iter() {
        if fields::passes(field.name, &["trailer"]) {
            fields::write(&mut passing, field.name.as_bytes(), field.value);
        }
    }
    passing.extend_from_slice(b"\r\n");
    Some(passing)
}
