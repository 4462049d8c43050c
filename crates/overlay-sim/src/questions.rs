//! The questions about large overlays, each with its bound and the measured value.

use midspan_units::{ByteSize, TimeSpan};

use crate::measures::{FixedGain, Gain, Results, WINDOW};
use crate::network::{Network, NetworkError};
use crate::settings::{Failure, Settings};
use crate::simulation::Simulation;
use crate::two_equal::{SETTLED, two_equal};

/// What is simulated for the questions.
#[derive(Debug, Clone)]
pub struct Questions {
    /// The network.
    pub network: Network,
    /// The sessions.
    pub settings: Settings,
}

/// One simulation, which answers some of the questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The gain and the changes of routes, with the sessions of the settings.
    Routes,
    /// The gain of sessions of 100 KB, for at most 600 s.
    SmallSessions,
    /// A tenth of the transit nodes fails in the middle of at most 600 s.
    Failure,
    /// Two equal transit nodes whose links are used to 90 %, for at most 600 s.
    LoadOfLinks,
    /// The same, with processors at 90 %.
    LoadOfProcessors,
}

/// One question.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What is measured.
    pub question: &'static str,
    /// The bound, in words.
    pub asked: &'static str,
    /// The measured value, in words.
    pub measured: String,
    /// Whether the bound is met; `None` if there is no bound.
    pub met: Option<bool>,
}

/// Bounds: the share of the oracle's gain (the oracle is the best fixed route), changes per pair and hour, and the swings at 90 % load.
const LEAST_SHARE: f64 = 0.85;
const MOST_CHANGES: u64 = 4;
const MOST_SWING: f64 = 0.2;
/// The longest time of all parts except the first one.
const SHORT: TimeSpan = TimeSpan::from_seconds(600);
/// The size of small sessions.
const SMALL: ByteSize = ByteSize::from_bytes(100_000);

/// Simulates all parts, and answers. `progress` gets the name of the part, a second of its virtual time, and the last
/// second. The results are those of [`Part::Routes`].
///
/// # Errors
/// The network for the load cannot be made.
pub fn answer(
    questions: &Questions,
    mut progress: impl FnMut(&'static str, u64, u64),
) -> Result<(Vec<Answer>, Results), NetworkError> {
    let (mut answers, mut of_routes) = (Vec::new(), Results::default());
    for part in Part::ALL {
        let (of_part, results) = questions.answer(part, |second, last| {
            progress(part.name(), second, last);
        })?;
        answers.extend(of_part);
        if part == Part::Routes {
            of_routes = results;
        }
    }
    Ok((answers, of_routes))
}

impl Part {
    /// All of them, in the order of the answers.
    pub const ALL: [Self; 5] = [
        Self::Routes,
        Self::SmallSessions,
        Self::LoadOfLinks,
        Self::LoadOfProcessors,
        Self::Failure,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::SmallSessions => "small sessions",
            Self::Failure => "failure",
            Self::LoadOfLinks => "load of links",
            Self::LoadOfProcessors => "load of processors",
        }
    }
}

impl Questions {
    /// Simulates one part, and answers its questions. `progress` gets each second of virtual time, and the last second.
    ///
    /// # Errors
    /// The network for the load cannot be made.
    pub fn answer(
        &self,
        part: Part,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<(Vec<Answer>, Results), NetworkError> {
        let (network, settings) = self.of_part(part)?;
        let duration = settings.duration.as_seconds();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Some hours.
        let last = duration as u64 + 60;
        let results = Simulation::new(network, settings).run(|second| progress(second, last));
        let answers = match part {
            Part::Routes => self.of_routes(&results),
            Part::SmallSessions => vec![
                of_fixed(
                    "share of the oracle's gain, 100 KB (sessions and `transfer` of 100 KB)",
                    true,
                    results.fixed.first(),
                ),
                of_gain(
                    "share of the gain of perfect knowledge, 100 KB (the same sessions)",
                    &results.gain[0],
                ),
            ],
            Part::Failure => vec![of_failure(&results)],
            Part::LoadOfLinks => vec![of_load(
                "two equal transit nodes, 200 ingresses, links at 90 %: largest swing of a node in 10 s",
                duration,
                &results,
            )],
            Part::LoadOfProcessors => {
                vec![of_load("the same, processors at 90 %", duration, &results)]
            }
        };
        Ok((answers, results))
    }

    fn of_part(&self, part: Part) -> Result<(Network, Settings), NetworkError> {
        let settings = self.settings.clone();
        let short = Settings {
            duration: SHORT.min(settings.duration),
            ..settings.clone()
        };
        let load = |processing| {
            two_equal(&Settings {
                processing,
                ..short.clone()
            })
        };
        let settings = match part {
            Part::Routes => settings,
            Part::SmallSessions => Settings {
                size: SMALL,
                transfer: SMALL,
                sampled: (short.sampled / 5).max(1),
                ..short
            },
            Part::Failure => Settings {
                failure: Some(Failure {
                    after: short.duration / 2,
                    share: 0.1,
                }),
                sampled: u64::MAX,
                ..short
            },
            Part::LoadOfLinks => return load(0.5),
            Part::LoadOfProcessors => return load(1.0),
        };
        Ok((self.network.clone(), settings))
    }

    fn of_routes(&self, results: &Results) -> Vec<Answer> {
        let [small, large] = &results.gain;
        let over_one = |question, gain: &Gain| Answer {
            question,
            asked: "",
            measured: gain.share_over_one().map_or_else(String::new, percent),
            met: None,
        };
        let changes = results.changes;
        let hours = self
            .settings
            .duration
            .nanoseconds()
            .div_ceil(3_600_000_000_000);
        vec![
            of_fixed(
                "share of the gain of the oracle, the best fixed route, 1 MB",
                true,
                results.fixed.get(1),
            ),
            of_fixed(
                "the same, 100 KB (sessions and `transfer` of 1 MB)",
                false,
                results.fixed.first(),
            ),
            of_gain(
                "share of the gain of perfect knowledge, a new route for each session, 1 MB",
                large,
            ),
            of_gain("the same, 100 KB (sessions and `transfer` of 1 MB)", small),
            over_one(
                "the same share, perfect knowledge of routes over at most one transit node, 1 MB",
                large,
            ),
            over_one("the same, 100 KB", small),
            Answer {
                question: "changes to a better route, per pair and hour",
                asked: "≤ 4",
                measured: format!(
                    "most {}, 99 % of pairs ≤ {} (counts of the simulation); mean {:.2}",
                    changes.most, changes.most_of_99, changes.mean
                ),
                met: Some(changes.most <= MOST_CHANGES * hours.max(1)),
            },
            Answer {
                question: "changes because a route could not be used, per pair and hour",
                asked: "",
                measured: format!("mean {:.2}", changes.forced),
                met: None,
            },
            Answer {
                question: "changes if the shortest prediction were taken each time",
                asked: "",
                measured: format!("mean {:.1}", changes.memoryless),
                met: None,
            },
        ]
    }
}

/// The gain of the oracle's definition: the best fixed route.
fn of_fixed(question: &'static str, has_bound: bool, gain: Option<&FixedGain>) -> Answer {
    let gain = gain.filter(|gain| gain.pairs > 0);
    let measured = gain.map(|gain| match gain.share() {
        Some(share) => format!(
            "{}; the oracle takes {} less time than straight routes, {} pairs",
            percent(share),
            percent(gain.possible()),
            gain.pairs
        ),
        None => format!("the oracle gains nothing, {} pairs", gain.pairs),
    });
    let is_met = |gain: &FixedGain| gain.share().is_none_or(|share| share >= LEAST_SHARE);
    Answer {
        question,
        asked: if has_bound { "≥ 85 %" } else { "" },
        measured: measured.unwrap_or_else(|| "too few sessions of each pair".to_owned()),
        met: gain.filter(|_| has_bound).map(is_met),
    }
}

fn of_gain(question: &'static str, gain: &Gain) -> Answer {
    let measured = gain.share().map(|share| {
        let gained = percent(gain.gained());
        format!("{}; {gained} less time than straight", percent(share))
    });
    Answer {
        question,
        asked: "",
        measured: measured.unwrap_or_else(|| "perfect knowledge gains nothing".to_owned()),
        met: None,
    }
}

fn of_load(question: &'static str, duration: f64, results: &Results) -> Answer {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Some minutes.
    let skipped = (duration * SETTLED / WINDOW) as usize;
    let (node, sum) = results.swings(skipped);
    let over_transit = results.over_transit as f64 / results.sessions.max(1) as f64;
    Answer {
        question,
        asked: "± 20 %",
        measured: format!(
            "{}, of the sum {}; mean load {}; {} of the sessions over transit nodes",
            percent(node),
            percent(sum),
            percent(results.mean_used(skipped)),
            percent(over_transit)
        ),
        met: Some(node.max(sum) <= MOST_SWING),
    }
}

fn of_failure(results: &Results) -> Answer {
    let after = results.after_failure;
    Answer {
        question: "a tenth of the transit nodes fails: sessions begun 5 s later",
        asked: "all succeed with at most one retry",
        measured: format!(
            "{} sessions, {} with one retry, {} with more, {} failed",
            after.sessions,
            after.retried.saturating_sub(after.retried_again),
            after.retried_again,
            after.failed
        ),
        met: Some(after.retried_again == 0 && after.failed == 0),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
