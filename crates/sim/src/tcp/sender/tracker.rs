//! The state that a sender tracks for every segment, for BBR and for loss recovery by time.
//!
//! A sender with BBR has a tracker from the start, and one whose configuration tracks segments. A sender whose
//! congestion control may change while data flows has one too. Until the change, this tracker only records deliveries
//! and round trips, so that BBR begins with them, as in Linux, where every socket measures them.

use midspan_link::Stream;
use midspan_units::{Time, TimeSpan};

use super::Sender;
use super::bbr::{Bbr, LossState};
use super::delivery_rate::{DeliveryRate, NewestDelivered, RateSample};
use super::prr::Reduction;
use super::segments::{Segment, Segments};
use super::timing::Timing;
use super::undo::Windows;
use super::usage::Usage;
use crate::packet::Acknowledgement;
use crate::random::stream_for;

/// A segment that is sent again into an empty path may be acknowledged a little sooner than any segment
/// before: by less than 1/`ALONE` of the round trip. A kernel has measured the handshake, which is shorter still,
/// and timestamps show it whether an ACK answers the original (RFC 3522); here the time does.
const ALONE: u64 = 8;

/// The tracked state of a sender.
#[derive(Debug, Clone)]
pub(super) struct Tracker {
    pub(super) segments: Segments,
    pub(super) rate: DeliveryRate,
    pub(super) timing: Timing,
    pub(super) rack: Rack,
    pub(super) recovery: Recovery,
    pub(super) pace: Pace,
    pub(super) usage: Usage,
    /// BBR, once the connection is open and if it is the congestion control.
    pub(super) bbr: Option<Bbr>,
    /// The largest end of a segment that was delivered before this ACK, and up to now. An ACK that delivers several
    /// segments does not show their order.
    highest_before: u64,
    highest_delivered: u64,
    stream: Stream,
}

/// The state of loss detection by time (RFC 8985: RACK).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rack {
    /// When the segment was sent that was sent last among the delivered ones, and its end.
    pub(super) sent: (Time, u64),
    /// Its round trip.
    pub(super) round_trip: TimeSpan,
    /// Something was delivered since losses were last looked for.
    pub(super) advanced: bool,
    /// A segment has overtaken another on the path.
    pub(super) reordering_seen: bool,
}

/// The state of loss recovery.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recovery {
    pub(super) state: LossState,
    /// Recovery ends when everything before this is acknowledged.
    pub(super) end: u64,
    /// After a time-out, until it is clear that it was not spurious (RFC 5682: F-RTO).
    pub(super) may_be_spurious: bool,
    /// The last probe for a lost tail, until an ACK has shown whether it was needed.
    pub(super) probe: Option<Probe>,
    /// How cwnd comes down to ssthresh, except with BBR.
    pub(super) reduction: Reduction,
    /// cwnd and ssthresh before the last time-out, except with BBR.
    pub(super) before: Windows,
    /// What the retransmission timer waits for.
    pub(super) pending: Pending,
    /// A segment that leaves next, whatever cwnd and the pacing rate.
    pub(super) forced: Option<Forced>,
    /// Time-outs since data was last newly acknowledged.
    pub(super) timeouts: u32,
}

/// A probe for a lost tail that is in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    /// The end of the data that had been sent.
    pub(super) end: u64,
    /// It was the last segment again, and no new data.
    pub(super) is_resent: bool,
}

impl Recovery {
    /// Everything before `number` is acknowledged, perhaps by an ACK that contains nothing else. Returns whether the
    /// probe has repaired a loss that nothing else has shown (RFC 8985 §7.4.2; Linux: `tcp_process_tlp_ack`): data
    /// after it was acknowledged, and no duplicate ACK has shown that the original had arrived too.
    pub(super) fn end_probe(&mut self, number: u64, is_duplicate: bool) -> bool {
        let Some(probe) = self.probe.filter(|probe| number >= probe.end) else {
            return false;
        };
        let repaired = probe.is_resent && number > probe.end;
        if repaired || is_duplicate || !probe.is_resent {
            self.probe = None;
        }
        repaired
    }
}

/// Why the retransmission timer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Pending {
    #[default]
    Timeout,
    /// Segments may only be late (RFC 8985 §6.2).
    Reordering,
    /// Nothing may be left in flight that would show a loss (RFC 8985 §7: tail loss probe).
    Probe,
}

/// A segment that leaves at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forced {
    /// The first unacknowledged one, after a time-out.
    First,
    /// A probe for a lost tail.
    Probe,
}

/// Pacing inside TCP (Linux: `tcp_update_skb_after_send`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// When the next burst may leave.
    pub(super) release: Time,
    /// Time that was lost because the last burst left late.
    pub(super) credit: TimeSpan,
    /// Segments that may still leave in this burst, when it leaves, and where its data continues.
    pub(super) left: u64,
    pub(super) burst: (Time, u64),
}

/// What an ACK has shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tracked {
    /// It has new information about data beyond a gap.
    pub(super) news: bool,
    /// It has moved the end of the peer's window.
    pub(super) window_moved: bool,
    /// Segments that it newly acknowledges.
    pub(super) delivered: u64,
    /// Segments that were acknowledged without a gap.
    pub(super) in_order: u64,
    pub(super) prior_in_flight: u64,
    pub(super) prior_lost: u64,
    pub(super) sample: Option<RateSample>,
    /// The round trip of its newest segment.
    pub(super) round_trip: Option<TimeSpan>,
    /// The receiver may have held it back.
    pub(super) is_delayed: bool,
    /// Data that was never sent again has arrived, and was sent before the last loss.
    pub(super) original_arrived: bool,
    /// The first unacknowledged segment was sent again too short a time ago to be acknowledged.
    pub(super) answers_original: bool,
    /// A round trip was measured on data that was sent after the first unacknowledged segment.
    pub(super) is_later_than_first: bool,
}

/// Times of the segments that an ACK delivers and that were sent once.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    first_in_order: Option<Time>,
    last_in_order: Option<Time>,
    first_selective: Option<Time>,
    last_selective: Option<Time>,
    resent_in_order: bool,
    /// When the first segment was sent again that the ACK delivers in order, if the ACK answers this.
    by_timestamp: Option<Time>,
}

impl Tracker {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            segments: Segments::default(),
            rate: DeliveryRate::default(),
            timing: Timing::default(),
            rack: Rack::default(),
            recovery: Recovery::default(),
            pace: Pace::default(),
            usage: Usage::default(),
            bbr: None,
            highest_before: 0,
            highest_delivered: 0,
            stream,
        }
    }

    /// The stream that draws the phases of BBR.
    pub(super) fn stream(&self) -> Stream {
        self.stream.clone()
    }

    fn deliver(
        &mut self,
        now: Time,
        segment: &Segment,
        (newest, tracked): (&mut NewestDelivered, &mut Tracked),
    ) {
        self.rate
            .handle_delivered(&segment.snapshot, segment.end, newest);
        tracked.delivered += 1;
        let sent = segment.snapshot.sent();
        let round_trip = now.since(sent);
        // The ACK of a segment that was sent twice may be that of its first sending.
        if !segment.was_resent || round_trip >= self.least_answer() {
            self.rack.advanced = true;
            self.rack.round_trip = round_trip;
            self.rack.sent = self.rack.sent.max((sent, segment.end));
        }
        if !segment.was_resent {
            self.rack.reordering_seen |= segment.end < self.highest_before;
            tracked.original_arrived |= segment.end <= self.recovery.end;
        }
        self.highest_delivered = self.highest_delivered.max(segment.end);
    }

    /// An ACK that comes sooner after a segment was sent again answers an earlier sending.
    fn least_answer(&self) -> TimeSpan {
        let shortest = self.timing.shortest().unwrap_or_default();
        shortest - shortest / ALONE
    }
}

impl Sender {
    /// The congestion control may change to BBR while data flows: `stream` will draw the phases of
    /// its cycle. Has an effect before anything is sent. A sender that begins with BBR needs this
    /// call only if several senders must draw different phases.
    pub(crate) fn track(&mut self, stream: Stream) {
        match &mut self.tracker {
            Some(tracker) => tracker.stream = stream,
            None if self.highest == 0 => self.tracker = Some(Box::new(Tracker::new(stream))),
            None => {}
        }
    }

    /// The tracker of a sender that begins with BBR.
    pub(super) fn own_tracker() -> Box<Tracker> {
        Box::new(Tracker::new(stream_for(0, "gain cycle", "")))
    }

    /// A segment is about to be sent.
    #[inline(never)]
    pub(super) fn track_sent(&mut self, now: Time, sequence: u64, length: u64) {
        let (highest, end) = (self.highest, sequence + length);
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        let snapshot = tracker.rate.handle_sent(now, tracker.segments.count() == 0);
        if sequence < highest {
            tracker
                .segments
                .resend(sequence, end.min(highest), snapshot);
        }
        if end > highest {
            tracker.segments.push(sequence.max(highest), end, snapshot);
        }
    }

    /// An ACK has arrived: finds the segments that it delivers.
    #[inline(never)]
    pub(super) fn track_acknowledgement(&mut self, now: Time, ack: &Acknowledgement) -> Tracked {
        let (unacknowledged, next) = (self.unacknowledged, self.next);
        let is_selective = self.is_selective();
        let Some(tracker) = &mut self.tracker else {
            return Tracked::default();
        };
        let mut tracked = Tracked {
            prior_in_flight: tracker.segments.in_flight(),
            prior_lost: tracker.segments.total_lost(),
            ..Tracked::default()
        };
        tracker.highest_before = tracker.highest_delivered;
        let mut newest = NewestDelivered::default();
        let mut times = Times::default();
        let mut delivered: Vec<Segment> = Vec::new();
        if is_selective {
            for block in ack.blocks.as_slice() {
                let start = (ack.number + u64::from(block.start)).max(unacknowledged);
                let end = ack.number + u64::from(block.end);
                let pieces = self.scoreboard.missing_in(start, end);
                tracked.news |= self.scoreboard.insert(start, end);
                for piece in pieces {
                    let whole = self.scoreboard.range_of(piece);
                    tracker
                        .segments
                        .arrive(piece, whole, |segment| delivered.push(*segment));
                }
            }
        }
        for segment in delivered.drain(..) {
            if !segment.was_resent {
                let sent = segment.snapshot.sent();
                times.first_selective = Some(times.first_selective.map_or(sent, |at| at.min(sent)));
                times.last_selective = times.last_selective.max(Some(sent));
            }
            tracker.deliver(now, &segment, (&mut newest, &mut tracked));
        }
        let had_arrived = tracker.segments.arrived() > 0;
        if ack.number > unacknowledged && ack.number <= self.highest {
            let least_answer = tracker.least_answer();
            let mut gone: Vec<(Segment, bool)> = Vec::new();
            tracker.segments.acknowledge(ack.number, |one| {
                gone.push((one.segment, one.before));
            });
            tracked.in_order = gone.len() as u64;
            for (index, (segment, before)) in gone.into_iter().enumerate() {
                let sent = segment.snapshot.sent();
                if index == 0 && segment.was_resent && !before {
                    tracked.answers_original = now.since(sent) < least_answer;
                }
                if segment.was_resent {
                    times.resent_in_order = true;
                    let answers_this = !before && now.since(sent) >= least_answer;
                    times.by_timestamp = times.by_timestamp.or(answers_this.then_some(sent));
                } else if !before {
                    times.first_in_order = times.first_in_order.or(Some(sent));
                    times.last_in_order = Some(sent);
                }
                if !before {
                    tracker.deliver(now, &segment, (&mut newest, &mut tracked));
                }
            }
        }
        tracked.is_delayed = tracked.in_order == 1
            && tracked.delivered == 1
            && !had_arrived
            && tracker.recovery.state == LossState::Open;
        let floor = self.configuration.minimum_timeout;
        let acknowledged = unacknowledged.max(ack.number);
        tracked.measure_round_trip(now, &times, tracker, (floor, acknowledged, next));
        tracked.sample = tracker.rate.sample(now, newest, tracker.timing.shortest());
        tracked
    }

    /// The application is about to write: if it has not kept the sender busy, samples do not show
    /// what the path can carry (Linux: `tcp_rate_check_app_limited`).
    #[inline(never)]
    pub(super) fn track_write(&mut self) {
        let segment = self.segment_size();
        let has_room = self.written - self.next < segment;
        let window = self.cwnd / segment;
        if let Some(tracker) = &mut self.tracker
            && has_room
            && tracker.segments.in_flight() < window
            && !tracker.segments.has_to_resend()
        {
            let in_flight = tracker.segments.in_flight();
            tracker.rate.limit_by_application(in_flight);
        }
    }
}

impl Tracked {
    /// Measures the round trip as `tcp_clean_rtx_queue` does in Linux. Of the segments that the ACK delivers,
    /// the oldest one gives the round trip for the estimator, and the newest one that for BBR. A segment that
    /// was sent again does not count. If the ACK number covers such a segment, no segment below this number
    /// counts; if nothing else counts then, the time since it was sent again does, because the ACK echoes its
    /// timestamp (RFC 7323 §4.1).
    fn measure_round_trip(
        &mut self,
        now: Time,
        times: &Times,
        tracker: &mut Tracker,
        (floor, acknowledged, next): (TimeSpan, u64, u64),
    ) {
        let since = |at: Time| now.since(at);
        let in_order = times.first_in_order.filter(|_| !times.resent_in_order);
        let mut newest = times
            .last_in_order
            .filter(|_| !times.resent_in_order)
            .map(since);
        if times.last_selective.is_some() {
            newest = times.last_selective.map(since);
        }
        let oldest = in_order.or(times.first_selective);
        if oldest.is_none() {
            newest = times.by_timestamp.map(since);
        }
        let Some(oldest) = oldest.or(times.by_timestamp).map(since) else {
            return;
        };
        self.round_trip = newest;
        if let Some(newest) = newest {
            tracker.timing.note_shortest(newest);
        }
        tracker.timing.measure(oldest, floor, (acknowledged, next));
        self.is_later_than_first = tracker
            .segments
            .first_sent()
            .is_some_and(|sent| oldest > since(sent));
    }
}
