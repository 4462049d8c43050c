//! Carries out the policy's decisions on a session's sockets.

use midspan_linux::tcp;
use midspan_policy::{Decision, Leg, PacingBy, SessionSample, learned_start};

use midspan_units::Time;

use super::Session;
use crate::legs::InputStart;
use crate::narrow::NarrowLeg;
use crate::statistics::Counters;
use crate::throttle::{CapBy, kernel_rate};

/// Bytes of IP and TCP headers without options, which count in a rate.
const IPV4_HEADERS: u32 = 40;
const IPV6_HEADERS: u32 = 60;

/// Data of a segment until there is a sample: on Ethernet, with timestamps.
const SEGMENT: u32 = learned_start::SEGMENT;

impl Session {
    /// Paces legs at the input of TCP from their first byte on; the client leg first.
    pub fn pace_from_start(&mut self, legs: [InputStart; 2]) {
        for (leg, start) in [Leg::Client, Leg::Server].into_iter().zip(legs) {
            let headers = self.header_size(leg);
            if let Some(rate) = start.rate {
                let throttle = self.transfer_to(leg).throttle();
                throttle.set_rate(rate, SEGMENT, headers, 0);
            } else if let Some(flight) = start.flight {
                let round_trip = match flight.needs_round_trip() {
                    true => self.part.sockets.round_trip_time(leg),
                    false => None,
                };
                if let Some(flight) = flight.pacing(SEGMENT, headers, round_trip) {
                    self.transfer_to(leg).throttle().begin_flight(flight);
                }
            }
        }
    }

    /// Sets the state of a narrow or long client leg, before the first byte.
    pub fn set_narrow(&mut self, narrow: Option<Box<NarrowLeg>>) {
        let of = |leg: &NarrowLeg| (leg.cap(), leg.room(), leg.round_trip_time());
        let limits = narrow.as_deref().map(of);
        self.narrow = narrow;
        let Some((cap, room, round_trip)) = limits else {
            return;
        };
        let transfer = self.transfer_to(Leg::Client);
        if let Some(cap) = cap {
            transfer.throttle().set_cap(CapBy::Profile, cap, round_trip);
        }
        if let Some(room) = room {
            transfer.throttle().set_room(room, round_trip);
        }
    }

    /// Reads the narrow or long leg towards the client, if a reading is due; returns the number of options
    /// that the kernel refused.
    pub(super) fn look_at_narrow_leg(&mut self, now: Time, counters: &Counters) -> u64 {
        let Some(leg) = &mut self.narrow else {
            return 0;
        };
        let before = leg.cap();
        if self.to_client.is_bounded {
            leg.handle_shortage();
        }
        let looked = leg.look(&self.part.sockets.client, now, counters);
        let (cap, room, round_trip) = (leg.cap(), leg.room(), leg.round_trip_time());
        let transfer = self.transfer_to(Leg::Client);
        match (cap, before) {
            // The cap is unchanged, but the round-trip time may be new.
            (Some(cap), _) => transfer.throttle().set_cap(CapBy::Profile, cap, round_trip),
            (None, Some(_)) => transfer.lift_cap(CapBy::Profile),
            (None, None) => {}
        }
        // Between two readings, the throttle subtracts what is written.
        match (looked, room) {
            (Some(_), Some(room)) => transfer.throttle().set_room(room, round_trip),
            (Some(_), None) => transfer.lift_room(),
            (None, _) => {}
        }
        looked.unwrap_or(0)
    }

    fn header_size(&self, leg: Leg) -> u32 {
        match self.peer(leg).is_ipv4() {
            true => IPV4_HEADERS,
            false => IPV6_HEADERS,
        }
    }

    /// Carries out a decision that was made from `sample`; returns the number of options that the
    /// kernel refused.
    ///
    /// `segment_size` is not carried out here.
    pub fn carry_out(&mut self, decision: &Decision, sample: &SessionSample) -> u64 {
        let mut refused = 0;
        if let (Some(is_allowed), Some(leg)) = (decision.client.ahead_allowed, &mut self.narrow) {
            leg.set_ahead_allowed(is_allowed);
        }
        let narrow_rate = self.narrow.as_ref().and_then(|leg| leg.pacing_rate());
        for leg in [Leg::Client, Leg::Server] {
            let (decision, sample) = (decision.leg(leg), sample.leg(leg));
            if let Some(cap) = decision.in_flight_cap {
                let throttle = self.transfer_to(leg).throttle();
                throttle.set_cap(CapBy::Policy, cap, sample.minimum_round_trip_time);
            }
            if let (Some(rate), PacingBy::Input) = (decision.pacing_rate, decision.pacing_by) {
                let headers = self.header_size(leg);
                let transfer = self.transfer_to(leg);
                let held = transfer.direction.held();
                let segment = sample.segment_size;
                transfer.throttle().set_rate(rate, segment, headers, held);
            }
            // A buffer that is bounded because memory is short is not enlarged.
            let is_bounded = self.transfer(leg.other()).is_bounded;
            let socket = self.part.sockets.of(leg);
            let mut note = |failed: bool| refused += u64::from(failed);
            if let (Some(rate), PacingBy::Kernel) = (decision.pacing_rate, decision.pacing_by) {
                let profile = narrow_rate.filter(|_| leg == Leg::Client);
                let rate = kernel_rate(Some(rate), profile);
                note(tcp::set_pacing_rate(socket, rate).is_err());
            }
            if let Some(size) = decision.send_buffer.filter(|_| !is_bounded) {
                note(tcp::set_send_buffer(socket, size).is_err());
            }
            if let Some(limit) = decision.not_sent_limit {
                note(tcp::set_notsent_lowat(socket, limit).is_err());
            }
            if let Some(name) = decision.congestion_control {
                note(tcp::set_congestion_control(socket, name).is_err());
            }
            if let Some(time) = decision.least_timeout {
                note(tcp::set_least_timeout(socket, time).is_err());
            }
            if decision.bbr_again {
                note(tcp::begin_bbr_again(socket).is_err());
            }
        }
        refused
    }
}
