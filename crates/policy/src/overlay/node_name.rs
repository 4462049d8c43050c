//! The names of nodes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest name of a node in bytes.
pub const LONGEST_NODE_NAME: usize = 32;

/// The name of a node: 1 to [`LONGEST_NODE_NAME`] lower-case letters, digits and hyphens, a letter
/// first. It is a token of HTTP (RFC 9110 §5.6.2) and of structured fields (RFC 8941 §3.3.4), so it
/// needs no quotes in any field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// A text is not the name of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the name of a node has 1 to {LONGEST_NODE_NAME} lower-case letters, digits and hyphens, a \
     letter first"
)]
pub struct InvalidNodeName;

impl NodeName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = InvalidNodeName;

    fn from_str(text: &str) -> Result<Self, InvalidNodeName> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
        match begins && text.len() <= LONGEST_NODE_NAME && text.bytes().all(plain) {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidNodeName),
        }
    }
}

impl TryFrom<String> for NodeName {
    type Error = InvalidNodeName;

    fn try_from(text: String) -> Result<Self, InvalidNodeName> {
        text.parse()
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_token_that_needs_no_quotes() {
        for name in ["a", "fra", "fra-2", &"x".repeat(32)] {
            assert_eq!(name.parse::<NodeName>().unwrap().as_str(), name);
        }
        for wrong in [
            "",
            "2fra",
            "-fra",
            "Fra",
            "fra 2",
            "fra,sin",
            "fra_2",
            "fra.example",
            "frä",
            "fra\r",
            &"x".repeat(33),
        ] {
            assert_eq!(wrong.parse::<NodeName>(), Err(InvalidNodeName), "{wrong}");
        }
    }
}
