//! Names the content of a row: what a node reports to other nodes of its overlay.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use httparse::Header;

use crate::exchange::fields;

/// Names the content of a row (an entity tag, RFC 9110 §8.8.3). Rows with equal text have equal tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTag(u32);

impl RowTag {
    /// The tag of the row with this text.
    pub(crate) fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        // Only the node that has made a tag compares it. Half of the bits are enough: a wrong row, once in four
        // billion changes, lasts until the next change.
        Self(hasher.finish() as u32)
    }

    /// The only tag that a request has for rows; `None` if there is none, or another one than this node's.
    pub(crate) fn of_request(head: &[Header<'_>]) -> Option<Self> {
        Self::of_field(head, "if-none-match")
    }

    /// The only tag in the field of this name, as a node makes it.
    pub(crate) fn of_field(head: &[Header<'_>], name: &str) -> Option<Self> {
        let mut values = fields::values(head, name);
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        let text = std::str::from_utf8(value).ok()?.trim();
        let digits = text.strip_prefix('"')?.strip_suffix('"')?;
        let is_tag = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_tag.then(|| u32::from_str_radix(digits, 16).ok().map(Self))?
    }
}

impl fmt::Display for RowTag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{:08x}\"", self.0)
    }
}
