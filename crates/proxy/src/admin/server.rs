//! The pages of the admin listener.
//!
//! [`midspan_service::pages`] bounds connections and requests. The relay's threads get one query at a
//! time, ten per second.

use std::time::Duration;

use midspan_linux::process_use::ProcessFiles;
use midspan_linux::sandbox;
use midspan_relay::observation::{Observer, Question};
use midspan_service::pages::{Pages, Reply, StatusCode, failed, json, open_metrics, text};
use tokio::sync::Mutex;

use super::NarrowObserver;
use super::host::HostCounters;
use super::metrics::{self, Snapshot};
use crate::gate::GateObserver;
use crate::health::{Health, OwnUse};

/// Pause between two queries to the relay's threads.
const QUESTION_PAUSE: Duration = Duration::from_millis(100);
/// Number of sessions in an answer if the request contains none.
const DEFAULT_SESSIONS: usize = 100;

/// Answers requests.
#[derive(Debug)]
pub(super) struct Service {
    relay: Observer,
    gate: Option<GateObserver>,
    narrow: NarrowObserver,
    host: Option<HostCounters>,
    process: Option<ProcessFiles>,
    health: Health,
    /// The request that queries the relay's threads holds this lock.
    turn: Mutex<()>,
}

impl Service {
    pub fn new(
        relay: Observer,
        gate: Option<GateObserver>,
        narrow: NarrowObserver,
        host: Option<HostCounters>,
        process: Option<ProcessFiles>,
        health: Health,
    ) -> Self {
        Self {
            relay,
            gate,
            narrow,
            host,
            process,
            health,
            turn: Mutex::new(()),
        }
    }

    fn metrics(&self) -> Reply {
        let snapshot = Snapshot {
            statistics: self.relay.statistics(),
            memory: self.relay.memory(),
            listeners: self.relay.listeners(),
            gate: self.gate.as_ref().map(GateObserver::statistics),
            verdicts: self.narrow.verdicts.counts(),
            fragments: self.narrow.fragments.now(),
            tail_loss_probes: self.host.as_ref().and_then(HostCounters::tail_loss_probes),
            refused_system_calls: sandbox::refused_calls(),
            gains: self.relay.gains(),
            known: self.health.known(),
            log_lines_lost: midspan_log::lost(),
            process: self.process.as_ref().and_then(OwnUse::of),
        };
        match metrics::encode(snapshot) {
            Ok(text) => open_metrics(text),
            Err(error) => failed(&error),
        }
    }

    fn health(&self) -> Reply {
        if !self.relay.is_well() {
            let said = "a thread of the relay has ended\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, said);
        }
        match self.health.known().judge() {
            Ok(said) => text(StatusCode::OK, said),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }

    async fn sessions(&self, query: &str) -> Reply {
        let mut question = Question {
            after: 0,
            limit: DEFAULT_SESSIONS,
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let read = match parameter.split_once('=') {
                Some(("after", value)) => value.parse().map(|after| question.after = after),
                Some(("limit", value)) => value.parse().map(|limit| question.limit = limit),
                _ => {
                    let said = "known parameters: after=ID, limit=NUMBER\n";
                    return text(StatusCode::BAD_REQUEST, said);
                }
            };
            if read.is_err() {
                let said = "after and limit are whole numbers\n";
                return text(StatusCode::BAD_REQUEST, said);
            }
        }
        json(&self.ask(question).await)
    }

    async fn session(&self, id: u64) -> Reply {
        let answer = self.ask(Question::one(id)).await;
        let found = answer.sessions.into_iter().find(|session| session.id == id);
        match found {
            Some(session) => json(&session),
            None if answer.complete => {
                text(StatusCode::NOT_FOUND, "no such session, or it has ended\n")
            }
            None => {
                let said = "a thread of the relay does not answer\n";
                text(StatusCode::SERVICE_UNAVAILABLE, said)
            }
        }
    }

    /// Queries the relay's threads; one query at a time, so that queries do not delay data.
    async fn ask(&self, question: Question) -> midspan_relay::observation::Answer {
        let turn = self.turn.lock().await;
        let answer = self.relay.sessions(question).await;
        tokio::time::sleep(QUESTION_PAUSE).await;
        drop(turn);
        answer
    }
}

impl Pages for Service {
    async fn page(&self, path: &str, query: &str) -> Reply {
        match path {
            "/metrics" => self.metrics(),
            "/health" => self.health(),
            "/sessions" => self.sessions(query).await,
            "/" => text(StatusCode::OK, "/metrics\n/sessions\n/health\n"),
            path => match path.strip_prefix("/sessions/").map(str::parse) {
                Some(Ok(id)) => self.session(id).await,
                _ => text(StatusCode::NOT_FOUND, "no such page\n"),
            },
        }
    }
}
