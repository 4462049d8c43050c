//! The sending side of one leg of a session: the settings that are left to the policy.

use midspan_units::{BitRate, ByteSize, Time};

use super::is_chosen;
use crate::buffers::SendBuffer;
use crate::congestion::{BBR, CongestionControl};
use crate::least_timeout::least_timeout;
use crate::pacing::PacingRate;
use crate::policies::Offered;
use crate::taken_flight::TakenFlight;
use crate::{Buffer, LegDecision, LegSample, LegSettings, Pacing, PacingBy};

/// On a shared path, changes of the rate by less than 1/`NOTABLE` are not worth a system call.
const NOTABLE: u64 = 32;

/// The state of the sending side of one leg; `None` if the setting is configured.
#[derive(Debug, Clone, Copy)]
pub struct LegState {
    pacing: Option<PacingRate>,
    /// The bound from sessions that share the path, and the rate that was set last because of it.
    pub shared: Option<BitRate>,
    /// Whether other sessions may share the path.
    pub has_shared: bool,
    announced: Option<BitRate>,
    buffer: Option<SendBuffer>,
    /// The choice of the congestion control.
    pub congestion: Option<CongestionControl>,
    /// What the leg has carried at once.
    pub taken: TakenFlight,
    /// Whether the least time-out may still be set.
    sets_timeout: bool,
    is_new: bool,
}

impl LegState {
    /// Of a leg that begins; `is_lossy`: earlier sessions found the path to this peer lossy.
    pub fn new(settings: &LegSettings, offered: Offered, is_lossy: bool) -> Self {
        let is_paced = settings.pacing != Pacing::Fixed;
        let is_adaptive = settings.send_buffer == Buffer::Adaptive;
        let pacing = || PacingRate::new(settings.pacing, settings.pacing_rate);
        Self {
            pacing: is_paced.then(pacing),
            shared: None,
            has_shared: false,
            announced: None,
            buffer: is_adaptive.then(SendBuffer::default),
            congestion: is_chosen(settings).then(|| CongestionControl::new(offered.bbr, is_lossy)),
            taken: TakenFlight::default(),
            sets_timeout: offered.least_timeout && is_chosen(settings),
            is_new: true,
        }
    }

    /// Combines the leg's own pacing rate (`own`; `changed` if this sample changed it) with the
    /// bound from sessions that share the path. Returns the rate to set; `None` if it stays.
    fn bounded(&mut self, changed: Option<BitRate>, own: Option<BitRate>) -> Option<BitRate> {
        let Some(shared) = self.shared else {
            // The bound was lifted: restore the leg's own rate.
            let was = self.announced.take();
            let unlimited = BitRate::from_bits_per_second(u64::MAX)?;
            return changed.or_else(|| was.map(|_| own.unwrap_or(unlimited)));
        };
        let rate = own.map_or(shared, |own| own.min(shared));
        let bits = BitRate::bits_per_second;
        let is_near = |before: BitRate| bits(before).abs_diff(bits(rate)) <= bits(before) / NOTABLE;
        if self.announced.is_some_and(is_near) {
            return None;
        }
        self.announced = Some(rate);
        Some(rate)
    }

    /// Whether a change of the congestion control waits for the end of recovery.
    pub fn waits(&self) -> bool {
        (self.congestion).is_some_and(|control| control.is_postponed())
    }

    /// Whether the losses of this short leg may still change its congestion control.
    pub fn watches(&self, leg: &LegSample) -> bool {
        (self.congestion).is_some_and(|control| control.watches(leg))
    }

    /// Takes a reading between the usual ones.
    pub fn handle_losses(&mut self, now: Time, outbound: &LegSample) -> LegDecision {
        let mut decision = LegDecision::default();
        if let Some(control) = &mut self.congestion
            && (control.watches(outbound) || control.is_postponed())
        {
            let changed = control.handle_sample(now, outbound);
            decision.congestion_control = changed.map(|choice| choice.name);
        }
        decision
    }

    /// Takes a reading of both legs; `held`: bytes that wait for this one.
    pub fn handle_sample(
        &mut self,
        now: Time,
        settings: &LegSettings,
        (inbound, outbound): (&LegSample, &LegSample),
        held: ByteSize,
    ) -> LegDecision {
        let is_new = std::mem::replace(&mut self.is_new, false);
        self.taken.handle_sample(outbound);
        let mut decision = LegDecision {
            pacing_by: settings.pacing_by,
            // Pacing at the input begins with the first sample: there is no socket option for it.
            pacing_rate: settings
                .pacing_rate
                .filter(|_| is_new && settings.pacing_by == PacingBy::Input),
            ..LegDecision::default()
        };
        if let Some(pacing) = &mut self.pacing {
            let changed = pacing.handle_sample(now, inbound, outbound, held);
            let own = pacing.rate();
            decision.pacing_rate = self.bounded(changed, own).or(decision.pacing_rate);
        }
        if let Some(buffer) = &mut self.buffer {
            let sizes = buffer.handle_sample(now, inbound, outbound);
            decision.not_sent_limit = sizes.not_sent_limit;
            decision.send_buffer = sizes.send_buffer;
        }
        if let Some(control) = &mut self.congestion {
            let changed = control.handle_sample(now, outbound);
            decision.congestion_control = match changed {
                Some(choice) => Some(choice.name),
                None if is_new && control.choice().name == BBR => Some(BBR),
                None => None,
            };
        }
        if self.sets_timeout && outbound.minimum_round_trip_time.is_some() {
            self.sets_timeout = false;
            decision.least_timeout = least_timeout(outbound);
        }
        decision
    }
}
