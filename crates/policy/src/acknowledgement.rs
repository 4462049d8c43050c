//! ACK thinning (Tam): the interface between a caller that has ACKs and a policy that decides which
//! of them leave.
//!
//! There are two kinds of callers. A middlebox sees ACKs that a receiver has already sent. A receiver that
//! thins its own ACKs (in the simulator) makes a candidate ACK for every data segment that arrives. In both
//! cases, the verdict decides which of the ACKs leave.
//!
//! The caller holds at most one ACK of each flow, and treats it as follows:
//!
//! 1. When the time of the held ACK has come, this ACK leaves before the policy is called again.
//! 2. [`AckVerdict::Pass`]: the new ACK leaves, and the held ACK is dropped.
//! 3. [`AckVerdict::PassAfterHeld`]: the held ACK leaves, then the new ACK.
//! 4. [`AckVerdict::HoldUntil`]: the new ACK is held, and the ACK that was held before is dropped.

use midspan_units::{Time, TimeSpan};

/// An ACK that could leave now, with the facts that thinning needs about it and the ACK before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckSample {
    /// Acknowledgement number.
    pub number: u32,
    /// Data segments that this ACK newly covers.
    pub newly_covered: u32,
    /// Data segments that arrived since the previous sample, in order or not, as far as known: 1
    /// for each candidate of a receiver; for a middlebox, the segments that the ACK newly covers,
    /// or 1 for a duplicate.
    pub arrived: u32,
    /// Number and window are those of the previous ACK: data arrived out of order, or twice.
    pub duplicate: bool,
    /// SACK blocks are present: data arrived out of order, or twice.
    pub selective: bool,
    /// More than three ACKs with this number came before, and the SACK blocks contain more than those of
    /// the previous ACK, and all of these that no ACK has carried to the sender. So the sender retransmits
    /// already and loses nothing if this ACK replaces the previous one. Policies that do not thin in a recovery pass it like any other
    /// duplicate.
    pub selection_grows: bool,
    /// Data filled a gap partly or wholly (RFC 5681 §4.2 requires an immediate ACK).
    pub fills_gap: bool,
    /// The advertised window changed without a change of the number.
    pub window_update: bool,
    /// The ECN bits (ECE and CWR of RFC 3168, or the AccECN counter of RFC 9768) differ from those
    /// of the previous ACK.
    pub congestion_echo: bool,
    /// It carries something else that must not wait: data, SYN, FIN, RST, or an unknown option.
    pub other: bool,
}

impl AckSample {
    /// Whether no policy may hold or drop it: RFC 3449 §5.2.1 lists what an ACK filter must leave
    /// alone, RFC 5681 §4.2 what a receiver must acknowledge at once.
    #[must_use]
    pub const fn is_urgent(&self) -> bool {
        self.duplicate
            || self.selective
            || self.fills_gap
            || self.window_update
            || self.congestion_echo
            || self.other
            || self.newly_covered == 0
    }

    /// Whether the only urgent fact is that data arrived behind a gap that is already reported to
    /// the sender ([`selection_grows`](Self::selection_grows)).
    #[must_use]
    pub const fn says_only_that_selection_grows(&self) -> bool {
        self.selection_grows
            && !(self.window_update || self.fills_gap || self.congestion_echo || self.other)
    }

    /// Whether the only urgent fact is that the ACK updates the window.
    #[must_use]
    pub const fn is_window_update_alone(&self) -> bool {
        self.window_update
            && !(self.duplicate
                || self.selective
                || self.fills_gap
                || self.congestion_echo
                || self.other)
    }
}

/// The verdict on an ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckVerdict {
    /// Send it now. It replaces a held ACK, which is dropped.
    Pass,
    /// Send the held ACK, if any, then this one, because this one does not contain all information
    /// of the held one (for example the first of several with one number, or another ECN echo).
    PassAfterHeld,
    /// Hold it, at the latest until this time (Tam §3.2: ACK time-out, ATO). It replaces a held
    /// ACK, which is dropped.
    HoldUntil(Time),
}

/// How a receiver can measure its round trip `rcv_RTT` (Tam §3.2, 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoundTripSource {
    /// Method 2: SYN to SYN-ACK, or SYN-ACK to its ACK. Only at the start, so any other source
    /// is preferred.
    Handshake,
    /// Method 1: the receiver's own data and the ACK for that data.
    OwnData,
    /// Method 3: an ICMP echo request and its reply.
    IcmpEcho,
    /// Method 4: a timestamp in an ACK and the data segment that echoes it.
    Timestamp,
}

/// A measured `rcv_RTT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// How the round trip was measured.
    pub source: RoundTripSource,
    /// The measured time.
    pub span: TimeSpan,
}

/// The present estimates of a policy, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckEstimate {
    /// `est_cwnd`: the sender's congestion window in segments; 0 for policies without one.
    pub congestion_window: u32,
    /// `ppa`: packets per ACK.
    pub packets_per_ack: u32,
    /// `rcv_RTT`, where it is known.
    pub round_trip: Option<TimeSpan>,
}

/// Decides which ACKs of one flow leave.
pub trait AckPolicy {
    /// An ACK could leave.
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict;

    /// A round trip of the receiver was measured.
    fn handle_round_trip(&mut self, _now: Time, _round_trip: RoundTrip) {}

    /// Number of flows that send ACKs through the narrow link, including this one.
    fn handle_active_flows(&mut self, _flows: u32) {}

    /// The present estimates for this flow.
    fn estimate(&self) -> AckEstimate {
        AckEstimate::default()
    }
}
