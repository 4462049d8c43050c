//! For each ACK that may be thinned (Tam): the question, the answer, and who answers.
//!
//! Two callers ask. A middlebox on the way out sees ACKs that a receiver has made already. A
//! receiver of its own (in the simulator) makes a candidate for every data segment that arrives,
//! as if it acknowledged each, and the verdict decides which of them leave.
//!
//! The caller keeps at most one held ACK for each flow:
//!
//! 1. A held ACK whose time has come leaves before the policy is asked again.
//! 2. [`AckVerdict::Pass`]: the new ACK leaves and a held one is dropped.
//! 3. [`AckVerdict::PassAfterHeld`]: a held one leaves, then the new one.
//! 4. [`AckVerdict::HoldUntil`]: the new one is kept back in place of a held one, which is dropped.

use midspan_units::{Time, TimeSpan};

/// An ACK that could leave now, with what thinning must know of it and of the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckSample {
    /// Acknowledgement number.
    pub number: u32,
    /// Data segments that this ACK newly covers.
    pub newly_covered: u32,
    /// Data segments that arrived since the sample before, in order or not, as far as known: 1
    /// for each candidate of a receiver; what an ACK newly covers for a middlebox, 1 for a
    /// duplicate.
    pub arrived: u32,
    /// The number is the same as in the ACK before, and so is the window: data arrived out of
    /// order, or twice.
    pub duplicate: bool,
    /// SACK blocks are present: data arrived out of order, or twice.
    pub selective: bool,
    /// More than three with this number came before, and the SACK blocks say all that those of the
    /// ACK before say, and more: the sender retransmits already, and loses nothing where this ACK
    /// stands for the one before. Policies that do not thin in a recovery pass it as any other
    /// duplicate.
    pub selection_grows: bool,
    /// Data filled a gap, in part or all of it (RFC 5681 §4.2: to be acknowledged at once).
    pub fills_gap: bool,
    /// The advertised window changed without a change of the number.
    pub window_update: bool,
    /// The ECN bits (ECE and CWR of RFC 3168, or the AccECN counter of RFC 9768) are not those
    /// of the ACK before.
    pub congestion_echo: bool,
    /// It says something else that must not wait: data, SYN, FIN, RST, an option that is not
    /// known.
    pub other: bool,
}

impl AckSample {
    /// Whether no policy may hold it or drop it (RFC 3449 §5.2.1 lists what an ACK filter must
    /// leave alone; RFC 5681 §4.2 what a receiver must acknowledge at once).
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

    /// Whether it is urgent for no other reason than that data arrived behind a gap of which the
    /// sender knows ([`selection_grows`](Self::selection_grows)).
    #[must_use]
    pub const fn says_only_that_selection_grows(&self) -> bool {
        self.selection_grows
            && !(self.window_update || self.fills_gap || self.congestion_echo || self.other)
    }

    /// Whether it is a window update and nothing else that is urgent.
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

/// What becomes of an ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckVerdict {
    /// Send it now; it stands for one that was held, which is dropped.
    Pass,
    /// Send the one that was held, if any, then this one: it does not say all that the held one
    /// says (the first of several with one number; another ECN echo).
    PassAfterHeld,
    /// Keep it back, at the latest until this time (Tam §3.2: ACK time-out, ATO), in place of
    /// one that was held, which is dropped.
    HoldUntil(Time),
}

/// How a receiver can measure its round trip `rcv_RTT` (Tam §3.2, 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoundTripSource {
    /// Method 2: SYN to SYN-ACK, or SYN-ACK to its ACK. Only at the start, so any other source
    /// is preferred.
    Handshake,
    /// Method 1: data of the receiver's own and the ACK of it.
    OwnData,
    /// Method 3: an ICMP echo request and its reply.
    IcmpEcho,
    /// Method 4: a timestamp in an ACK and the data segment that echoes it.
    Timestamp,
}

/// A measured `rcv_RTT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// How it was measured.
    pub source: RoundTripSource,
    /// How long it took.
    pub span: TimeSpan,
}

/// What a policy believes, for those who watch.
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

    /// So many flows send ACKs through the narrow link, this one among them.
    fn handle_active_flows(&mut self, _flows: u32) {}

    /// What the policy believes of the flow.
    fn estimate(&self) -> AckEstimate {
        AckEstimate::default()
    }
}
