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

/// Between the name of a node and that of an uplink. No text that is parsed has it.
const BY_UPLINK: char = '/';

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

    /// The name of the leg from this machine to the node over one of its uplinks. It is a name within this process:
    /// other nodes read the name of the node.
    #[must_use]
    pub fn by_uplink(&self, uplink: &Self) -> Self {
        Self(format!("{}{BY_UPLINK}{}", self.plain(), uplink.0))
    }

    /// The name of the node, without the uplink of a leg.
    #[must_use]
    pub fn node(&self) -> Self {
        Self(self.plain().to_owned())
    }

    /// The uplink of a leg.
    #[must_use]
    pub fn uplink(&self) -> Option<&str> {
        self.0.split_once(BY_UPLINK).map(|(_, uplink)| uplink)
    }

    /// Whether both are the same node, over any uplink.
    #[must_use]
    pub fn is_node(&self, other: &Self) -> bool {
        self.plain() == other.plain()
    }

    fn plain(&self) -> &str {
        self.0.split(BY_UPLINK).next().unwrap_or(&self.0)
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
            "fra/lte",
            "fra\r",
            &"x".repeat(33),
        ] {
            assert_eq!(wrong.parse::<NodeName>(), Err(InvalidNodeName), "{wrong}");
        }
    }

    #[test]
    fn a_leg_by_an_uplink_has_a_name_of_its_own() {
        let node: NodeName = "hub".parse().unwrap();
        let leg = node.by_uplink(&"lte".parse().unwrap());
        assert_eq!((leg.as_str(), leg.uplink()), ("hub/lte", Some("lte")));
        assert_eq!((leg.node(), node.uplink()), (node.clone(), None));
        assert!(leg.is_node(&node) && node.is_node(&leg) && leg != node);
        assert!(!leg.is_node(&"hub2".parse().unwrap()));
        assert_eq!(leg.by_uplink(&"vsat".parse().unwrap()).as_str(), "hub/vsat");
    }
}
