//! How a session comes to oversized segments: by a probe, or as the paper has it.

use serde::{Deserialize, Serialize};

/// How a session comes to oversized segments. The real proxy always probes; the simulator has the
/// paper's two ways as well, to compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OversizedStart {
    /// Segments of the client's own size at first; one oversized segment is tried once data flows.
    #[default]
    Probe,
    /// The gateway takes the handshake as if the oversized size had been agreed (§4, item 2):
    /// oversized from the first byte, and nothing leads back.
    SynAck,
    /// The first data goes out twice, as oversized segments and cut to the client's own size; the
    /// first acknowledgement says which size is kept (§6.2).
    Duplicate,
}

/// The size that a duplicate start keeps (§6.2, item 2), in bytes of data: the oversized one if
/// more was acknowledged than the `cut` segment held, and else that of the cut segment.
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
        // The client put together what it took of both.
        assert_eq!(size_after_duplicate_start(4420, 1460, 1461), 4420);
    }
}
