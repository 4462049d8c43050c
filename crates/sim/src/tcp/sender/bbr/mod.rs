//! BBR version 1: sends at the bandwidth that ACKs show, with twice the bandwidth-delay product in flight
//! (Cardwell et al., *BBR: congestion-based congestion control*, ACM Queue 14 (5), 2016;
//! draft-cardwell-iccrg-bbr-congestion-control-00). Constants and details are those of Linux 6
//! (`net/ipv4/tcp_bbr.c`).
//!
//! This module decides on cwnd and the pacing rate. It sends nothing and has no clock. Counts are in
//! segments; gains are in 256ths.

mod aggregation;
mod bandwidth;
mod policer;
#[cfg(test)]
mod tests;

use midspan_link::Stream;
use midspan_units::{Time, TimeSpan};

use super::delivery_rate::RateSample;
use crate::random::below;
use aggregation::Aggregation;
use bandwidth::{Bandwidth, WindowedMaximum};
use policer::{Observation, Policer, Totals, Verdict};

/// A gain of one.
const ONE: u32 = 256;
/// 2/ln 2: the sending rate doubles in each round.
const HIGH_GAIN: u32 = ONE * 2885 / 1000 + 1;
const DRAIN_GAIN: u32 = ONE * 1000 / 2885;
const WINDOW_GAIN: u32 = 2 * ONE;
/// The gains of the phases when probing for bandwidth: probe, drain, cruise.
const CYCLE: [u32; 8] = [ONE * 5 / 4, ONE * 3 / 4, ONE, ONE, ONE, ONE, ONE, ONE];
/// The first phase is one of this many, at random; it is never that of draining.
const FIRST_PHASES: u32 = 7;
/// The bandwidth is the largest of this many rounds.
const BANDWIDTH_ROUNDS: u64 = 10;
/// A rise by less than a quarter in this many rounds means that the path is full.
const FULL_GAIN: u32 = ONE * 5 / 4;
const FULL_ROUNDS: u32 = 3;
/// The shortest round trip holds for this long. Then it is measured with few segments in flight.
const LEAST_HOLDS: TimeSpan = TimeSpan::from_seconds(10);
const PROBE_TIME: TimeSpan = TimeSpan::from_milliseconds(200);
const LEAST_WINDOW: u64 = 4;
/// cwnd before a round trip is known, and the number of segments up to which it always grows.
const INITIAL_WINDOW: u64 = 10;
/// Share of the bandwidth, in percent, at which BBR paces: a little less, so that no queue remains.
const PACED_SHARE: u64 = 99;
/// Below this pacing rate (1.2 Mbit/s, here in bytes/s), segments leave one by one.
const SINGLE_BELOW: u64 = 1_200_000 / 8;
/// The round trip that is assumed before one is known.
const NOMINAL: TimeSpan = TimeSpan::from_milliseconds(1);
/// Bytes that may leave at once: what the pacing rate sends in 1/1024 s, but at most this.
const LARGEST_BURST: u64 = 65_535 - 320;

/// The state of BBR.
#[derive(Debug, Clone)]
pub(super) struct Bbr {
    mode: Mode,
    bandwidth: WindowedMaximum,
    rounds: Rounds,
    least: Option<TimeSpan>,
    least_at: Time,
    /// When [`Mode::ProbeRoundTrip`] ends; `None`: there is still too much in flight.
    probe_until: Option<Time>,
    probe_round_over: bool,
    /// Index into [`CYCLE`], and when this phase began.
    phase: usize,
    phase_start: Time,
    full: Full,
    /// cwnd before recovery or [`Mode::ProbeRoundTrip`].
    prior_window: u64,
    prior_state: LossState,
    /// In the first round of recovery, each delivered segment releases one.
    conserves: bool,
    restarts_from_idle: bool,
    policer: Policer,
    aggregation: Aggregation,
    pacing_gain: u32,
    window_gain: u32,
    /// In bytes of data per second.
    pacing_rate: u64,
    has_round_trip: bool,
    stream: Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Doubles the rate until the path is full.
    Startup,
    /// Lets the queue of `Startup` drain.
    Drain,
    /// Sends at the bandwidth, and now and then more, to find out whether there is more.
    ProbeBandwidth,
    /// Sends little, to measure the round trip without a queue.
    ProbeRoundTrip,
}

/// How a connection deals with losses (Linux: `icsk_ca_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum LossState {
    /// No segment is known to be lost.
    #[default]
    Open,
    /// Lost segments are sent again.
    Recovery,
    /// After a time-out.
    TimedOut,
}

/// Rounds: a round ends when a segment is delivered that was sent after its start.
#[derive(Debug, Clone, Copy, Default)]
struct Rounds {
    count: u64,
    /// The number of delivered segments at the start of the round.
    delivered: u64,
    /// Whether this ACK starts a round.
    started: bool,
}

/// Whether the path is full.
#[derive(Debug, Clone, Copy, Default)]
struct Full {
    reached: bool,
    bandwidth: Bandwidth,
    rounds: u32,
}

/// A connection as BBR sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    pub(super) now: Time,
    /// Segments delivered in total, and when this number last grew.
    pub(super) delivered: u64,
    pub(super) delivered_at: Time,
    /// Segments that were found lost, in total.
    pub(super) lost: u64,
    pub(super) in_flight: u64,
    /// cwnd.
    pub(super) window: u64,
    pub(super) state: LossState,
    pub(super) smoothed: Option<TimeSpan>,
    /// The shortest round trip of the whole connection.
    pub(super) shortest: Option<TimeSpan>,
    /// Bytes of data in a segment.
    pub(super) segment: u64,
    /// When the pacing rate lets the next segment leave.
    pub(super) release: Time,
    /// Upper bound of the pacing rate in bytes of data per second.
    pub(super) rate_limit: u64,
    /// Samples are limited by the application at present.
    pub(super) is_application_limited: bool,
}

/// An ACK.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acknowledged {
    /// Segments that it newly acknowledges, selectively or not.
    pub(super) segments: u64,
    /// Segments that it shows to be lost.
    pub(super) losses: u64,
    pub(super) prior_in_flight: u64,
    pub(super) sample: Option<RateSample>,
    pub(super) round_trip: Option<TimeSpan>,
    /// The receiver may have held the ACK back.
    pub(super) is_delayed: bool,
}

/// The reaction of BBR to an ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reaction {
    /// cwnd.
    pub(super) window: u64,
    /// The new ssthresh. It has no effect but is shown.
    pub(super) threshold: Option<u64>,
    /// BBR itself limits what is in flight: samples count as limited by the application.
    pub(super) limits_flight: bool,
}

impl Bbr {
    /// BBR from now on; `stream` draws the first phases of its cycles.
    pub(super) fn new(stream: Stream, connection: &Connection) -> Self {
        let mut new = Self {
            mode: Mode::Startup,
            bandwidth: WindowedMaximum::default(),
            rounds: Rounds::default(),
            least: connection.shortest,
            least_at: connection.now,
            probe_until: None,
            probe_round_over: false,
            phase: 0,
            phase_start: Time::ZERO,
            full: Full::default(),
            prior_window: 0,
            prior_state: LossState::Open,
            conserves: false,
            restarts_from_idle: false,
            policer: Policer::default(),
            aggregation: Aggregation::new(connection.now),
            pacing_gain: HIGH_GAIN,
            window_gain: HIGH_GAIN,
            pacing_rate: 0,
            has_round_trip: false,
            stream,
        };
        new.policer.reset(connection.totals());
        new.start_pacing(connection);
        new
    }

    /// Bytes of data per second.
    pub(super) const fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// The number of segments that may leave at once (Linux: TSO, `tcp_tso_autosize`). `shortest`
    /// is the shortest round trip of the connection: on a short path, larger bursts save work.
    pub(super) fn burst(&self, segment: u64, shortest: Option<TimeSpan>) -> u64 {
        let steps = shortest.map_or(u64::MAX, |least| least.nanoseconds() / 1000 / 512);
        let extra = u32::try_from(steps)
            .ok()
            .and_then(|steps| LARGEST_BURST.checked_shr(steps))
            .unwrap_or(0);
        let bytes = (self.pacing_rate / 1024).saturating_add(extra);
        (bytes.min(LARGEST_BURST) / segment).max(self.least_burst())
    }

    const fn least_burst(&self) -> u64 {
        if self.pacing_rate < SINGLE_BELOW {
            1
        } else {
            2
        }
    }

    /// As [`burst`](Self::burst), by the rate alone.
    fn burst_by_rate(&self, segment: u64) -> u64 {
        let bytes = (self.pacing_rate / 1024).min(LARGEST_BURST);
        (bytes / segment).max(self.least_burst()).min(127)
    }

    /// Data is about to be sent, and nothing is in flight (Linux: `bbr_cwnd_event`). Returns cwnd.
    pub(super) fn handle_start(&mut self, connection: &Connection) -> u64 {
        let mut connection = *connection;
        if connection.is_application_limited {
            self.restarts_from_idle = true;
            self.aggregation.begin_epoch(connection.now);
            match self.mode {
                Mode::ProbeBandwidth => self.pace(&connection, ONE),
                Mode::ProbeRoundTrip => self.end_probe(&mut connection),
                Mode::Startup | Mode::Drain => {}
            }
        }
        connection.window
    }

    /// Recovery begins, or a time-out has occurred (Linux: `bbr_ssthresh`).
    pub(super) fn handle_loss(&mut self, window: u64) {
        self.save_window(window);
    }

    /// A time-out has occurred (Linux: `bbr_set_state`).
    pub(super) fn handle_timeout(&mut self, connection: &Connection) {
        self.prior_state = LossState::TimedOut;
        self.full.bandwidth = Bandwidth::ZERO;
        self.rounds.started = true;
        self.find_policer(connection, true, false);
    }

    /// A time-out was spurious (Linux: `bbr_undo_cwnd`).
    pub(super) fn handle_undo(&mut self, connection: &Connection) {
        self.full.bandwidth = Bandwidth::ZERO;
        self.full.rounds = 0;
        self.policer.reset(connection.totals());
    }

    /// An ACK was processed (Linux: `bbr_main`).
    pub(super) fn handle_acknowledged(
        &mut self,
        connection: &Connection,
        ack: &Acknowledged,
    ) -> Reaction {
        let mut connection = *connection;
        let mut threshold = None;
        self.measure(&connection, ack);
        self.move_phase(&connection, ack);
        self.check_full(ack);
        self.check_drain(&connection, &mut threshold);
        let limits_flight = self.measure_round_trip(&mut connection, ack);
        self.set_gains();
        self.pace(&connection, self.pacing_gain);
        Reaction {
            window: self.window(&connection, ack),
            threshold,
            limits_flight,
        }
    }

    /// The bandwidth that counts: the policer's, or the largest of the last rounds.
    fn bandwidth(&self) -> Bandwidth {
        self.policer
            .bandwidth()
            .unwrap_or_else(|| self.bandwidth.get())
    }

    /// The bandwidth, rounds, the policer and groups of ACKs.
    fn measure(&mut self, connection: &Connection, ack: &Acknowledged) {
        self.rounds.started = false;
        let Some(sample) = ack.sample else {
            return;
        };
        let Some(interval) = sample.interval else {
            return;
        };
        if sample.prior_delivered >= self.rounds.delivered {
            self.rounds.delivered = connection.delivered;
            self.rounds.count += 1;
            self.rounds.started = true;
            self.conserves = false;
        }
        self.find_policer(connection, ack.losses > 0, sample.is_application_limited);
        let bandwidth = Bandwidth::of(sample.delivered, interval);
        if !sample.is_application_limited || bandwidth >= self.bandwidth.get() {
            self.bandwidth
                .add(BANDWIDTH_ROUNDS, self.rounds.count, bandwidth);
        }
        if ack.segments > 0 {
            let model = (self.bandwidth(), connection.window);
            let started = self.rounds.started;
            self.aggregation
                .handle(connection.delivered_at, ack.segments, model, started);
        }
    }

    fn find_policer(&mut self, connection: &Connection, has_losses: bool, limited: bool) {
        let verdict = self.policer.handle(&Observation {
            totals: connection.totals(),
            round_start: self.rounds.started,
            is_probing: self.mode == Mode::ProbeBandwidth,
            has_losses,
            is_application_limited: limited,
            segment: connection.segment,
        });
        match verdict {
            Verdict::Nothing => {}
            Verdict::Found => self.pacing_gain = ONE,
            Verdict::Over => self.probe_bandwidth(connection),
        }
    }

    fn probe_bandwidth(&mut self, connection: &Connection) {
        self.mode = Mode::ProbeBandwidth;
        let drawn = below(&mut self.stream, FIRST_PHASES) as usize;
        self.phase = CYCLE.len() - 1 - drawn;
        self.next_phase(connection);
    }

    const fn next_phase(&mut self, connection: &Connection) {
        self.phase = (self.phase + 1) % CYCLE.len();
        self.phase_start = connection.delivered_at;
    }

    fn move_phase(&mut self, connection: &Connection, ack: &Acknowledged) {
        if self.mode == Mode::ProbeBandwidth && self.is_phase_over(connection, ack) {
            self.next_phase(connection);
        }
    }

    fn is_phase_over(&self, connection: &Connection, ack: &Acknowledged) -> bool {
        let elapsed = connection.delivered_at.since(self.phase_start);
        let is_long = self.least.is_some_and(|least| elapsed > least);
        if self.pacing_gain == ONE {
            return is_long;
        }
        let in_network = self.in_network(connection, ack.prior_in_flight);
        let wanted = |gain| self.flight(self.bandwidth.get(), gain, connection.segment);
        if self.pacing_gain > ONE {
            // Until this much is in flight, unless the path does not hold it.
            is_long && (ack.losses > 0 || in_network >= wanted(self.pacing_gain))
        } else {
            is_long || in_network <= wanted(ONE)
        }
    }

    fn check_full(&mut self, ack: &Acknowledged) {
        let limited = ack
            .sample
            .is_some_and(|sample| sample.is_application_limited);
        if self.full.reached || !self.rounds.started || limited {
            return;
        }
        let bandwidth = self.bandwidth.get();
        if bandwidth >= self.full.bandwidth.times(FULL_GAIN) {
            self.full.bandwidth = bandwidth;
            self.full.rounds = 0;
            return;
        }
        self.full.rounds += 1;
        self.full.reached = self.full.rounds >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, connection: &Connection, threshold: &mut Option<u64>) {
        let wanted = |model: &Self| model.flight(model.bandwidth.get(), ONE, connection.segment);
        if self.mode == Mode::Startup && self.full.reached {
            self.mode = Mode::Drain;
            *threshold = Some(wanted(self));
        }
        if self.mode == Mode::Drain
            && self.in_network(connection, connection.in_flight) <= wanted(self)
        {
            self.probe_bandwidth(connection);
        }
    }

    /// The shortest round trip. Returns whether BBR limits the flight to measure it.
    fn measure_round_trip(&mut self, connection: &mut Connection, ack: &Acknowledged) -> bool {
        let now = connection.now;
        let expired = now.since(self.least_at) > LEAST_HOLDS;
        if let Some(sample) = ack.round_trip
            && (self.least.is_none_or(|least| sample <= least) || (expired && !ack.is_delayed))
        {
            self.least = Some(sample);
            self.least_at = now;
        }
        if expired && !self.restarts_from_idle && self.mode != Mode::ProbeRoundTrip {
            self.mode = Mode::ProbeRoundTrip;
            self.save_window(connection.window);
            self.probe_until = None;
        }
        let probes = self.mode == Mode::ProbeRoundTrip;
        if probes {
            if self.probe_until.is_some() {
                self.probe_round_over |= self.rounds.started;
                if self.probe_round_over {
                    self.end_probe(connection);
                }
            } else if connection.in_flight <= LEAST_WINDOW {
                self.probe_until = Some(now + PROBE_TIME);
                self.probe_round_over = false;
                self.rounds.delivered = connection.delivered;
            }
        }
        if ack.sample.is_some_and(|sample| sample.delivered > 0) {
            self.restarts_from_idle = false;
        }
        probes
    }

    fn end_probe(&mut self, connection: &mut Connection) {
        if self.probe_until.is_none_or(|until| connection.now <= until) {
            return;
        }
        self.least_at = connection.now;
        connection.window = connection.window.max(self.prior_window);
        if self.full.reached {
            self.probe_bandwidth(connection);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn set_gains(&mut self) {
        (self.pacing_gain, self.window_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth if self.policer.bandwidth().is_some() => (ONE, WINDOW_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.phase], WINDOW_GAIN),
            Mode::ProbeRoundTrip => (ONE, ONE),
        };
    }

    /// The pacing rate before there is a bandwidth: an initial window in a round trip, times the
    /// high gain.
    fn start_pacing(&mut self, connection: &Connection) {
        self.has_round_trip |= connection.smoothed.is_some();
        let round_trip = connection.smoothed.unwrap_or(NOMINAL);
        let bandwidth = Bandwidth::of(connection.window, round_trip);
        self.pacing_rate = paced(bandwidth, HIGH_GAIN, connection);
    }

    fn pace(&mut self, connection: &Connection, gain: u32) {
        let rate = paced(self.bandwidth(), gain, connection);
        if !self.has_round_trip && connection.smoothed.is_some() {
            self.start_pacing(connection);
        }
        if self.full.reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn save_window(&mut self, window: u64) {
        self.prior_window =
            if self.prior_state < LossState::Recovery && self.mode != Mode::ProbeRoundTrip {
                window
            } else {
                self.prior_window.max(window)
            };
    }

    /// The bandwidth-delay product times a gain.
    fn product(&self, bandwidth: Bandwidth, gain: u32) -> u64 {
        self.least.map_or(INITIAL_WINDOW, |least| {
            bandwidth.segments_in_up(least, gain)
        })
    }

    /// What must be in flight so that bursts and delayed ACKs do not stop sending.
    fn with_bursts(&self, flight: u64, segment: u64) -> u64 {
        let flight = flight.saturating_add(3 * self.burst_by_rate(segment));
        let even = flight.saturating_add(flight % 2);
        // The phase that probes needs more in flight than the product, even if that is small.
        let probes = self.mode == Mode::ProbeBandwidth && self.phase == 0;
        even.saturating_add(if probes { 2 } else { 0 })
    }

    fn flight(&self, bandwidth: Bandwidth, gain: u32, segment: u64) -> u64 {
        self.with_bursts(self.product(bandwidth, gain), segment)
    }

    /// Segments that will be in the network when the next one leaves.
    fn in_network(&self, connection: &Connection, in_flight: u64) -> u64 {
        let wait = connection.release.since(connection.now);
        let delivered = self.bandwidth().segments_in(wait);
        let leaving = if self.pacing_gain > ONE {
            self.burst_by_rate(connection.segment)
        } else {
            0
        };
        (in_flight + leaving).saturating_sub(delivered)
    }

    /// cwnd after an ACK.
    fn window(&mut self, connection: &Connection, ack: &Acknowledged) -> u64 {
        let mut window = connection.window;
        if ack.segments > 0 {
            window = self.window_by_state(connection, ack);
            if self.conserves {
                window = window.max(connection.in_flight + ack.segments);
            } else {
                let bandwidth = self.bandwidth();
                let mut target = self.product(bandwidth, self.window_gain);
                if self.full.reached {
                    target = target.saturating_add(self.aggregation.window(bandwidth));
                }
                let target = self.with_bursts(target, connection.segment);
                if self.full.reached {
                    window = (window + ack.segments).min(target);
                } else if window < target || connection.delivered < INITIAL_WINDOW {
                    window += ack.segments;
                }
                window = window.max(LEAST_WINDOW);
            }
        }
        if self.mode == Mode::ProbeRoundTrip {
            window = window.min(LEAST_WINDOW);
        }
        window
    }

    /// cwnd at the start and at the end of recovery, and after losses.
    fn window_by_state(&mut self, connection: &Connection, ack: &Acknowledged) -> u64 {
        let before = std::mem::replace(&mut self.prior_state, connection.state);
        let window = connection.window.saturating_sub(ack.losses).max(1);
        match connection.state {
            LossState::Recovery if before != LossState::Recovery => {
                self.conserves = true;
                self.rounds.delivered = connection.delivered;
                connection.in_flight + ack.segments
            }
            LossState::Open if before >= LossState::Recovery => {
                self.conserves = false;
                window.max(self.prior_window)
            }
            LossState::Open | LossState::Recovery | LossState::TimedOut => window,
        }
    }
}

impl Connection {
    const fn totals(&self) -> Totals {
        Totals {
            delivered: self.delivered,
            lost: self.lost,
            at: self.delivered_at,
        }
    }
}

/// The pacing rate in bytes per second for a bandwidth times a gain.
fn paced(bandwidth: Bandwidth, gain: u32, connection: &Connection) -> u64 {
    let rate = bandwidth.times(gain).bytes_per_second(connection.segment);
    let rate = u128::from(rate) * u128::from(PACED_SHARE) / 100;
    u64::try_from(rate)
        .unwrap_or(u64::MAX)
        .min(connection.rate_limit)
}
