//! The pages of the admin listener.
//!
//! [`midspan_service::pages`] bounds connections and requests. The relay's threads get one query at a
//! time, ten per second; queries for what was learned, for which they may wait, count as such.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use midspan_linux::process_use::ProcessFiles;
use midspan_linux::sandbox;
use midspan_relay::observation::{Observer, Question, Survey};
use midspan_service::pages::{Pages, Reply, StatusCode, failed, json, open_metrics, text};
use tokio::sync::Mutex;

use super::NarrowObserver;
use super::host::HostCounters;
use super::metrics::{self, Snapshot};
use super::page;
use crate::gate::GateObserver;
use crate::health::{Health, OwnUse};
use crate::learned::{self, Learned};
use crate::overlay::{OverlayReport, RoutesQuery, RoutesReport};
use crate::summary::{self, By, Cost, Query, ServerRow, Summary, Summed, Totals};

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
    /// When the relay began.
    since: Instant,
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
            since: Instant::now(),
            turn: Mutex::new(()),
        }
    }

    fn metrics(&self) -> Reply {
        let snapshot = Snapshot {
            statistics: self.relay.statistics(),
            memory: self.relay.memory(),
            listeners: self.relay.listeners(),
            servers: self.relay.servers(),
            gate: self.gate.as_ref().map(GateObserver::statistics),
            verdicts: self.narrow.verdicts.counts(),
            fragments: self.narrow.fragments.now(),
            tail_loss_probes: self.host.as_ref().and_then(HostCounters::tail_loss_probes),
            refused_system_calls: sandbox::refused_calls(),
            gains: self.relay.gains(),
            overlay: OverlayReport::read(self.relay.overlay(), self.relay.learned().1.now()),
            known: self.health.known(),
            log_lines_lost: midspan_log::lost(),
            process: self.process.as_ref().and_then(OwnUse::of),
        };
        match metrics::encode(snapshot) {
            Ok(text) => open_metrics(text),
            Err(error) => failed(&error),
        }
    }

    fn health(&self, query: &str) -> Reply {
        let mut listener = None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if name != "listener" || listener.replace(value).is_some() {
                return text(StatusCode::BAD_REQUEST, "known parameter: listener=NAME\n");
            }
        }
        if !self.relay.is_well() {
            let said = "a thread of the relay has ended\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, said);
        }
        let known = self.health.known();
        if let Some(name) = listener.as_deref().filter(|name| !known.has_listener(name)) {
            return text(
                StatusCode::NOT_FOUND,
                format!("there is no listener {name}\n"),
            );
        }
        let judged = match listener {
            Some(name) => known.judge_listener(&name),
            None => known.judge(),
        };
        match judged {
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

    async fn summary(&self, query: &str) -> Reply {
        let query = match Query::read(query) {
            Ok(query) => query,
            Err(said) => return text(StatusCode::BAD_REQUEST, said + "\n"),
        };
        let turn = self.turn.lock().await;
        let survey = self.relay.survey().await;
        tokio::time::sleep(QUESTION_PAUSE).await;
        drop(turn);
        json(&self.summarised(&survey, &query))
    }

    /// The summary of these sessions, with the state and the totals.
    fn summarised(&self, survey: &Survey, query: &Query) -> Summary {
        let Summed {
            legs,
            rates,
            matched,
            clients,
            sessions,
            mut listeners,
            ended,
        } = summary::sum(survey, query, self.relay.learned().1.now(), || {
            self.relay.listeners()
        });
        let mut servers = self.servers();
        for row in &mut listeners {
            row.servers = servers.remove(&row.listener).unwrap_or_default();
        }
        let gains = self.relay.gains();
        let known = self.health.known();
        let uptime = self.since.elapsed();
        let cost = &survey.cost;
        Summary {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time_seconds: uptime.as_secs_f64(),
            complete: survey.is_complete,
            state: known.summary(uptime.as_secs()),
            totals: Totals {
                rate_to_client_bits_per_second: rates.map(|(to_client, _)| to_client),
                rate_to_server_bits_per_second: rates.map(|(_, to_server)| to_server),
                routes_left_alone: gains.routes_left_alone,
                ..self.totals()
            },
            legs,
            gain: summary::gains(&gains.sizes),
            matched,
            clients,
            sessions,
            listeners,
            ended,
            prefixes: match query.by {
                By::Prefix => summary::prefix_rows(&self.relay.client_rates(), query),
                _ => Vec::new(),
            },
            drained_clients: summary::count_drained(&survey.sessions, &known.drained_clients),
            cost: Cost {
                scanned: survey.sessions.len() as u64,
                slices: cost.slices,
                relay_seconds: cost.time.as_secs_f64(),
                longest_slice_seconds: cost.longest.as_secs_f64(),
            },
        }
    }

    /// The servers of each listener that has several, by its name.
    fn servers(&self) -> BTreeMap<String, Vec<ServerRow>> {
        let all = self.relay.servers().into_iter();
        all.map(|(name, servers)| (name, servers.iter().map(ServerRow::from).collect()))
            .collect()
    }

    fn totals(&self) -> Totals {
        let now = self.relay.statistics();
        let gate = self.gate.as_ref().map(GateObserver::statistics);
        let memory = self.relay.memory();
        let refused_at_syn = gate.as_ref().map_or(0, |gate| {
            gate.refused + gate.refused_by_policy + gate.refused_unroutable + gate.unanswered
        });
        Totals {
            sessions: now.sessions_active,
            opened: now.sessions_opened,
            refused: now.refusals() + refused_at_syn,
            shed: now.shed_sessions
                + now.shed_client
                + now.shed_client_rate
                + now.shed_memory
                + now.shed_descriptors,
            untouched: gate.map(|gate| {
                let reasons = gate.bypasses().into_iter();
                reasons
                    .map(|(reason, count)| (reason.to_owned(), count))
                    .collect()
            }),
            bytes_to_client: now.bytes_to_client,
            bytes_to_server: now.bytes_to_server,
            memory_used_bytes: memory.used,
            memory_budget_bytes: memory.budget,
            ..Totals::default()
        }
    }

    async fn learned(&self, query: &str) -> Reply {
        let query = match learned::Query::read(query) {
            Ok(query) => query,
            Err(said) => return text(StatusCode::BAD_REQUEST, said + "\n"),
        };
        let turn = self.turn.lock().await;
        let (knowledge, clock) = self.relay.learned();
        let learned = Learned::read(&query, knowledge, &self.narrow.verdicts, clock.now());
        tokio::time::sleep(QUESTION_PAUSE).await;
        drop(turn);
        json(&learned)
    }

    fn overlay(&self) -> Reply {
        let (overlay, now) = (self.relay.overlay(), self.relay.learned().1.now());
        json(&OverlayReport::read(overlay, now))
    }

    fn overlay_routes(&self, query: &str) -> Reply {
        let query = match RoutesQuery::read(query) {
            Ok(query) => query,
            Err(said) => return text(StatusCode::BAD_REQUEST, said + "\n"),
        };
        let (overlay, now) = (self.relay.overlay(), self.relay.learned().1.now());
        let Some(members) = overlay.members() else {
            return text(
                StatusCode::NOT_FOUND,
                "this Midspan is part of no overlay\n",
            );
        };
        // A copy, so that the question changes nothing, and no thread waits for the answer.
        let mut known = overlay.known().clone();
        json(&RoutesReport::read(&query, &members, &mut known, now))
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
        if let Some(file) = page::at(path) {
            return file;
        }
        match path {
            "/metrics" => self.metrics(),
            "/health" => self.health(query),
            "/sessions" => self.sessions(query).await,
            "/summary" => self.summary(query).await,
            "/servers" => json(&self.servers()),
            "/learned" => self.learned(query).await,
            "/overlay" => self.overlay(),
            "/overlay/routes" => self.overlay_routes(query),
            path => match path.strip_prefix("/sessions/").map(str::parse) {
                Some(Ok(id)) => self.session(id).await,
                _ => text(StatusCode::NOT_FOUND, "no such page\n"),
            },
        }
    }
}
