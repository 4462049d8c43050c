//! ACE thinning: acknowledgment based on cwnd estimation (Tam §3.2, §4.4, §5.1).
//!
//! “ACE” is the paper's name for it. Midspan never uses the word alone, because the ECN counter of
//! AccECN (RFC 9768) has the same name.

mod maximum;
mod mean_gap;
mod recent_arrivals;
mod upstream_limit;
mod window_estimate;

use midspan_units::{Time, TimeSpan};

use maximum::Maximum;
pub use maximum::MaximumPacketsPerAck;
use mean_gap::MeanGap;
use recent_arrivals::RecentArrivals;
use upstream_limit::UpstreamLimit;
use window_estimate::WindowEstimate;

use super::{HeldAck, MIN_ACK_PER_WIN, packets_per_ack};
use crate::{AckEstimate, AckPolicy, AckSample, AckVerdict, RoundTrip, RoundTripSource};

/// Number of duplicate ACKs after which the sender is assumed to retransmit (Tam §3.2, 4).
const DUPLICATES: u32 = 3;
/// The arrivals in this many eighths of a round trip are a window that the sender certainly has.
/// The part is less than 8, because round trips vary: a stretched ACK lets a burst leave, which
/// waits in a queue.
const RECENT_EIGHTHS: u64 = 7;

/// The settings of ACE thinning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AceSettings {
    /// `min_ack_per_win`: least number of ACKs for each window; above zero, 3 in the paper.
    pub min_ack_per_win: u32,
    /// `max_packets_per_ack`: 5 in the paper, or adaptive (§4.4).
    pub max_packets_per_ack: MaximumPacketsPerAck,
    /// Longest time that an ACK is held, even if the paper's ATO is longer. A sender's least
    /// retransmission time-out is 200 ms in Linux and 1 s in RFC 6298.
    pub ack_timeout_limit: TimeSpan,
    /// If the flow has SACK, the third duplicate ACK halves `est_cwnd` instead of setting it to 1,
    /// because the sender at most halves its window. Later duplicates that only report more data
    /// are thinned too. Without this setting, as in the paper, each duplicate leaves: with a large
    /// window, hundreds of them, which fill a narrow upstream for seconds while the sender waits.
    pub thins_in_recovery: bool,
    /// An ACK in order covers no more than its part of the data that has arrived in the last
    /// `rcv_RTT` and since the last sign of a loss, if that is less than `est_cwnd`. In the paper a
    /// smaller count is ignored, so that `est_cwnd` may exceed the window of a sender that met a
    /// time-out, or a loss of which the receiver saw fewer than three duplicates.
    pub counts_only_recent: bool,
    /// Largest number of packets for one ACK while the upstream limits the download and the
    /// downstream has room (`UpstreamLimit`); `None`, as in the paper: `max_packets_per_ack` always.
    pub max_while_upstream_limits: Option<u32>,
}

impl AceSettings {
    /// The settings of `midspan thin`: the rule of the paper, and what real hosts need beyond it.
    #[must_use]
    pub fn of_hosts() -> Self {
        Self {
            thins_in_recovery: true,
            counts_only_recent: true,
            max_while_upstream_limits: Some(16),
            ..Self::default()
        }
    }
}

impl AceSettings {
    /// These settings with this maximum, whatever limits the download.
    #[must_use]
    pub fn at_most(self, max_packets_per_ack: MaximumPacketsPerAck) -> Self {
        Self {
            max_packets_per_ack,
            max_while_upstream_limits: None,
            ..self
        }
    }
}

/// The settings of the paper.
impl Default for AceSettings {
    fn default() -> Self {
        Self {
            min_ack_per_win: MIN_ACK_PER_WIN,
            max_packets_per_ack: MaximumPacketsPerAck::Fixed(5),
            ack_timeout_limit: TimeSpan::from_milliseconds(100),
            thins_in_recovery: false,
            counts_only_recent: false,
            max_while_upstream_limits: None,
        }
    }
}

/// ACE thinning of one flow.
///
/// Until `rcv_RTT` is known, every ACK leaves at once.
#[derive(Debug, Clone)]
pub struct AceThinning {
    settings: AceSettings,
    round_trip: Option<RoundTrip>,
    /// The shorter of the last two values of `rcv_RTT`. A single value may be too long, because a
    /// recovery lay within it.
    least_rtt: TimeSpan,
    window: WindowEstimate,
    recent: RecentArrivals,
    /// The window of which each ACK covers a part: `est_cwnd`, or less.
    certain: u32,
    recovery: Option<Recovery>,
    maximum: Maximum,
    upstream_limit: Option<UpstreamLimit>,
    gap: MeanGap,
    held: HeldAck,
    duplicates: u32,
    last_arrival: Option<Time>,
}

/// A recovery: from the first sign of a loss until data arrives in order again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recovery {
    /// The certain window when the recovery began.
    window: u32,
    /// Whether the sender is in fast recovery, after three duplicates: it keeps half of its window.
    /// After a time-out it keeps none.
    is_fast: bool,
}

impl AceThinning {
    /// A flow without any measurement.
    #[must_use]
    pub fn new(settings: AceSettings) -> Self {
        Self {
            settings,
            round_trip: None,
            least_rtt: TimeSpan::ZERO,
            window: WindowEstimate::default(),
            recent: RecentArrivals::default(),
            certain: 1,
            recovery: None,
            maximum: Maximum::new(settings.max_packets_per_ack),
            upstream_limit: settings.max_while_upstream_limits.map(UpstreamLimit::new),
            gap: MeanGap::default(),
            held: HeldAck::default(),
            duplicates: 0,
            last_arrival: None,
        }
    }

    /// `est_cwnd` in segments, at least 1.
    #[must_use]
    pub const fn est_cwnd(&self) -> u32 {
        self.window.segments()
    }

    /// `rcv_RTT`, once it is known.
    #[must_use]
    pub fn rcv_rtt(&self) -> Option<TimeSpan> {
        self.round_trip.map(|round_trip| round_trip.span)
    }

    /// `rcv_RTO` = 1.2 · `rcv_RTT`: after this time without new data, the sender is assumed to
    /// start again (Tam §3.2, 4).
    #[must_use]
    pub fn rcv_rto(&self) -> Option<TimeSpan> {
        self.rcv_rtt().map(|span| span + span / 5)
    }

    /// The present `ppa` (Tam §3.2, 3): that of `est_cwnd`, or that of the [recently
    /// arrived](AceSettings::counts_only_recent) data.
    #[must_use]
    pub fn ppa(&self) -> u32 {
        packets_per_ack(
            self.certain,
            self.settings.min_ack_per_win,
            self.most_packets(),
        )
    }

    /// The largest number of packets for one ACK now.
    fn most_packets(&self) -> u32 {
        let limit = self.upstream_limit.as_ref().map_or(0, UpstreamLimit::now);
        self.maximum.now().max(limit)
    }

    /// ATO = ppa × mean gap between packets (Tam §5.1), at most the limit of the settings. Zero (no
    /// ACK is held) if no gap is known.
    #[must_use]
    pub fn ato(&self) -> TimeSpan {
        let gap = self.gap.span().unwrap_or(TimeSpan::ZERO);
        (gap * u64::from(self.ppa())).min(self.settings.ack_timeout_limit)
    }

    /// Tam §3.2 (4): the sender retransmits or has paused.
    fn scale_back(&mut self, now: Time) {
        self.window.reset();
        self.recent.forget();
        if let Some(recovery) = &mut self.recovery {
            recovery.is_fast = false;
        }
        self.handle_congestion(now);
    }

    fn handle_congestion(&mut self, now: Time) {
        self.maximum.handle_congestion(now, self.rcv_rtt());
        if let Some(limit) = &mut self.upstream_limit {
            limit.handle_congestion(now, self.maximum.now());
        }
    }

    fn handle_arrival(&mut self, now: Time, segments: u32, counted: u32) {
        let silence = self.last_arrival.map(|last| now.since(last));
        if silence > self.rcv_rto() && self.rcv_rto().is_some() {
            self.scale_back(now);
        } else if let Some(silence) = silence {
            self.gap.handle_arrival(silence, segments);
        }
        self.last_arrival = Some(now);
        if let Some(rcv_rtt) = self.rcv_rtt() {
            self.window.handle_arrival(now, counted, rcv_rtt);
            if counted > 0 {
                self.recent.handle_arrival(now, counted, rcv_rtt);
            }
            self.maximum.handle_arrival(now, rcv_rtt);
        }
    }

    /// A sign of a loss. `is_fast`: three duplicates, so the sender is in fast recovery.
    fn recovery(&mut self, is_fast: bool) {
        let window = self.certain;
        let begun = Recovery {
            window,
            is_fast: false,
        };
        self.recovery.get_or_insert(begun).is_fast |= is_fast;
    }

    /// `segments` packets arrived: more of them may wait for one ACK if the downstream has room.
    fn look_for_room(&mut self, now: Time, segments: u32) {
        let recent = self.recent.segments(now, self.least_rtt);
        let share = self.certain / self.settings.min_ack_per_win.max(1);
        let least = self.maximum.now();
        if let Some(limit) = &mut self.upstream_limit {
            limit.handle_arrival(now, segments);
            limit.adapt(now, recent, self.least_rtt, (least, share));
        }
    }

    /// The window that the sender certainly had when it sent the data that this ACK covers.
    fn certain(&self, now: Time, sample: &AckSample) -> u32 {
        let all = self.est_cwnd();
        // In a recovery, no data has arrived in order since the loss.
        if !self.settings.counts_only_recent || sample.selection_grows {
            return all;
        }
        let span = self.least_rtt * RECENT_EIGHTHS / 8;
        self.recent.segments(now, span).clamp(1, all)
    }
}

impl AckPolicy for AceThinning {
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict {
        if sample.arrived > 0 {
            // Data behind a gap was sent before the sender noticed its loss. It would count towards
            // a window that the sender no longer has.
            let behind_gap = sample.duplicate || sample.selective;
            let counted = if behind_gap { 0 } else { sample.arrived };
            self.handle_arrival(now, sample.arrived, counted);
        }
        if sample.duplicate {
            self.duplicates = self.duplicates.saturating_add(1);
            if self.duplicates == DUPLICATES {
                if self.settings.thins_in_recovery && sample.selective {
                    self.recovery(true);
                    self.window.halve();
                    self.handle_congestion(now);
                } else {
                    self.scale_back(now);
                }
            }
        } else if sample.newly_covered > 0 {
            self.duplicates = 0;
        }
        if sample.duplicate || sample.selective || sample.fills_gap {
            self.recovery(false);
            self.recent.forget();
        } else if let Some(recovery) = self.recovery.take()
            && let (true, Some(rcv_rtt)) = (recovery.is_fast, self.rcv_rtt())
        {
            self.recent
                .handle_arrival(now, recovery.window / 2, rcv_rtt);
        }
        self.certain = self.certain(now, sample);
        self.look_for_room(now, sample.arrived);
        // The largest part of a window that one ACK may cover.
        let most = (self.certain / self.settings.min_ack_per_win.max(1)).max(1);
        let (ppa, ato) = (self.ppa(), self.ato());
        if self.settings.thins_in_recovery {
            return self.held.judge_in_recovery(now, sample, ppa, most, ato);
        }
        self.held.judge(now, sample, ppa, most, ato)
    }

    /// The newest value of the better source is used; the paper's implementation does not smooth
    /// either. The value of a handshake is used only until there is another.
    fn handle_round_trip(&mut self, _now: Time, new: RoundTrip) {
        let keeps = self.round_trip.is_some_and(|old| {
            new.source == RoundTripSource::Handshake && old.source != RoundTripSource::Handshake
        });
        if !keeps && new.span > TimeSpan::ZERO {
            let before = self.rcv_rtt().unwrap_or(new.span);
            self.least_rtt = before.min(new.span);
            if let Some(limit) = &mut self.upstream_limit {
                limit.handle_round_trip(new.span);
            }
            self.round_trip = Some(new);
        }
    }

    fn estimate(&self) -> AckEstimate {
        AckEstimate {
            congestion_window: self.est_cwnd(),
            packets_per_ack: self.ppa(),
            round_trip: self.rcv_rtt(),
        }
    }
}

#[cfg(test)]
mod tests;
