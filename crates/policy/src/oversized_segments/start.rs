//! How a session begins with oversized segments: by a probe, or as in the paper.

use serde::{Deserialize, Serialize};

/// How a session begins with oversized segments. The real proxy always probes; the simulator has
/// the paper's two ways as well, to compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OversizedStart {
    /// Segments of the client's own size at first; one oversized segment is tried once data flows.
    #[default]
    Probe,
    /// The gateway answers the handshake as if the oversized size had been agreed (§4, item 2):
    /// segments are oversized from the first byte, and never return to the normal size.
    SynAck,
    /// The first data is sent twice, as an oversized segment and cut to the client's own size. The
    /// first acknowledgement decides which size is kept (§6.2).
    Duplicate,
}

/// The size, in bytes of data, that a duplicate start keeps (§6.2, item 2): the oversized one if
/// more was acknowledged than the `cut` segment held, else that of the cut segment.
#[must_use]
pub const fn size_after_duplicate_start(oversized: u32, cut: u32, acknowledged: u64) -> u32 {
    if acknowledged > cut as u64 {
        oversized
    } else {
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acknowledgement_chooses() {
        assert_eq!(size_after_duplicate_start(4420, 1460, 1460), 1460);
        assert_eq!(size_after_duplicate_start(4420, 1460, 4420), 4420);
        // The client combined what it accepted from both.
        assert_eq!(size_after_duplicate_start(4420, 1460, 1461), 4420);
    }
}
