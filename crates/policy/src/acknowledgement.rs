//! For each ACK that may be thinned (Tam).

use midspan_units::Time;

/// A pure ACK on its way out, with what thinning must know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckSample {
    /// Acknowledgement number.
    pub number: u32,
    /// Data segments that this ACK newly covers.
    pub newly_covered: u32,
    /// The number is the same as in the ACK before.
    pub duplicate: bool,
    /// SACK blocks are present: data arrived out of order.
    pub selective: bool,
    /// The advertised window changed without a change of the number.
    pub window_update: bool,
}

/// What becomes of an ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckVerdict {
    /// Send it now; it stands for all that were held before.
    Pass,
    /// Keep it back, at the latest until this time (Tam §3.2: ACK time-out, ATO).
    HoldUntil(Time),
    /// Drop it: a later one says as much.
    Drop,
}

/// Decides which ACKs of one flow leave.
pub trait AckPolicy {
    /// An ACK is about to leave.
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict;
}
