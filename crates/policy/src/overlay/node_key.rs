//! The keys of nodes: Ed25519 (RFC 8032), as a text in Base64 (RFC 4648 §4).

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{NodeName, Overlay};

/// Bytes of a key.
const LENGTH: usize = 32;

/// A public key of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeKey([u8; LENGTH]);

/// The private key of this node. Its `Debug` shows nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeSecret([u8; LENGTH]);

/// The keys of a leg: that of this node, and the only one that the node at the other end may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegKeys {
    /// The private key of this node.
    pub own: NodeSecret,
    /// The public key of the other node.
    pub peer: NodeKey,
}

/// A text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a key is 32 bytes in Base64: 44 characters, the last one is \"=\"")]
pub struct InvalidNodeKey;

impl NodeKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }
}

impl NodeSecret {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    /// The text of its file.
    #[must_use]
    pub fn to_text(self) -> String {
        STANDARD.encode(self.0)
    }
}

fn bytes(text: &str) -> Result<[u8; LENGTH], InvalidNodeKey> {
    let bytes = STANDARD.decode(text).map_err(|_| InvalidNodeKey)?;
    bytes.try_into().map_err(|_| InvalidNodeKey)
}

impl FromStr for NodeKey {
    type Err = InvalidNodeKey;

    fn from_str(text: &str) -> Result<Self, InvalidNodeKey> {
        bytes(text).map(Self)
    }
}

impl FromStr for NodeSecret {
    type Err = InvalidNodeKey;

    fn from_str(text: &str) -> Result<Self, InvalidNodeKey> {
        bytes(text).map(Self)
    }
}

impl TryFrom<String> for NodeKey {
    type Error = InvalidNodeKey;

    fn try_from(text: String) -> Result<Self, InvalidNodeKey> {
        text.parse()
    }
}

impl TryFrom<String> for NodeSecret {
    type Error = InvalidNodeKey;

    fn try_from(text: String) -> Result<Self, InvalidNodeKey> {
        text.parse()
    }
}

impl From<NodeKey> for String {
    fn from(key: NodeKey) -> Self {
        key.to_string()
    }
}

impl From<NodeSecret> for String {
    fn from(secret: NodeSecret) -> Self {
        secret.to_text()
    }
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for NodeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeSecret(..)")
    }
}

impl Overlay {
    /// The private key of this node, if its legs are encrypted.
    fn own_secret(&self) -> Option<NodeSecret> {
        self.own_node()?.key?;
        self.secret
    }

    /// The keys of the leg to the node of this name; `None` if the leg is not encrypted, because one of the two has
    /// no key.
    #[must_use]
    pub fn keys_to(&self, name: &NodeName) -> Option<LegKeys> {
        let peer = self.node(name)?.key?;
        let own = self.own_secret()?;
        Some(LegKeys { own, peer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_text() {
        let text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let key: NodeKey = text.parse().unwrap();
        assert_eq!(key.bytes().last(), Some(&31));
        assert_eq!(key.to_string(), text);
        let secret: NodeSecret = text.parse().unwrap();
        assert_eq!(secret.to_text(), text);
        for wrong in ["", "AAEC", &text[1..], &format!("{text}=")] {
            assert_eq!(wrong.parse::<NodeKey>(), Err(InvalidNodeKey), "{wrong}");
        }
    }

    #[test]
    fn a_private_key_is_not_shown() {
        let secret = NodeSecret::new([7; LENGTH]);
        assert_eq!(format!("{secret:?}"), "NodeSecret(..)");
    }
}
