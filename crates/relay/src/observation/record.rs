//! The data that a session records about itself.

use std::num::NonZero;
use std::sync::Arc;

use midspan_handover::RecordState;
use midspan_policy::{Handshake, Leg, SessionSample};
use midspan_units::{Time, TimeSpan};

use super::numbers::LastReading;
use super::report::{LegReport, Phase, SessionReport, handshake_name};
use super::{Ending, ListenerCounters};
use crate::arrival::Arrival;
use crate::identity::Identity;

/// Times, bytes and addresses of a session, and its listener's counters.
#[derive(Debug)]
pub struct Record {
    /// The counters of its listener in this thread.
    pub listener: Arc<ListenerCounters>,
    /// When the client was answered.
    pub handshake: Handshake,
    /// Bytes handed to the kernel towards the client.
    pub bytes_to_client: u64,
    /// Bytes handed to the kernel towards the server.
    pub bytes_to_server: u64,
    /// The initial window of the client leg, and whether it is a learned start; `None` if no window
    /// was selected.
    start: Option<(u16, bool)>,
    /// When the client's first segment arrived.
    begin: Time,
    /// Nanoseconds until both legs were connected, at least 1; `None` before.
    setup: Option<NonZero<u64>>,
    /// The first failure.
    failure: Option<Ending>,
    /// Data has passed since the last sample.
    pub unsampled: bool,
    last: [LastReading; 2],
    /// For each leg, the most bytes that were read for it in one turn; the client leg first.
    largest_forward_data: [u32; 2],
    /// For each leg, the most bytes that were handed to its socket in one turn.
    largest_burst: [u32; 2],
}

impl Record {
    /// The record of a session that begins with this arrival.
    pub fn new(listener: Arc<ListenerCounters>, arrival: &Arrival) -> Self {
        listener.opened.add(1);
        listener.active.add(1);
        if let Some(start) = &arrival.start {
            listener.observe_start(start);
        }
        Self {
            listener,
            handshake: arrival.handshake,
            bytes_to_client: 0,
            bytes_to_server: 0,
            start: arrival.start.map(|start| {
                let window = u16::try_from(start.segments()).unwrap_or(u16::MAX);
                (window, start.rate.is_some())
            }),
            begin: arrival.since,
            setup: None,
            failure: None,
            unsampled: false,
            last: [LastReading::default(); 2],
            largest_forward_data: [0; 2],
            largest_burst: [0; 2],
        }
    }

    /// What another relay needs to continue this session.
    pub fn hand_over(&self, identity: &Identity) -> RecordState {
        RecordState {
            id: identity.id(),
            client: identity.client(),
            server: identity.server(),
            is_early: self.handshake == Handshake::Early,
            began: self.begin.nanoseconds(),
            setup: self.setup.map(NonZero::get),
            bytes_to_client: self.bytes_to_client,
            bytes_to_server: self.bytes_to_server,
            start: self.start,
            failure: self.failure.map(|failure| failure.name().to_owned()),
            read: self.last.map(LastReading::hand_over),
            largest_forward_data: self.largest_forward_data,
            largest_burst: self.largest_burst,
        }
    }

    /// Continues the record of another relay.
    pub fn take_over(state: &RecordState, listener: Arc<ListenerCounters>) -> Self {
        listener.opened.add(1);
        listener.active.add(1);
        Self {
            listener,
            handshake: match state.is_early {
                true => Handshake::Early,
                false => Handshake::EndToEnd,
            },
            bytes_to_client: state.bytes_to_client,
            bytes_to_server: state.bytes_to_server,
            start: state.start,
            begin: Time::from_nanoseconds(state.began),
            setup: state.setup.map(at_least_one),
            failure: state.failure.as_deref().and_then(Ending::named),
            unsampled: true,
            last: state.read.map(LastReading::take_over),
            largest_forward_data: state.largest_forward_data,
            largest_burst: state.largest_burst,
        }
    }

    /// Another relay has the session from now on.
    pub fn note_handed_over(&self) {
        self.listener.active.decrement();
    }

    /// Both legs are connected.
    pub fn note_connected(&mut self, now: Time) {
        let time = now.since(self.begin);
        self.setup = Some(at_least_one(time.nanoseconds()));
        self.listener.observe_setup(self.handshake, time);
    }

    /// A failure. The first one decides how the session ended.
    pub fn note_failure(&mut self, ending: Ending) {
        self.failure.get_or_insert(ending);
    }

    /// In one turn, `read` bytes were read from `inbound`, and `count` bytes were handed to the
    /// kernel for the other leg.
    pub fn note_moved(&mut self, inbound: Leg, read: u64, count: u64) {
        if read == 0 && count == 0 {
            return;
        }
        let (bytes, counter, outbound) = match inbound {
            Leg::Client => (&mut self.bytes_to_server, &self.listener.bytes_to_server, 1),
            Leg::Server => (&mut self.bytes_to_client, &self.listener.bytes_to_client, 0),
        };
        let largest = |place: &mut u32, bytes: u64| {
            *place = (*place).max(u32::try_from(bytes).unwrap_or(u32::MAX));
        };
        largest(&mut self.largest_forward_data[outbound], read);
        largest(&mut self.largest_burst[outbound], count);
        self.listener.observe_turn(inbound.other(), read, count);
        *bytes += count;
        counter.add(count);
        self.unsampled |= count > 0;
    }

    /// Both legs were read.
    pub fn note_sample(&mut self, sample: &SessionSample) {
        self.unsampled = false;
        let [client, server] = &mut self.last;
        for (leg, last) in [(Leg::Client, client), (Leg::Server, server)] {
            self.listener.observe_leg(leg, sample.leg(leg), last);
        }
    }

    /// The counters of the client leg that were already added to the statistics, for the next
    /// session of this connection.
    pub const fn client_reading(&self) -> LastReading {
        self.last[0]
    }

    /// Sets the counters that earlier sessions of the client's connection have already added to the
    /// statistics.
    pub const fn continue_from(&mut self, reading: LastReading) {
        self.last[0] = reading;
    }

    /// Time since the client's first segment.
    pub fn age(&self, now: Time) -> TimeSpan {
        now.since(self.begin)
    }

    /// How the session ended: with a FIN in each direction if `closed`, otherwise by its failure.
    pub fn ending(&self, closed: bool) -> Ending {
        match closed {
            true => Ending::Closed,
            false => self.failure.unwrap_or(Ending::Drained),
        }
    }

    /// The session ended; counts its [ending](Self::ending).
    pub fn note_end(&self, closed: bool) -> Ending {
        let ending = self.ending(closed);
        self.listener.active.decrement();
        self.listener.count_end(ending);
        ending
    }

    /// Whether the client leg has a learned start; `None` if no start was selected.
    pub fn learned_start(&self) -> Option<bool> {
        self.start.map(|(_, is_learned)| is_learned)
    }

    /// The report of the session, with the reports of its legs.
    pub fn report(
        &self,
        identity: &Identity,
        now: Time,
        phase: Phase,
        legs: [LegReport; 2],
    ) -> SessionReport {
        let [mut client_leg, mut server_leg] = legs;
        for (place, leg) in [&mut client_leg, &mut server_leg].into_iter().enumerate() {
            leg.largest_forward_data_bytes = self.largest_forward_data[place];
            leg.largest_burst_bytes = self.largest_burst[place];
        }
        SessionReport {
            id: identity.id(),
            listener: self.listener.name.to_string(),
            client: identity.client(),
            server: identity.server(),
            destination: None,
            narrow: None,
            start: self.start.map(|(_, is_known)| match is_known {
                true => "learned".to_owned(),
                false => "cold".to_owned(),
            }),
            initial_window_segments: self.start.map(|(window, _)| window.into()),
            handshake: handshake_name(self.handshake).to_owned(),
            phase,
            setup_seconds: (self.setup)
                .map(|time| TimeSpan::from_nanoseconds(time.get()).as_seconds()),
            duration_seconds: now.since(self.begin).as_seconds(),
            bytes_to_client: self.bytes_to_client,
            bytes_to_server: self.bytes_to_server,
            client_leg,
            server_leg,
        }
    }
}

fn at_least_one(nanoseconds: u64) -> NonZero<u64> {
    NonZero::new(nanoseconds).unwrap_or(NonZero::<u64>::MIN)
}
