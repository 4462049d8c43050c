//! Legs towards clients behind a narrow upstream, or behind a long leg: carries out the decisions of
//! the policies for oversized segments and for sending ahead (Hasegawa).

mod beginning;
mod handed;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use midspan_linux::tcp;
use midspan_policy::ahead_history::AheadRecord;
use midspan_policy::automatic_ahead::AheadState;
use midspan_policy::narrow_leg::NarrowDecision;
use midspan_policy::oversized_segments::Event;
use midspan_policy::{LegSample, narrow_leg};
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use super::listener::Listener;
use super::remembered::Remembered;
use super::sample::sample;
use super::statistics::Counters;
use crate::profile::{AccessProfile, SegmentMarks};

mod report;

pub use report::NarrowReport;

/// The access profiles of a listener's clients.
#[derive(Debug, Clone)]
pub struct Profiles {
    /// The listener, with the profiles and the marks of their segments.
    pub listener: Arc<Listener>,
    /// The verdicts about clients; the same for all listeners.
    pub verdicts: Remembered,
}

impl Profiles {
    fn all(&self) -> &[AccessProfile] {
        &self.listener.profiles
    }

    fn marks(&self) -> &SegmentMarks {
        &self.listener.marks.segments
    }
}

/// A leg towards a narrow client, or a long one.
#[derive(Debug)]
pub struct NarrowLeg {
    profiles: Profiles,
    /// The number of the client's profile, if one applies.
    place: Option<usize>,
    client: IpAddr,
    /// Decides; the rest carries out.
    decides: narrow_leg::NarrowLeg,
    /// Sizes of oversized segments and their marks.
    marks: Vec<(u32, u32)>,
    is_four: bool,
    /// The mark for segments of the client's own size.
    own_mark: u32,
    /// Bytes of an ACK without data.
    ack_size: u32,
    last_moved: Time,
    round_trip: Option<TimeSpan>,
    /// Bytes that might be written after the newest reading; `None`: any number.
    room: Option<u64>,
    next_look: Option<Time>,
    /// The number of sent segments at the last count, if segments were oversized since then.
    counted: Option<u32>,
    /// Whether it was counted as a leg that sends ahead without a profile.
    was_ahead: bool,
    report: NarrowReport,
}

impl NarrowLeg {
    fn profile(&self) -> Option<&AccessProfile> {
        self.profiles.all().get(self.place?)
    }

    /// Memory is short: without a profile, nothing is sent ahead any more.
    pub const fn handle_shortage(&mut self) {
        self.decides.handle_shortage();
    }

    /// Whether data may be sent ahead without a profile, from the next reading on.
    pub fn set_ahead_allowed(&mut self, is_allowed: bool) {
        self.decides.set_ahead_allowed(is_allowed);
    }

    /// What sending ahead has found out about a client without a profile.
    pub fn ahead_record(&self) -> AheadRecord {
        self.decides.ahead_record()
    }

    /// Most bytes in flight, if fewer than the kernel would send.
    pub fn cap(&self) -> Option<ByteSize> {
        // The kernel itself limits the leg to the scaled window.
        self.decides.cap_within_window()
    }

    /// Bytes that may be written from the newest reading to the next one; `None`: any number. Data that is sent
    /// ahead has this limit instead of a [cap](Self::cap).
    pub const fn room(&self) -> Option<u64> {
        self.room
    }

    /// The highest rate of the kernel, if the profile has one.
    pub const fn pacing_rate(&self) -> Option<BitRate> {
        self.decides.start().pacing_rate
    }

    /// The smallest round-trip time at the last reading.
    pub const fn round_trip_time(&self) -> Option<TimeSpan> {
        self.round_trip
    }

    /// Data was written, so the leg is read soon.
    pub fn note_moved(&mut self, now: Time) {
        self.last_moved = now;
        if self.next_look.is_none() {
            self.next_look = self.decides.poll_timeout(now);
        }
    }

    /// When to read the leg next; `None` if no reading is due.
    pub const fn next_look(&self) -> Option<Time> {
        self.next_look
    }

    /// Reads the leg, if it is time, and does what the policies decide; the number of options that
    /// the kernel refused. `None` if it was not read.
    pub(super) fn look(
        &mut self,
        socket: impl AsFd,
        now: Time,
        counters: &Counters,
    ) -> Option<u64> {
        let socket = socket.as_fd();
        if self.next_look.is_none_or(|at| now < at) {
            return None;
        }
        // Before the sample: of data that is acknowledged in between, less room results, and not more.
        let queued = tcp::unacknowledged_bytes(socket).unwrap_or_default();
        let Ok(sample) = sample(socket) else {
            self.next_look = None;
            return None;
        };
        let before = self.report.clone();
        let refused = u64::from(self.take_in(socket, &sample, now).is_err());
        self.set_room(&sample, queued);
        self.push_held(socket, &sample, now);
        self.count(&before, counters);
        // Without data in flight, nothing changes until data is written. Without room, none is written.
        let is_busy = sample.unacknowledged > 0 || sample.not_sent.bytes() > 0;
        let is_busy = is_busy || self.room == Some(0);
        let next = self.decides.poll_timeout(now);
        self.next_look = next.filter(|_| is_busy || now.since(self.last_moved) < QUIET);
        Some(refused)
    }

    /// Notes how much may be written after this reading, of a leg with this many bytes in its send buffer.
    fn set_room(&mut self, sample: &LegSample, queued: ByteSize) {
        let written = sample
            .bytes_acknowledged
            .bytes()
            .saturating_add(queued.bytes());
        let limit = self.decides.write_limit();
        self.room = limit.map(|limit| limit.saturating_sub(written));
    }

    fn take_in(
        &mut self,
        socket: BorrowedFd<'_>,
        sample: &LegSample,
        now: Time,
    ) -> std::io::Result<()> {
        self.round_trip = sample.minimum_round_trip_time;
        if let Some(before) = self.counted {
            let sent = sample.segments_sent.wrapping_sub(before);
            self.report.oversized_segments += u64::from(sent);
            self.counted = Some(sample.segments_sent);
        }
        let decision = self.decides.handle_sample(now, sample);
        self.report.sending_ahead_losses = self.decides.sending_ahead_losses();
        self.note_event(&decision);
        if let Some(size) = decision.segment_size {
            self.carry_out(socket, size, sample)?;
        }
        if decision.slow_start_again {
            tcp::slow_start_again(socket)?;
        }
        match decision.event {
            // Only the probe, or nothing, is in flight. Without this call, the next segment, or a
            // retransmission, would have the size from before.
            Some(Event::Probed) => tcp::route_again(socket),
            None if decision.segment_size.is_some() => tcp::route_again(socket),
            _ => Ok(()),
        }
    }

    /// Notes what the last reading has shown.
    fn note_event(&mut self, decision: &NarrowDecision) {
        match decision.event {
            Some(Event::Probed) => self.report.probes += 1,
            Some(Event::ProbeLost | Event::FellBack) => self.report.fallbacks += 1,
            Some(Event::Raised) | None => {}
        }
        if let Some(found) = decision.verdict {
            self.profiles.verdicts.note(self.client, found);
        }
    }

    fn carry_out(
        &mut self,
        socket: BorrowedFd<'_>,
        size: u32,
        sample: &LegSample,
    ) -> std::io::Result<()> {
        let is_oversized = self.decides.is_oversized();
        let mark = self.marks.iter().find(|(of, _)| *of == size);
        match mark.map(|(_, mark)| *mark).filter(|_| is_oversized) {
            Some(mark) => {
                self.set_fragmenting(socket, true)?;
                // Only full segments are sent (the paper uses Nagle's algorithm).
                tcp::set_no_delay(socket, false)?;
                tcp::set_mark(socket, mark)?;
                self.counted.get_or_insert(sample.segments_sent);
            }
            None => {
                self.counted = None;
                tcp::set_mark(socket, self.own_mark)?;
                self.set_fragmenting(socket, false)?;
                tcp::set_no_delay(socket, true)?;
            }
        }
        Ok(())
    }

    /// IPv6 does not fragment on the path, so the fragmenter cuts its packets.
    fn set_fragmenting(&self, socket: BorrowedFd<'_>, is_on: bool) -> std::io::Result<()> {
        match self.is_four {
            true => tcp::set_fragmenting(socket, is_on),
            false => Ok(()),
        }
    }

    /// Sends data that has waited too long for a full segment.
    fn push_held(&self, socket: BorrowedFd<'_>, sample: &LegSample, now: Time) {
        let holds = self.decides.is_oversized();
        let hold = self.profile().map(|of| of.hold_to_fill);
        let waited = now.since(self.last_moved);
        let part = sample.not_sent.bytes();
        if holds && part > 0 && hold.is_some_and(|hold| waited >= hold) {
            // If the kernel refuses this, the data is sent with the next ACK.
            let _ = tcp::set_no_delay(socket, true);
            let _ = tcp::set_no_delay(socket, false);
        }
    }

    fn count(&mut self, before: &NarrowReport, counters: &Counters) {
        let is_ahead = self.decides.ahead_state() == Some(AheadState::Ahead);
        if is_ahead && !std::mem::replace(&mut self.was_ahead, true) {
            counters.sessions_ahead.add(1);
        }
        let report = &self.report;
        let sent = report.oversized_segments - before.oversized_segments;
        counters.oversized_segments.add(sent);
        let probes = report.probes - before.probes;
        counters.oversized_probes.add(u64::from(probes));
        let fallbacks = report.fallbacks - before.fallbacks;
        counters.oversized_fallbacks.add(u64::from(fallbacks));
        let losses = report.sending_ahead_losses - before.sending_ahead_losses;
        counters.sending_ahead_losses.add(u64::from(losses));
    }

    /// The counters, by the last reading of the leg.
    pub fn report(&self, sample: &LegSample) -> NarrowReport {
        let acknowledgements = sample
            .segments_received
            .saturating_sub(sample.data_segments_received);
        let profile = self.profile();
        let state = self.decides.ahead_state();
        NarrowReport {
            profile: profile.map(|of| of.name.clone()).unwrap_or_default(),
            sending_ahead: state.map(|state| state.name().to_owned()),
            segment_size_bytes: self.decides.segment_size().unwrap_or(0),
            added_window_scale: self.decides.start().added_scale,
            acknowledgements,
            acknowledgement_bytes: u64::from(acknowledgements) * u64::from(self.ack_size),
            ..self.report.clone()
        }
    }

    /// Ends the session: adds changes since the last reading to the counters.
    pub(super) fn end(&mut self, sample: &LegSample, now: Time, counters: &Counters) {
        let before = self.report.clone();
        let decision = self.decides.handle_end(now, sample);
        self.note_event(&decision);
        if let Some(counted) = self.counted.take() {
            let sent = sample.segments_sent.wrapping_sub(counted);
            self.report.oversized_segments += u64::from(sent);
        }
        self.report.sending_ahead_losses = self.decides.sending_ahead_losses();
        self.count(&before, counters);
        if self.place.is_none() {
            return;
        }
        let report = self.report(sample);
        counters
            .narrow_acknowledgements
            .add(u64::from(report.acknowledgements));
        counters
            .narrow_acknowledgement_bytes
            .add(report.acknowledgement_bytes);
    }
}

/// After this time without data in flight, a leg is no longer read.
const QUIET: TimeSpan = TimeSpan::from_milliseconds(300);

#[cfg(test)]
mod tests;
