//! A body, and the position of its end.

use super::chunks::Chunks;
use super::{Verdict, Wanted};

/// The rest of a message's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunks),
    /// All bytes until the sender ends the connection.
    UntilEnd,
}

impl Body {
    /// None.
    pub const NONE: Self = Self::Length(0);

    /// A body in chunks, of which none has been read.
    pub const fn chunked() -> Self {
        Self::Chunked(Chunks::new())
    }

    /// Whether the body is complete.
    pub const fn is_complete(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunks::Complete))
    }

    /// Whether the body violates the rules.
    pub const fn is_malformed(&self) -> bool {
        matches!(self, Self::Chunked(Chunks::Malformed))
    }

    /// The bytes that the body needs from its sender.
    pub const fn wanted(&self) -> Wanted {
        match self {
            Self::Length(0) | Self::Chunked(Chunks::Complete | Chunks::Malformed) => {
                Wanted::Nothing
            }
            Self::Length(left) | Self::Chunked(Chunks::Data { left }) => Wanted::Opaque(*left),
            Self::Chunked(_) => Wanted::Bytes,
            Self::UntilEnd => Wanted::Opaque(u64::MAX),
        }
    }

    /// The treatment of the next bytes.
    pub fn look(&mut self, input: &[u8]) -> Verdict {
        let most = match self {
            Self::Chunked(chunks) => return chunks.look(input),
            Self::Length(left) => usize::try_from(*left).unwrap_or(usize::MAX),
            Self::UntilEnd => usize::MAX,
        };
        let count = input.len().min(most);
        self.handle_passed(count as u64);
        match count {
            0 => Verdict::Stop,
            count => Verdict::Pass(count),
        }
    }

    /// This many bytes of the body have passed without being parsed.
    pub fn handle_passed(&mut self, count: u64) {
        match self {
            Self::Length(left) => *left = left.saturating_sub(count),
            Self::Chunked(chunks) => chunks.handle_passed(count),
            Self::UntilEnd => {}
        }
    }
}
