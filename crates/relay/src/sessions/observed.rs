//! Sessions in the log, in metrics and in the list of sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use midspan_policy::{Leg, SessionId, SessionSample};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::Sessions;
use crate::acceptors::Acceptors;
use crate::arrival::Arrival;
use crate::observation::{
    Ended, EndedFigures, Ending, Figures, Inquiry, LegReport, Listings, Mailbox, Registry,
    ReportedPhase, SAMPLES_AT_ONCE, SESSIONS_IN_SLICE, SESSIONS_PER_CHECK, SLICE_LIMIT,
    SessionReport, Step,
};
use crate::rounds::Rounds;
use crate::session::{Session, with_narrow};
use crate::statistics::Counters;
use crate::system;

/// Where a thread reports its sessions.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Counts.
    pub registry: Arc<Registry>,
    /// Queries to this thread.
    pub mailbox: Arc<Mailbox>,
    /// How often live sessions are read.
    pub sampling_interval: Option<TimeSpan>,
}

/// Most indices of the table that are checked at once.
const PLACES_AT_ONCE: usize = 4096;

/// Sessions that end in one turn when the relay ends.
const ENDED_AT_ONCE: usize = 256;

/// How long a thread that ends waits for the log, for all its sessions together.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// How far a thread is with ending all its sessions.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndingAll {
    /// The next index of the table.
    place: usize,
    /// Until then, the thread waits for the log.
    log_until: Instant,
}

/// When the next sessions are sampled, and which.
#[derive(Debug)]
pub(super) struct Sampling {
    interval: TimeSpan,
    rounds: Rounds,
}

impl Sampling {
    pub fn new(interval: TimeSpan) -> Self {
        Self {
            interval,
            rounds: Rounds::default(),
        }
    }

    /// There is a session to sample. (An idle relay is not woken for samples.)
    pub fn wish(&mut self, now: Time) {
        self.rounds.wish(now + self.interval);
    }

    /// When the next round is due.
    pub const fn next(&self) -> Option<Time> {
        self.rounds.next()
    }
}

/// Counts a session that ends, with a FIN each way if `closed`. Returns its line for the log, if
/// lines of this kind are logged, and the last measurement.
pub(super) fn last_words(
    session: &mut Session,
    closed: bool,
    now: Time,
    counters: &Counters,
) -> (Option<Ended>, SessionSample) {
    let mut sample = session.sample().unwrap_or_else(|_| SessionSample {
        session: SessionId(session.id()),
        ..SessionSample::default()
    });
    sample.lasted = closed.then(|| session.record.age(now));
    session.record.note_sample(&sample);
    if let Some(leg) = &mut session.narrow {
        leg.end(&sample.client, now, counters);
        sample.ahead = leg.ahead_record();
    }
    let ending = session.record.note_end(closed);
    let ended = Ended::is_wanted().then(|| {
        let legs = [Leg::Client, Leg::Server].map(|leg| LegReport {
            congestion_control: session.sockets().congestion_control(leg),
            ..LegReport::from(sample.leg(leg))
        });
        let narrow = (session.narrow.as_ref()).map(|leg| leg.report(&sample.client));
        let identity = session.identity();
        let report = (session.record).report(identity, now, ReportedPhase::Ended, legs);
        let report = with_narrow(report, narrow);
        Ended { report, ending }
    });
    (ended, sample)
}

/// The figures of a session that ends now.
pub(super) fn ended_figures(
    session: &Session,
    closed: bool,
    destination: &Option<Box<str>>,
    now: Time,
) -> EndedFigures {
    let (identity, record) = (session.identity(), &session.record);
    EndedFigures {
        id: identity.id(),
        listener: Arc::clone(&record.listener.name),
        client: identity.client(),
        server: identity.server(),
        destination: destination.clone(),
        ending: record.ending(closed),
        at: now,
        lasted: record.age(now),
        bytes_to_client: record.bytes_to_client,
        bytes_to_server: record.bytes_to_server,
    }
}

/// Adds to a report why the legs have their congestion controls.
pub(super) fn add_reasons(report: &mut SessionReport, listener: u16, acceptors: &Acceptors) {
    let Some(acceptor) = acceptors.get(listener.into()) else {
        return;
    };
    let session = SessionId(report.id);
    for (leg, report) in [
        (Leg::Client, &mut report.client_leg),
        (Leg::Server, &mut report.server_leg),
    ] {
        let reason = acceptor.policy.reason(session, leg);
        report.congestion_control_reason = Some(reason.name().to_owned());
    }
}

impl Sessions {
    /// Records a session without a server leg, and the name by which its client requested the server.
    pub fn note_unconnected(
        &self,
        listener: usize,
        arrival: &Arrival,
        error: Errno,
        name: Option<Box<str>>,
        around: (&Acceptors, Time),
    ) {
        let (acceptors, now) = around;
        self.counters.sessions_opened.add(1);
        self.counters.sessions_unconnected.add(1);
        let Some((identity, mut record)) = self.record(listener, arrival, acceptors) else {
            return;
        };
        record.note_failure(Ending::of_connecting(error));
        let ending = record.note_end(false);
        let legs = [LegReport::default(), LegReport::default()];
        self.log(Ended::is_wanted().then(|| Ended {
            report: SessionReport {
                destination: name.map(String::from),
                ..record.report(&identity, now, ReportedPhase::Ended, legs)
            },
            ending,
        }));
    }

    pub(super) fn log(&self, ended: Option<Ended>) {
        if let Some(ended) = ended
            && !Box::new(ended).log()
        {
            self.counters.lines_lost.add(1);
        }
    }

    /// Whether the relay ends, and sessions may be left.
    pub const fn are_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// The relay ends: counts, logs and resets some of the sessions that are left. Returns whether none is left.
    pub fn end_some(&mut self, acceptors: &Acceptors, now: Time) -> bool {
        let ending = self.ending.get_or_insert_with(|| EndingAll {
            place: 0,
            log_until: Instant::now() + LAST_WAIT,
        });
        let (first, log_until) = (ending.place, ending.log_until);
        let end = self.table.places().min(first + PLACES_AT_ONCE);
        let (mut place, mut ended) = (first, 0);
        while place < end && ended < ENDED_AT_ONCE {
            if let Some(session) = (self.table.key_at(place)).and_then(|key| self.table.remove(key))
            {
                self.end_last(session, acceptors, now, log_until);
                ended += 1;
            }
            place += 1;
        }
        self.ending = Some(EndingAll { place, log_until });
        place == self.table.places()
    }

    /// Ends a session because the relay ends. Its sockets are closed by a reset.
    fn end_last(
        &mut self,
        mut session: Session,
        acceptors: &Acceptors,
        now: Time,
        log_until: Instant,
    ) {
        let (ended, _) = last_words(&mut session, false, now, &self.counters);
        let name = self.destinations.remove(&session.id());
        if let Some(mut ended) = ended {
            add_reasons(&mut ended.report, session.listener, acceptors);
            ended.report.destination = name.map(String::from);
            if !Box::new(ended).log_until(log_until) {
                self.counters.lines_lost.add(1);
            }
        }
        session.release(&mut self.shared);
        self.measuring.forget(&mut session);
        self.counters.sessions_active.decrement();
        self.counters.sessions_reset.add(1);
    }

    /// Answers queries, if there are any.
    pub fn answer_questions(&mut self, acceptors: &Acceptors, now: Time) {
        for inquiry in self.observation.mailbox.take() {
            match inquiry {
                Inquiry::Sessions(question, reply) => self.listings.ask(question, reply),
                Inquiry::Survey(reply) => self.surveys.ask(reply),
            }
        }
        // One slice in each turn.
        if self.listings.is_busy() {
            self.list_some(acceptors, now);
        } else if self.surveys.is_busy() {
            self.survey_some(now);
        } else {
            self.surveys.forget(now);
        }
    }

    /// When a list or a survey continues, or what a survey has read is forgotten.
    pub fn next_survey(&self) -> Option<Time> {
        match self.listings.is_busy() || self.surveys.is_busy() {
            true => Some(Time::ZERO),
            false => self.surveys.forget_at(),
        }
    }

    /// Makes one slice of a list.
    fn list_some(&mut self, acceptors: &Acceptors, now: Time) {
        let start = system::now();
        let mut is_whole = false;
        loop {
            let step = self.listings.next(self.table.places());
            match step {
                Step::Look(place) => {
                    if let Some(session) = self.table.at_place(place) {
                        self.listings.consider(session.id(), place);
                    }
                }
                Step::Report { id, place } => {
                    if let Some(session) = self.table.at_place(place)
                        && session.id() == id
                    {
                        let mut report = session.report(now);
                        add_reasons(&mut report, session.listener, acceptors);
                        let name = self.destinations.get(&id);
                        report.destination = name.map(ToString::to_string);
                        self.listings.add(report);
                    }
                }
                Step::Done => {
                    is_whole = true;
                    break;
                }
            }
            if Listings::is_check_due(step)
                && system::now().saturating_duration_since(start) >= SLICE_LIMIT
            {
                break;
            }
        }
        let took = system::now().saturating_duration_since(start);
        self.listings.end_slice(took, is_whole);
    }

    /// Makes one slice of a survey.
    fn survey_some(&mut self, now: Time) {
        let start = system::now();
        let mut figures = Vec::new();
        let mut is_whole = false;
        for looked in 0..SESSIONS_IN_SLICE {
            if looked % SESSIONS_PER_CHECK == SESSIONS_PER_CHECK - 1
                && system::now().saturating_duration_since(start) >= SLICE_LIMIT
            {
                break;
            }
            let Some(place) = self.surveys.next_place(self.table.places()) else {
                is_whole = true;
                break;
            };
            let Some(session) = self.table.at_place(place) else {
                continue;
            };
            let (identity, record) = (session.identity(), &session.record);
            let id = identity.id();
            let read = || session.sample().ok();
            let (moved, [client_leg, server_leg]) =
                self.surveys.visit(place, (id, record), now, read);
            figures.push(Figures {
                id,
                listener: Arc::clone(&record.listener.name),
                client: identity.client(),
                server: identity.server(),
                destination: self.destinations.get(&id).cloned(),
                phase: session.reported_phase(),
                age: record.age(now),
                start: record.learned_start(),
                bytes_to_client: record.bytes_to_client,
                bytes_to_server: record.bytes_to_server,
                moved,
                client_leg,
                server_leg,
            });
        }
        let took = system::now().saturating_duration_since(start);
        self.surveys.send(figures, took, is_whole, now);
    }

    /// Reads some of the sessions that moved data, in turn.
    pub fn sample_some(&mut self, now: Time) {
        let Some(sampling) = self.sampling.as_mut().filter(|it| it.rounds.is_due(now)) else {
            return;
        };
        let places = self.table.places();
        sampling.rounds.begin(places);
        let mut sampled = 0;
        for _ in 0..PLACES_AT_ONCE {
            if sampled >= SAMPLES_AT_ONCE {
                break;
            }
            let Some(place) = sampling.rounds.next_place(places) else {
                break;
            };
            if let Some(session) = self.table.at_place(place)
                && session.record.unsampled
            {
                session.sample_for_numbers();
                sampled += 1;
            }
        }
        sampling.rounds.end(now, sampling.interval);
    }
}
