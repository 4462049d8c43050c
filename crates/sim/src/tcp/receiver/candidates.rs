//! ACKs under a policy of the policy crate: each arriving segment makes a candidate (or the ACKs
//! that the host makes are the candidates), and the policy lets some of them leave. Also measures
//! the receiver's round trip for the policy.

use midspan_policy::ack_thinning::{AckHeader, AckTracker, ReceiverRoundTrip, selection_growth};
use midspan_policy::{AckEstimate, AckSample, AckVerdict, RoundTrip, RoundTripSource};
use midspan_units::{Time, TimeSpan};

use crate::packet::{Acknowledgement, SelectiveBlocks, Signals};
use crate::tcp::configuration::Thinning;
use crate::tcp::thinning::Thinner;

/// The next echo request leaves this long after one without a reply.
const ECHO_LOST: TimeSpan = TimeSpan::from_seconds(3);
/// Number of duplicate ACKs after which the sender is assumed to retransmit.
const DUPLICATES: u32 = 3;

/// Where the policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the receiver: each segment makes a candidate.
    Receiver,
    /// Behind the receiver, like `midspan thin`: it sees the headers of the ACKs that the receiver
    /// makes, and can hold or drop them.
    Path,
}

/// A policy, and the state from which its samples are made.
#[derive(Debug, Clone)]
pub(super) struct Candidates {
    thinner: Thinner,
    place: Place,
    /// The headers of the ACKs so far; for [`Place::Path`].
    tracker: AckTracker,
    /// When the held ACK leaves at the latest; for [`Place::Path`].
    deadline: Option<Time>,
    source: RoundTripSource,
    round_trip: ReceiverRoundTrip,
    /// The acknowledgement number of the previous candidate.
    covered: u64,
    /// Its SACK blocks, and how many candidates before it had the same number.
    blocks: SelectiveBlocks,
    duplicates: u32,
    held: Option<Acknowledgement>,
    /// An ACK that leaves before the next one.
    overtaken: Option<Acknowledgement>,
    echo: Echo,
}

/// Tam §4.1: an echo request every other `rcv_RTT`.
#[derive(Debug, Clone, Copy, Default)]
struct Echo {
    number: u16,
    next: Time,
}

impl Candidates {
    pub(super) fn new(thinning: Thinning, window: u32, place: Place) -> Self {
        Self {
            thinner: thinning.start(window),
            place,
            tracker: AckTracker::default(),
            deadline: None,
            source: thinning.round_trip(),
            round_trip: ReceiverRoundTrip::default(),
            covered: 0,
            blocks: SelectiveBlocks::default(),
            duplicates: 0,
            held: None,
            overtaken: None,
            echo: Echo::default(),
        }
    }

    /// A SYN was answered.
    pub(super) fn handle_answered(&mut self, now: Time) {
        // Only for policies that use it: a contention slot may make it far shorter than later round
        // trips.
        if self.uses(RoundTripSource::Handshake) {
            self.round_trip.handle_syn_sent(now);
        }
    }

    /// A data segment arrived with these signals.
    pub(super) fn handle_signals(&mut self, now: Time, signals: Signals) {
        let answered = self.round_trip.handle_syn_answered(now);
        let timed = self.round_trip.handle_data(now, Some(signals.timestamp));
        self.report(now, answered);
        self.report(now, timed);
        self.thinner.handle_signals(signals);
    }

    fn report(&mut self, now: Time, measured: Option<RoundTrip>) {
        if let Some(measured) = measured.filter(|measured| self.uses(measured.source)) {
            self.thinner.handle_round_trip(now, measured);
        }
    }

    /// Whether round trips of this source are measured. `midspan thin` always times the handshake.
    fn uses(&self, source: RoundTripSource) -> bool {
        let handshake = self.place == Place::Path && source == RoundTripSource::Handshake;
        handshake || source == self.source
    }

    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// Gets the policy's verdict on the ACK that could leave now for the segment that has just
    /// arrived. Returns `None` if it leaves, or the time until which it is held.
    pub(super) fn judge(
        &mut self,
        now: Time,
        candidate: Acknowledgement,
        segment: u32,
        fills_gap: bool,
    ) -> Option<Time> {
        let more = candidate.number - self.covered;
        self.covered = candidate.number;
        let blocks = std::mem::replace(&mut self.blocks, candidate.blocks);
        let edges = |blocks: SelectiveBlocks| -> Vec<(u64, u64)> {
            let blocks = blocks.as_slice().iter();
            blocks
                .map(|block| (block.start.into(), block.end.into()))
                .collect()
        };
        let selection_grows = more == 0
            && self.duplicates >= DUPLICATES
            && selection_growth(&edges(blocks), &[], &edges(candidate.blocks)).is_some();
        self.duplicates = if more == 0 { self.duplicates + 1 } else { 0 };
        let sample = AckSample {
            // The low 32 bits, as on the wire.
            #[allow(clippy::cast_possible_truncation)]
            number: candidate.number as u32,
            newly_covered: u32::try_from(more.div_ceil(u64::from(segment.max(1))))
                .unwrap_or(u32::MAX),
            arrived: 1,
            duplicate: more == 0,
            selective: !candidate.blocks.is_empty(),
            selection_grows,
            fills_gap,
            ..AckSample::default()
        };
        match self.thinner.acknowledge(now, &sample) {
            AckVerdict::Pass => self.held = None,
            AckVerdict::PassAfterHeld => self.overtaken = self.held.take(),
            AckVerdict::HoldUntil(at) => {
                self.held = Some(candidate);
                return Some(at);
            }
        }
        None
    }

    /// Gets the policy's verdict on an ACK that the receiver has made. Returns whether the ACK
    /// leaves now.
    pub(super) fn judge_made(&mut self, now: Time, made: Acknowledgement, segment: u32) -> bool {
        self.expire(now);
        let header = header_of(&made);
        let sample = self.tracker.handle_ack(&header, segment);
        match self.thinner.acknowledge(now, &sample) {
            AckVerdict::Pass => self.drop_held(),
            AckVerdict::PassAfterHeld => {
                self.release_held();
                self.deadline = None;
            }
            AckVerdict::HoldUntil(at) => {
                self.held = Some(made);
                self.deadline = Some(at);
                return false;
            }
        }
        self.tracker.handle_sent(&header);
        true
    }

    /// The held ACK leaves before the next one.
    fn release_held(&mut self) {
        self.overtaken = self.held.take();
        if let Some(held) = &self.overtaken {
            self.tracker.handle_sent(&header_of(held));
        }
    }

    /// The held ACK leaves if its time has come.
    pub(super) fn expire(&mut self, now: Time) {
        if self.deadline.take_if(|deadline| *deadline <= now).is_some() {
            self.release_held();
        }
    }

    /// When the held ACK leaves at the latest; `None` for [`Place::Receiver`], whose own timer has
    /// this time.
    pub(super) const fn deadline_on_path(&self) -> Option<Time> {
        self.deadline
    }

    /// An ACK leaves that includes all information of a held one.
    pub(super) const fn drop_held(&mut self) {
        self.held = None;
        self.deadline = None;
    }

    pub(super) const fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// An ACK that must leave before any other.
    pub(super) const fn take_overtaken(&mut self) -> Option<Acknowledgement> {
        self.overtaken.take()
    }

    /// An ACK left; the receiver's clock shows `timestamp`.
    pub(super) fn handle_sent(&mut self, now: Time, timestamp: u32) {
        self.round_trip.handle_ack_sent(now, timestamp);
    }

    /// The number of an echo request that should leave now, after data has arrived.
    pub(super) fn poll_echo(&mut self, now: Time) -> Option<u16> {
        if self.source != RoundTripSource::IcmpEcho || now < self.echo.next {
            return None;
        }
        self.echo.number = self.echo.number.wrapping_add(1);
        self.echo.next = now + ECHO_LOST;
        self.round_trip.handle_echo_sent(now, self.echo.number);
        Some(self.echo.number)
    }

    /// An echo reply arrived.
    pub(super) fn handle_echo_reply(&mut self, now: Time, number: u16) {
        let measured = self.round_trip.handle_echo_reply(now, number);
        if let Some(measured) = measured {
            self.echo.next = now + measured.span;
        }
        self.report(now, measured);
    }

    pub(super) fn estimate(&self) -> AckEstimate {
        self.thinner.estimate()
    }
}

/// The header of an ACK, as on the wire.
fn header_of(made: &Acknowledgement) -> AckHeader {
    // The low 32 bits.
    #[allow(clippy::cast_possible_truncation)]
    let number = made.number as u32;
    let mut header = AckHeader {
        number,
        plain: true,
        ..AckHeader::default()
    };
    for (place, block) in header.sack.edges.iter_mut().zip(made.blocks.as_slice()) {
        *place = (
            number.wrapping_add(block.start),
            number.wrapping_add(block.end),
        );
        header.sack.count += 1;
    }
    header
}
