//! Observation of a running relay, at a low cost.
//!
//! | module | content |
//! | --- | --- |
//! | `ending` | how a session ended |
//! | `record` | what a session records: times, bytes, addresses |
//! | `numbers` | counters and histograms of one listener in one thread |
//! | `registry` | the sums over the threads |
//! | `roster` | the present threads, and what former threads have counted |
//! | `report` | the data of a session in `/sessions` and in its log line |
//! | `inquiry` | queries to the threads, because only its own thread can read a session |
//! | `listing` | reports of sessions, made in slices |
//! | `survey` | some figures of all sessions of a thread, read in slices |
//! | `held_by` | what holds a session back |
//! | `journal` | the log lines, which another thread writes, so that a slow log delays no data |
//!
//! The thread that moves the data of a session also fills in `record`, `numbers`, `listing` and `survey`. It
//! increments plain numbers that no other thread writes.
//!
//! The thread reads `TCP_INFO` (2 µs for both legs) at the end of each session. Policies that sample, lists
//! and surveys need further readings. If [`Settings::sampling_interval`] is set, the thread also reads at
//! most [`SAMPLES_AT_ONCE`] sessions in each interval: only those that have moved data since their last
//! sample.
//!
//! [`Settings::sampling_interval`]: super::Settings::sampling_interval

mod ending;
mod held_by;
mod inquiry;
mod journal;
mod listing;
mod numbers;
mod record;
mod registry;
mod report;
mod roster;
mod survey;

pub use ending::Ending;
pub use held_by::{HeldBy, LegReading, Limit};
pub use inquiry::{Answer, AnswerCost, Question};
pub use numbers::{
    HistogramTotals, LegTotals, ListenerTotals, PIECE_BOUNDS, RATE_BOUNDS, ROUND_TRIP_TIME_BOUNDS,
    SEGMENT_BOUNDS, TIME_BOUNDS,
};
pub use report::{LegReport, Phase as ReportedPhase, SessionReport};

use survey::Part;
pub use survey::{Cost, Direction, EndedFigures, Figures, Moved};

pub(super) use inquiry::{Inquiry, Mailbox};
pub(super) use journal::Ended;
pub(super) use listing::{Listings, Step};
pub(super) use numbers::{LastReading, ListenerCounters};
pub(super) use record::Record;
pub(super) use registry::Registry;
pub(super) use roster::Roster;
pub(super) use survey::{SESSIONS_IN_SLICE, SESSIONS_PER_CHECK, SLICE_LIMIT, Surveys};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use midspan_policy::client_rates::PrefixRates;
use midspan_policy::leave_alone::{SIZES, SizeGain};
use midspan_policy::servers::ServerReading;

use super::control::{Clock, Control};
use super::knowledge::SharedKnowledge;
use super::limits::Limits;
use super::overlay::SharedOverlay;
use super::server_lists::SharedServers;
use super::statistics::Statistics;

/// Most sessions of one thread whose `TCP_INFO` is read at a time.
pub const SAMPLES_AT_ONCE: usize = 64;

/// How long the threads may take to survey their sessions, between moving data.
const SURVEY_LIMIT: Duration = Duration::from_secs(5);

/// How long a thread may take to answer; it checks for queries in every turn of its loop.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Memory of sessions, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Bytes in use at the last measurement.
    pub used: u64,
    /// Bytes that sessions may come to use without another decision. Only available with a budget.
    pub reserved: u64,
    /// The budget, if there is one.
    pub budget: Option<u64>,
    /// The bytes that queues may come to use beyond the least of each session, and their limit.
    pub queues: Option<(u64, u64)>,
}

/// Observes a relay from another thread; there may be any number of observers.
#[derive(Debug, Clone)]
pub struct Observer {
    pub(super) control: Arc<Control>,
    pub(super) threads: Arc<Roster>,
    pub(super) registry: Arc<Registry>,
    pub(super) limits: Arc<Limits>,
    pub(super) knowledge: SharedKnowledge,
    pub(super) overlay: SharedOverlay,
    pub(super) servers: SharedServers,
    pub(super) clock: Clock,
}

/// What splitting gains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GainTotals {
    /// Flows that were split and flows that were not, by size.
    pub sizes: [SizeGain; SIZES.len() + 1],
    /// How often the policy decided that splitting does not help a route.
    pub routes_left_alone: u64,
}

impl Observer {
    /// The numbers of all threads together.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.threads.statistics()
    }

    /// The numbers of each listener by its name, all threads together.
    #[must_use]
    pub fn listeners(&self) -> BTreeMap<String, ListenerTotals> {
        self.registry.totals()
    }

    /// What splitting gains.
    #[must_use]
    pub fn gains(&self) -> GainTotals {
        GainTotals {
            sizes: self.knowledge.flows_by_size().gains(),
            routes_left_alone: self.knowledge.found_routes(),
        }
    }

    /// What sessions leave for later ones, and the clock for its times.
    #[must_use]
    pub const fn learned(&self) -> (&SharedKnowledge, Clock) {
        (&self.knowledge, self.clock)
    }

    /// What is known of the overlay.
    #[must_use]
    pub const fn overlay(&self) -> &SharedOverlay {
        &self.overlay
    }

    /// The rates of client prefixes that are limited, in no particular order.
    #[must_use]
    pub fn client_rates(&self) -> Vec<PrefixRates> {
        self.limits.client_rates.rows(self.clock.now())
    }

    /// The servers of each listener that has several, by its name.
    #[must_use]
    pub fn servers(&self) -> BTreeMap<String, Vec<ServerReading>> {
        self.servers.readings(self.clock.now())
    }

    /// What the sessions take of the memory.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let budget = &self.limits.budget;
        MemoryUse {
            used: budget.used(),
            reserved: budget.reserved(),
            budget: budget.limit(),
            queues: budget.queues(),
        }
    }

    /// Number of threads.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Whether all threads run.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.statistics().threads_running == self.threads.len() as u64
    }

    /// Live sessions, in the order of their beginning.
    pub async fn sessions(&self, question: Question) -> Answer {
        let (reply, mut replies) = tokio::sync::mpsc::channel(self.threads.len().max(1));
        let asked = self
            .threads
            .mailboxes()
            .iter()
            .filter(|mailbox| {
                let reply = reply.clone();
                mailbox.put(Inquiry::Sessions(question, reply))
            })
            .count();
        drop(reply);
        self.control.wake();
        let mut sessions = Vec::new();
        let mut cost = Cost::default();
        let mut answered = 0;
        let all = async {
            while let Some((reports, of_thread)) = replies.recv().await {
                answered += 1;
                sessions.extend(reports);
                cost.join(of_thread);
            }
        };
        let _ = tokio::time::timeout(ANSWER_LIMIT, all).await;
        Answer::new(
            question,
            sessions,
            cost,
            answered == asked && asked == self.threads.len(),
        )
    }

    /// Figures of all live sessions.
    pub async fn survey(&self) -> Survey {
        let (reply, mut parts) = tokio::sync::mpsc::unbounded_channel();
        let asked = self
            .threads
            .mailboxes()
            .iter()
            .filter(|mailbox| mailbox.put(Inquiry::Survey(reply.clone())))
            .count();
        drop(reply);
        self.control.wake();
        let mut survey = Survey::default();
        let mut answered = 0;
        let all = async {
            while let Some(part) = parts.recv().await {
                match part {
                    Part::Slice(figures) => survey.sessions.extend(figures),
                    Part::Done(cost, ended) => {
                        answered += 1;
                        survey.cost.join(cost);
                        survey.ended.extend(ended);
                    }
                }
            }
        };
        let _ = tokio::time::timeout(SURVEY_LIMIT, all).await;
        survey.is_complete = answered == asked && asked == self.threads.len();
        survey
    }
}

/// Figures of all live sessions at one moment.
#[derive(Debug, Default)]
pub struct Survey {
    /// The sessions, in no order.
    pub sessions: Vec<Figures>,
    /// Sessions that have ended recently, in no order.
    pub ended: Vec<EndedFigures>,
    /// What the survey cost the threads.
    pub cost: Cost,
    /// All threads have answered.
    pub is_complete: bool,
}
