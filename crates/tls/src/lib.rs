//! TLS 1.3 (RFC 8446) between two nodes of an overlay, as a codec: bytes of a session on one side, bytes of the
//! connection on the other. No socket, no clock.
//!
//! | module | content |
//! | --- | --- |
//! | [`codec`] | [`Codec`]: the handshake, data in both directions, the end of each |
//! | [`keys`] | the keys of nodes |
//! | `pinned` | the check of the other node's key |
//! | `provider` | the algorithms |
//!
//! Each node has an Ed25519 key (RFC 8032), and proves in the handshake that it has it, as a raw public key (RFC
//! 7250). There are no certificates, no names and no authority: the list of members has the key of each node. No
//! connection is resumed, so there is no early data that could be sent twice.

pub mod codec;
pub mod keys;
mod pinned;
mod provider;

pub use codec::{Codec, Failure, PROTOCOL};
pub use keys::{KEY_LENGTH, KeyError, new_secret, public_key};
