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
    Ended, EndedFigures, Ending, Figures, Inquiry, LegReport, Listings, Mailbox, Record, Registry,
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

/// Most indices of the table that are checked in one round of samples.
const PLACES_AT_ONCE: usize = 4096;

/// How long a thread that ends waits for the log, for all its sessions together.
const LAST_WAIT: Duration = Duration::from_secs(1);

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
        session: SessionId(session.record.id),
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
            congestion_control: session.sockets.congestion_control(leg),
            ..LegReport::from(sample.leg(leg))
        });
        let narrow = (session.narrow.as_ref()).map(|leg| leg.report(&sample.client));
        let report = session.record.report(now, ReportedPhase::Ended, legs);
        let report = with_narrow(report, narrow);
        Ended { report, ending }
    });
    (ended, sample)
}

/// The figures of a session that ends now.
pub(super) fn ended_figures(
    record: &Record,
    closed: bool,
    destination: &Option<Box<str>>,
    now: Time,
) -> EndedFigures {
    EndedFigures {
        id: record.id,
        listener: Arc::clone(&record.listener.name),
        client: record.client,
        server: record.server,
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
        let Some(mut record) = self.record(listener, arrival, acceptors) else {
            return;
        };
        record.note_failure(Ending::of_connecting(error));
        let ending = record.note_end(false);
        let legs = [LegReport::default(), LegReport::default()];
        self.log(Ended::is_wanted().then(|| Ended {
            report: SessionReport {
                destination: name.map(String::from),
                ..record.report(now, ReportedPhase::Ended, legs)
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

    /// The relay ends: counts and logs the sessions that are left. Their sockets are closed, by a
    /// reset, when the thread drops them.
    pub fn end_all(&mut self, acceptors: &Acceptors, now: Time) {
        let limit = Instant::now() + LAST_WAIT;
        for place in 0..self.table.places() {
            let Some(session) = self.table.at_place(place) else {
                continue;
            };
            let listener = session.listener;
            let (Some(mut ended), _) = last_words(session, false, now, &self.counters) else {
                continue;
            };
            add_reasons(&mut ended.report, listener, acceptors);
            let name = self.destinations.remove(&ended.report.id);
            ended.report.destination = name.map(String::from);
            if !Box::new(ended).log_until(limit) {
                self.counters.lines_lost.add(1);
            }
        }
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
                        self.listings.consider(session.record.id, place);
                    }
                }
                Step::Report { id, place } => {
                    if let Some(session) = self.table.at_place(place)
                        && session.record.id == id
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
            let record = &session.record;
            let read = || session.sample().ok();
            let (moved, [client_leg, server_leg]) = self.surveys.visit(place, record, now, read);
            figures.push(Figures {
                id: record.id,
                listener: Arc::clone(&record.listener.name),
                client: record.client,
                server: record.server,
                destination: self.destinations.get(&record.id).cloned(),
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
