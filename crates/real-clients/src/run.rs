//! Runs cases with plain routing and with Midspan, and compares.

use midspan_conformance::Family;

use crate::Error;
use crate::case::Case;
use crate::differences::{self, Verdict};
use crate::gateway::Gateway;
use crate::needed::Needed;
use crate::plan::Plan;
use crate::stage::{END, Played, Stage};
use crate::transcript::Transcript;

/// The result of one case over one protocol with one kind of gateway.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The case's name.
    pub case: &'static str,
    /// IPv4 or IPv6.
    pub family: Family,
    /// The kind of gateway.
    pub gateway: Gateway,
    /// The lines with plain routing.
    pub expected: Transcript,
    /// The lines of this run.
    pub seen: Transcript,
    /// The result of the comparison.
    pub verdict: Verdict,
    /// The programs' output on standard error, and Midspan's log.
    pub background: String,
}

/// A case that was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The case's name.
    pub case: &'static str,
    /// The missing programs or features.
    pub reason: String,
}

/// The results of all cases.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// By case, then gateway, then protocol.
    pub outcomes: Vec<Outcome>,
    /// Cases that were not run.
    pub skipped: Vec<Skipped>,
}

impl Results {
    /// Whether nothing differs without a documented reason.
    #[must_use]
    pub fn nothing_differs(&self) -> bool {
        let mut outcomes = self.outcomes.iter();
        outcomes.all(|outcome| outcome.verdict != Verdict::Different)
    }

    /// Whether every case that was run works with plain routing.
    #[must_use]
    pub fn nothing_void(&self) -> bool {
        let mut outcomes = self.outcomes.iter();
        outcomes.all(|outcome| outcome.verdict != Verdict::Void)
    }
}

/// Runs the plan; calls `progress` with each outcome.
///
/// The calling process must have left the host's network ([`midspan_linux::namespace::isolate`]).
///
/// # Errors
/// The suite itself cannot run: it cannot make namespaces, set the firewall, use its files or run
/// Midspan's program, or a script that prepares a case or the gateway fails. If Midspan starts but
/// refuses its configuration, this is a difference, not an error.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&Outcome)) -> Result<Results, Error> {
    let mut results = Results::default();
    let users = has_several_users();
    for case in &plan.cases {
        if let Some(reason) = missing(case, users) {
            results.skipped.push(Skipped {
                case: case.name,
                reason,
            });
            continue;
        }
        let stage = Stage::new(plan, case)?;
        let expected = with_plain_routing(&stage)?;
        let mut add = |outcome: Outcome| {
            progress(&outcome);
            results.outcomes.push(outcome);
        };
        let works = expected.iter().all(works);
        for played in &expected {
            let verdict = match works {
                true => Verdict::Same,
                false => Verdict::Void,
            };
            add(outcome(
                case,
                Gateway::Direct,
                &played.seen,
                played,
                verdict,
            ));
        }
        let gateways = plan.gateways.iter().copied();
        for gateway in gateways.filter(|gateway| *gateway != Gateway::Direct) {
            if !works || !case.runs_with(gateway) {
                continue;
            }
            for (played, expected) in stage.play(gateway)?.iter().zip(&expected) {
                let verdict =
                    differences::compare(gateway, case.name, &expected.seen, &played.seen);
                add(outcome(case, gateway, &expected.seen, played, verdict));
            }
        }
    }
    Ok(results)
}

/// Runs a case with plain routing. If it does not work, runs it once more, because other work on
/// the machine may have disturbed it.
fn with_plain_routing(stage: &Stage<'_>) -> Result<Vec<Played>, Error> {
    let played = stage.play(Gateway::Direct)?;
    if played.iter().all(works) {
        return Ok(played);
    }
    stage.play(Gateway::Direct)
}

/// Whether a client's script ran to its end.
fn works(played: &Played) -> bool {
    played.seen.lines().last().is_some_and(|line| line == END)
}

fn outcome(
    case: &Case,
    gateway: Gateway,
    expected: &Transcript,
    played: &Played,
    verdict: Verdict,
) -> Outcome {
    Outcome {
        case: case.name,
        family: played.family,
        gateway,
        expected: expected.clone(),
        seen: played.seen.clone(),
        verdict,
        background: played.background.clone(),
    }
}

/// Why a case cannot run: the names of missing programs and features; `None` if nothing is missing.
fn missing(case: &Case, several_users: bool) -> Option<String> {
    let missing: Vec<&Needed> = case
        .needs
        .iter()
        .filter(|needed| !needed.is_there())
        .collect();
    if !missing.is_empty() {
        let names: Vec<String> = missing
            .iter()
            .map(|needed| format!("{} (package {})", needed.what, needed.package))
            .collect();
        return Some(format!("there is no {}", names.join(", no ")));
    }
    (case.several_users && !several_users).then(|| {
        "its server needs a user of its own, and an ordinary user's namespace has root alone: \
         run it as root"
            .to_owned()
    })
}

/// Whether this user namespace has more than one user.
fn has_several_users() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let lengths = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    lengths.sum::<u64>() > 1
}
