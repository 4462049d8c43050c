//! The counters of a narrow or long leg.

use serde::{Deserialize, Serialize};

/// Counters of a narrow leg, for logs and the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NarrowReport {
    /// Name of the profile; empty for a client without one.
    pub profile: String,
    /// Present segment size, in bytes of data; 0 if the kernel chooses it.
    pub segment_size_bytes: u32,
    /// Oversized segments sent.
    pub oversized_segments: u64,
    /// Oversized segments sent as probes.
    pub probes: u32,
    /// Probes lost, and later returns to the client's own segment size.
    pub fallbacks: u32,
    /// Bits that are added to the client's window scale.
    pub added_window_scale: u8,
    /// How often a loss limited the leg to the client's true window.
    pub sending_ahead_losses: u32,
    /// Whether data is sent ahead of the window of a client without a profile: "watching", "ahead"
    /// or "taken_back".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending_ahead: Option<String>,
    /// ACKs without data received.
    pub acknowledgements: u32,
    /// Bytes of these ACKs, with IP and TCP headers.
    pub acknowledgement_bytes: u64,
}
