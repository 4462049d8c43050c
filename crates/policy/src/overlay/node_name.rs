//! The names of nodes.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest name of a node in bytes.
pub const LONGEST_NODE_NAME: usize = 32;

/// The name of a node: 1 to [`LONGEST_NODE_NAME`] lower-case letters, digits and hyphens, a letter
/// first. It is a token of HTTP (RFC 9110 §5.6.2) and of structured fields (RFC 8941 §3.3.4), so it
/// needs no quotes in any field.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName {
    /// The first bytes and zeros, so that most comparisons need no more. No name has a zero.
    first: u64,
    text: Arc<Text>,
}

/// Behind a thin pointer: rows and routes have many names.
#[derive(Debug)]
struct Text {
    text: Box<str>,
    has_uplink: bool,
}

/// Bytes in [`NodeName::first`].
const FIRST: usize = 8;

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
    fn of(text: &str) -> Self {
        let mut first = [0; FIRST];
        for (byte, of_text) in first.iter_mut().zip(text.bytes()) {
            *byte = of_text;
        }
        Self {
            first: u64::from_be_bytes(first),
            text: Arc::new(Text {
                has_uplink: text.contains(BY_UPLINK),
                text: text.into(),
            }),
        }
    }

    /// Whether the first bytes are the whole name.
    const fn is_short(&self) -> bool {
        self.first.to_be_bytes()[FIRST - 1] == 0
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text.text
    }

    /// The name of the leg from this machine to the node over one of its uplinks. It is a name within this process:
    /// other nodes read the name of the node.
    #[must_use]
    pub fn by_uplink(&self, uplink: &Self) -> Self {
        Self::of(&format!("{}{BY_UPLINK}{}", self.plain(), uplink.as_str()))
    }

    /// The name of the node, without the uplink of a leg.
    #[must_use]
    pub fn node(&self) -> Self {
        match self.uplink() {
            None => self.clone(),
            Some(_) => Self::of(self.plain()),
        }
    }

    /// The uplink of a leg.
    #[must_use]
    pub fn uplink(&self) -> Option<&str> {
        if !self.text.has_uplink {
            return None;
        }
        self.as_str()
            .split_once(BY_UPLINK)
            .map(|(_, uplink)| uplink)
    }

    /// Whether both are the same node, over any uplink.
    #[must_use]
    pub fn is_node(&self, other: &Self) -> bool {
        match self.text.has_uplink || other.text.has_uplink {
            true => self.plain() == other.plain(),
            false => self == other,
        }
    }

    /// The text of the node's name, without the uplink of a leg.
    pub(super) fn plain(&self) -> &str {
        match self.text.has_uplink {
            true => self.as_str().split(BY_UPLINK).next().unwrap_or_default(),
            false => self.as_str(),
        }
    }
}

impl PartialEq for NodeName {
    fn eq(&self, other: &Self) -> bool {
        // Two names with the same first bytes are both short, or neither is.
        self.first == other.first && (self.is_short() || self.as_str() == other.as_str())
    }
}

impl Eq for NodeName {}

impl PartialOrd for NodeName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NodeName {
    /// The order of the texts. Short names are compared without reading them.
    fn cmp(&self, other: &Self) -> Ordering {
        self.first
            .cmp(&other.first)
            .then_with(|| match self.is_short() {
                true => Ordering::Equal,
                false => self.as_str().cmp(other.as_str()),
            })
    }
}

impl Hash for NodeName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl FromStr for NodeName {
    type Err = InvalidNodeName;

    fn from_str(text: &str) -> Result<Self, InvalidNodeName> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
        match begins && text.len() <= LONGEST_NODE_NAME && text.bytes().all(plain) {
            true => Ok(Self::of(text)),
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
        name.as_str().to_owned()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn names_have_the_order_of_their_texts(
            one in "[a-c][a-b0-1]{0,9}(/[a-b]{1,3})?",
            other in "[a-c][a-b0-1]{0,9}(/[a-b]{1,3})?",
        ) {
            let (of_one, of_other) = (NodeName::of(&one), NodeName::of(&other));
            prop_assert_eq!(of_one.cmp(&of_other), one.cmp(&other));
            prop_assert_eq!(of_one == of_other, one == other);
        }
    }
}
