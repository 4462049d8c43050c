//! Runs cases without and with proxies, and compares.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::Error;
use crate::case::{Case, Expected};
use crate::differences::{self, Verdict};
use crate::error::Stop;
use crate::network::{Family, Network};
use crate::proxies::{self, Conditions, Proxy};
use crate::stage::Stage;
use crate::transcript::{Event, Transcript};

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cases.
    pub cases: Vec<Case>,
    /// Over which protocols.
    pub families: Vec<Family>,
    /// The names of the proxies. The run without a proxy is always made.
    pub against: Vec<String>,
    /// Midspan's executable.
    pub program: PathBuf,
    /// Transfer less data and wait for shorter times.
    pub quick: bool,
    /// Time limit of each step of a case. A step that takes longer is a fault.
    pub limit: Duration,
    /// Number of light cases that run at the same time.
    pub jobs: usize,
}

/// The result of one case over one protocol with one proxy.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The case's name.
    pub case: &'static str,
    /// IPv4 or IPv6.
    pub family: Family,
    /// The proxy's name.
    pub proxy: String,
    /// The expected events.
    pub expected: Transcript,
    /// The events of this run.
    pub seen: Transcript,
    /// The result of the comparison.
    pub verdict: Verdict,
}

/// A proxy of the run, or the reason why it is left out.
#[derive(Debug, Clone)]
pub struct Participant {
    /// Its name.
    pub name: String,
    /// The product and its version; or the reason why it is left out.
    pub description: Result<String, String>,
}

/// The results of all runs.
#[derive(Debug, Clone)]
pub struct Results {
    /// The proxies.
    pub participants: Vec<Participant>,
    /// By case, then protocol, then proxy.
    pub outcomes: Vec<Outcome>,
}

impl Results {
    /// Whether every difference has a reason.
    #[must_use]
    pub fn all_conform(&self) -> bool {
        self.outcomes
            .iter()
            .all(|outcome| outcome.verdict != Verdict::Different)
    }
}

/// The names that [`Plan::against`] may have.
#[must_use]
pub fn proxy_names() -> Vec<String> {
    proxies::known(&PathBuf::new())
        .iter()
        .map(|proxy| proxy.name())
        .collect()
}

/// Runs the plan. Calls `progress` with each outcome, the number of finished runs, and the number
/// of all runs.
///
/// The calling process must have left the host's network ([`midspan_linux::namespace::isolate`]).
///
/// # Errors
/// A case cannot be run, a proxy does not start, or a case fails twice without a proxy.
pub fn run(
    plan: &Plan,
    progress: &(dyn Fn(&Outcome, usize, usize) + Sync),
) -> Result<Results, Error> {
    raise_descriptor_limit();
    let mut chosen = Vec::new();
    let mut participants = Vec::new();
    for proxy in proxies::known(&plan.program) {
        if !plan.against.contains(&proxy.name()) {
            continue;
        }
        let description = proxy.describe();
        participants.push(Participant {
            name: proxy.name(),
            description: description.clone(),
        });
        if description.is_ok() {
            chosen.push(proxy);
        }
    }
    let work = Work::new(plan, chosen);
    work.run(plan, progress)?;
    Ok(Results {
        participants,
        outcomes: work.into_outcomes(),
    })
}

/// The runs of a plan, and their results so far.
struct Work {
    jobs: Vec<(Case, Family)>,
    proxies: Vec<Box<dyn Proxy>>,
    total: usize,
    done: AtomicUsize,
    failed: AtomicBool,
    outcomes: Mutex<Vec<(usize, Vec<Outcome>)>>,
}

impl Work {
    fn new(plan: &Plan, proxies: Vec<Box<dyn Proxy>>) -> Self {
        let jobs: Vec<(Case, Family)> = plan
            .cases
            .iter()
            .flat_map(|case| plan.families.iter().map(|family| (*case, *family)))
            .collect();
        let proxied = proxies
            .iter()
            .filter(|proxy| proxy.name() != WITHOUT)
            .count();
        let with_baseline = jobs.iter().filter(|(case, _)| has_baseline(case)).count();
        Self {
            total: jobs.len() * proxied + with_baseline,
            jobs,
            proxies,
            done: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            outcomes: Mutex::new(Vec::new()),
        }
    }

    fn run(
        &self,
        plan: &Plan,
        progress: &(dyn Fn(&Outcome, usize, usize) + Sync),
    ) -> Result<(), Error> {
        let numbered = || self.jobs.iter().enumerate();
        let light: Vec<usize> = (numbered().filter(|(_, (case, _))| !case.heavy))
            .map(|(index, _)| index)
            .collect();
        let heavy = (numbered().filter(|(_, (case, _))| case.heavy)).map(|(index, _)| index);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..plan.jobs.max(1))
                .map(|_| {
                    scope.spawn(|| -> Result<(), Error> {
                        while let Some(job) = light.get(next.fetch_add(1, Ordering::Relaxed)) {
                            self.run_job(*job, plan, progress)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            for worker in workers {
                let panicked = |_| Error::Unknown("a case panicked".to_owned());
                worker.join().map_err(panicked)??;
            }
            Ok::<(), Error>(())
        })?;
        for job in heavy {
            self.run_job(job, plan, progress)?;
        }
        Ok(())
    }

    /// One case over one protocol: without a proxy, then with each.
    fn run_job(
        &self,
        number: usize,
        plan: &Plan,
        progress: &(dyn Fn(&Outcome, usize, usize) + Sync),
    ) -> Result<(), Error> {
        if self.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (case, family) = self.jobs[number];
        let result = self.outcomes_of(&case, family, plan, progress);
        match result {
            Ok(outcomes) => {
                let mut all = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                all.push((number, outcomes));
                Ok(())
            }
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn outcomes_of(
        &self,
        case: &Case,
        family: Family,
        plan: &Plan,
        progress: &(dyn Fn(&Outcome, usize, usize) + Sync),
    ) -> Result<Vec<Outcome>, Error> {
        let mut outcomes = Vec::new();
        let mut add = |outcome: Outcome| {
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(&outcome, done, self.total);
            outcomes.push(outcome);
        };
        let expected = match case.expected {
            Expected::WithoutProxy => {
                let without = proxies::without();
                let mut seen = perform(case, family, plan, &*without)?;
                if has_fault(&seen) {
                    // A single failure may be caused by other work on the machine.
                    seen = perform(case, family, plan, &*without)?;
                }
                if has_fault(&seen) {
                    return Err(Error::Baseline {
                        case: case.name,
                        family: family.name().to_owned(),
                        transcript: seen.to_string(),
                    });
                }
                add(Outcome {
                    case: case.name,
                    family,
                    proxy: without.name(),
                    expected: seen.clone(),
                    seen: seen.clone(),
                    verdict: Verdict::Same,
                });
                seen
            }
            Expected::Events(client, server) => Transcript {
                client: client.to_vec(),
                server: server.to_vec(),
                proxy: Vec::new(),
            },
        };
        for proxy in self.proxies.iter().filter(|proxy| proxy.name() != WITHOUT) {
            let seen = perform(case, family, plan, &**proxy)?;
            add(Outcome {
                case: case.name,
                family,
                proxy: proxy.name(),
                verdict: differences::compare(&**proxy, case.name, &expected, &seen),
                expected: expected.clone(),
                seen,
            });
        }
        Ok(outcomes)
    }

    fn into_outcomes(self) -> Vec<Outcome> {
        let mut outcomes = self
            .outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|(number, _)| *number);
        outcomes
            .into_iter()
            .flat_map(|(_, outcomes)| outcomes)
            .collect()
    }
}

/// The name of the run without a proxy.
pub(crate) const WITHOUT: &str = "none";

fn has_baseline(case: &Case) -> bool {
    matches!(case.expected, Expected::WithoutProxy)
}

/// Makes one run in a new network.
fn perform(
    case: &Case,
    family: Family,
    plan: &Plan,
    proxy: &dyn Proxy,
) -> Result<Transcript, Error> {
    let network = match proxy.is_overlay() {
        true => Network::with_overlay()?,
        false => Network::new()?,
    };
    let conditions: Conditions = case.conditions;
    let running = proxy.start(&network, conditions)?;
    let mut stage = Stage::new(&network, family, plan.quick, plan.limit, proxy, running);
    match (case.script)(&mut stage) {
        Ok(()) | Err(Stop::Here) => {}
        Err(Stop::Failed(error)) => return Err(error),
    }
    if !case.leaves_connections {
        stage.expect_nothing_left()?;
    }
    Ok(stage.transcript())
}

fn has_fault(transcript: &Transcript) -> bool {
    let events = transcript.client.iter().chain(&transcript.server);
    events.chain(&transcript.proxy).any(Event::is_fault)
}

/// The case with five thousand sessions has ten thousand sockets in this process.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    // If the limit cannot be raised, only that case fails, with an error message.
    let _ = setrlimit(Resource::Nofile, raised);
}
