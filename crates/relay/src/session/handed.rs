//! A session that another relay continues.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use midspan_handover::{PhaseState, SessionState};
use midspan_policy::Request;
use midspan_units::Time;

use super::{Failures, NarrowLeg, Phase, Record, Session, Upkeep};
use crate::identity::Identity;
use crate::limits::Seat;
use crate::narrow::Profiles;
use crate::observation::ListenerCounters;
use crate::pipes::Pipes;
use crate::shared_part::SharedPart;
use crate::sockets::Sockets;
use crate::transfer::{HeldData, TakenData, Transfer};

/// What belongs to a session in addition to its state.
#[derive(Debug)]
pub struct SessionParts<'a> {
    /// The socket towards the client, and the one towards the server.
    pub sockets: [BorrowedFd<'a>; 2],
    /// The bytes that it holds towards the server, and towards the client.
    pub held: [HeldData<'a>; 2],
}

/// What a session finds in the relay that continues it.
#[derive(Debug)]
pub struct NewHome<'a> {
    /// The index of its acceptor.
    pub listener: u16,
    /// The counters of its listener.
    pub counters: Arc<ListenerCounters>,
    /// The access profiles of its listener.
    pub profiles: &'a Profiles,
    /// Its place, if it has one.
    pub seat: Seat,
}

impl Session {
    /// The state and the parts of the session; `None` if only this relay can continue it. `destination` is the name
    /// by which the client requested the server, `deadline` the session's one among the timers.
    pub fn hand_over(
        &self,
        destination: Option<&str>,
        deadline: Option<Time>,
    ) -> Option<(SessionState, SessionParts<'_>)> {
        // The keys of an encrypted leg stay in this process.
        if self.framed.is_some() || self.sockets().legs().iter().any(|leg| leg.is_encrypted()) {
            return None;
        }
        let long_leg = match &self.narrow {
            None => None,
            Some(leg) => Some(Box::new(leg.hand_over()?)),
        };
        let (to_server, held_to_server) = self.to_server.hand_over();
        let (to_client, held_to_client) = self.to_client.hand_over();
        let state = SessionState {
            listener: self.listener.into(),
            phase: match self.phase {
                Phase::Connecting => PhaseState::Connecting {
                    until: deadline.map(Time::nanoseconds),
                },
                Phase::Relaying => PhaseState::Relaying,
                Phase::Settling { deadline, .. } => PhaseState::Settling {
                    until: deadline.nanoseconds(),
                },
            },
            record: self.record.hand_over(self.identity()),
            to_server,
            to_client,
            failed: [self.failures.client, self.failures.server],
            end_seen: [self.client_end_seen, self.server_end_seen],
            moved_at: self.upkeep.moved_at().nanoseconds(),
            has_place: self.seat().is_taken(),
            destination: destination.map(str::to_owned),
            long_leg,
        };
        let parts = SessionParts {
            sockets: self.sockets().legs().map(AsFd::as_fd),
            held: [held_to_server, held_to_client],
        };
        // A state that the other relay would refuse stays here.
        state.check().is_ok().then_some((state, parts))
    }

    /// Continues a session with this state. The sockets are that towards the client and that towards the server,
    /// the bytes those towards the server and those towards the client.
    pub fn take_over(
        state: &SessionState,
        sockets: Sockets,
        [to_server, to_client]: [TakenData; 2],
        home: NewHome<'_>,
        pipes: &mut Pipes,
    ) -> Self {
        let request = Request {
            client: state.record.client,
            server: state.record.server,
        };
        let identity = Identity::new(state.record.id, request);
        let part = SharedPart::new(identity, sockets, home.seat);
        let record = Record::take_over(&state.record, home.counters);
        let moved_at = Time::from_nanoseconds(state.moved_at);
        let mut upkeep = Upkeep::new(moved_at);
        // Its memory has not been measured here.
        upkeep.note_event();
        let [client_failed, server_failed] = state.failed;
        let [client_end_seen, server_end_seen] = state.end_seen;
        let long_leg = state.long_leg.as_deref().map(|leg| {
            let client = state.record.client.ip();
            Box::new(NarrowLeg::take_over(leg.clone(), client, home.profiles))
        });
        let mut session = Self {
            to_server: Transfer::take_over(&state.to_server, to_server, pipes),
            to_client: Transfer::take_over(&state.to_client, to_client, pipes),
            failures: Failures {
                client: client_failed,
                server: server_failed,
            },
            client_end_seen,
            server_end_seen,
            phase: match state.phase {
                PhaseState::Connecting { .. } => Phase::Connecting,
                PhaseState::Relaying => Phase::Relaying,
                PhaseState::Settling { until } => Phase::Settling {
                    deadline: Time::from_nanoseconds(until),
                    looks: 0,
                },
            },
            upkeep,
            ..Self::new(part, home.listener, record, moved_at)
        };
        // Together with the cap of the data in flight.
        session.set_narrow(long_leg);
        session
    }
}
