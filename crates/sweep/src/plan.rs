//! All runs of a sweep, and their results.

use std::ops::ControlFlow;

use midspan_document::{Override, Source, Sweep, overrides};
use midspan_path::Path;
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_records::{Quantity, RunKey, Store};
use midspan_sim::NoObserver;

use crate::measure::{FlowRun, Measure, measure_flows};
use crate::run::{Part, StoredRun, key_of_point};
use crate::work::in_parallel_each;
use crate::{Case, Error};

/// The runs of a sweep.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The path file.
    pub source: Source,
    /// The values that every point has instead of the file's.
    pub overrides: Vec<Override>,
    /// The swept keys: every combination of values is a point.
    pub sweeps: Vec<Sweep>,
    /// What carries the flows, to be compared; if the list is empty, [`Case::by_default`].
    pub cases: Vec<Case>,
    /// Only these flows; all flows if the list is empty.
    pub flows: Vec<String>,
    /// How often each point runs, each time with another seed.
    pub repetitions: u32,
    /// The first seed; `None`: that of the path file.
    pub seed: Option<u64>,
}

/// How a call makes runs. The results do not depend on it.
#[derive(Debug, Clone)]
pub struct Execution {
    /// Number of threads.
    pub threads: usize,
    /// The runs that are made.
    pub part: Part,
    /// The commit of Midspan, which is stored with each run; empty if the build has none.
    pub commit: String,
}

/// One quantity of one flow at one point. A flow of which no run succeeded has one row, without
/// values.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The value of each swept key, in the order of the sweeps.
    pub point: Vec<String>,
    /// What carried the flows.
    pub case: Case,
    /// The flow's name.
    pub flow: String,
    /// The quantity that was measured.
    pub quantity: &'static Quantity,
    /// One value for each repetition that succeeded.
    pub values: Vec<f64>,
    /// The runs that failed, if there are any.
    pub failure: Option<Failure>,
}

/// Runs of one flow at one point that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Number of runs that failed.
    pub failed: usize,
    /// Number of runs.
    pub runs: usize,
    /// The seed of the first of them.
    pub seed: u64,
    /// Why the first of them failed.
    pub reason: String,
}

/// One flow of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The value of each swept key, in the order of the sweeps.
    pub point: Vec<String>,
    /// What carried the flows.
    pub case: Case,
    /// The best overlay route for the flow in this run, if the case is the oracle; the chosen one, if nodes
    /// choose.
    pub route: Option<String>,
    /// The flow's name.
    pub flow: String,
    /// The seed of the run.
    pub seed: u64,
    /// What was measured; or why the flow can never finish.
    pub outcome: Result<Vec<Measure>, String>,
    /// The commit of Midspan that made the run.
    pub commit: String,
}

/// How many runs a sweep has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// All runs.
    pub runs: usize,
    /// Runs that are stored.
    pub stored: usize,
    /// Runs of the part that are not stored.
    pub left: usize,
}

/// How a row came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Every run succeeded.
    Ok,
    /// Some runs failed; the values are those of the others.
    Partial,
    /// Every run failed.
    Failed,
}

impl Status {
    /// The name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

impl Row {
    /// How the row came about.
    #[must_use]
    pub const fn status(&self) -> Status {
        match (&self.failure, self.values.is_empty()) {
            (None, _) => Status::Ok,
            (Some(_), false) => Status::Partial,
            (Some(_), true) => Status::Failed,
        }
    }

    /// Why runs failed, if any did.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(format!(
            "{} of {} runs failed, the first with seed {}: {}",
            failure.failed, failure.runs, failure.seed, failure.reason
        ))
    }
}

/// The progress of a sweep.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// A run has ended that was not stored before.
    Run,
    /// All runs of a point in one case have ended, and so have those of all points before it.
    Point {
        /// One row for each quantity of each flow.
        rows: &'a [Row],
        /// One row for each flow of each run.
        runs: &'a [RunRow],
    },
}

/// Why no further run begins.
enum Stop {
    /// The caller stops the sweep.
    Asked,
    /// A run cannot be stored.
    Failed(Error),
}

/// A point in one case.
struct Point {
    values: Vec<String>,
    path: Path,
    case: Case,
    /// The stored key of its runs, without the seed.
    key: Option<RunKey>,
}

/// A run that has ended, or was stored.
struct Ended {
    flows: Vec<FlowRun>,
    commit: String,
}

impl Plan {
    /// The path with all overrides, but without swept values.
    ///
    /// # Errors
    /// The path file or an override is wrong.
    pub fn path(&self) -> Result<Path, Error> {
        self.choose(overrides::read_with(
            &self.source,
            &self.overrides,
            Path::read,
        )?)
    }

    /// How many runs there are, and how many of them are stored.
    ///
    /// # Errors
    /// The path file, an override or a swept value is wrong.
    pub fn counts(&self, part: &Part, store: &Store<StoredRun>) -> Result<Counts, Error> {
        let points = self.points()?;
        let ended = self.stored(&points, store);
        Ok(Counts {
            runs: ended.len(),
            stored: ended.iter().flatten().count(),
            left: missing(&ended, part).len(),
        })
    }

    /// The numbers of the runs of a part that are not stored, in order.
    ///
    /// # Errors
    /// The path file, an override or a swept value is wrong.
    pub fn missing(&self, part: &Part, store: &Store<StoredRun>) -> Result<Vec<usize>, Error> {
        let points = self.points()?;
        Ok(missing(&self.stored(&points, store), part))
    }

    /// Makes all runs of a part that are not stored, and stores them. Returns the rows of the points
    /// all of whose runs have ended, up to the first point for which this is not so. `each` is called
    /// after each run, and with the rows of these points, in the points' order and as early as
    /// possible. If `each` returns `Break`, no further run begins.
    ///
    /// A run that fails does not end the others: see [`Row::failure`].
    ///
    /// # Errors
    /// The path file, an override or a swept value is wrong; this is checked before the first run. Or
    /// a run cannot be stored.
    pub fn run(
        &self,
        execution: &Execution,
        store: &mut Store<StoredRun>,
        mut each: impl FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Row>, Error> {
        let points = self.points()?;
        let repetitions = self.repetitions();
        let mut ended = self.stored(&points, store);
        let missing = missing(&ended, &execution.part);
        let mut rows: Vec<Row> = Vec::new();
        let mut complete = 0;
        let mut tell = |step: Step<'_>| match each(step) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Asked),
        };
        let mut tell_points = |ended: &[Option<Ended>], tell: &mut dyn FnMut(Step<'_>) -> _| {
            while let Some(point) = points.get(complete) {
                let runs = &ended[complete * repetitions..][..repetitions];
                let runs: Vec<&Ended> = runs.iter().flatten().collect();
                if runs.len() < repetitions {
                    break;
                }
                complete += 1;
                let first = rows.len();
                rows.extend(point.rows(&runs));
                tell(Step::Point {
                    rows: &rows[first..],
                    runs: &point.run_rows(&runs),
                })?;
            }
            Ok(())
        };
        let mut stop = tell_points(&ended, &mut tell).err();
        if stop.is_none() {
            let made = in_parallel_each(
                missing.len(),
                execution.threads,
                |index| {
                    let run = missing[index];
                    Ok(points[run / repetitions].run(run % repetitions))
                },
                |index, flows: &Vec<FlowRun>| {
                    let run = missing[index];
                    let (point, repetition) = (&points[run / repetitions], run % repetitions);
                    if let Some(key) = point.key_of(repetition) {
                        let row = StoredRun::new(&point.path, &execution.commit, flows);
                        let stored = store.put(&key, row);
                        stored.map_err(|error| Stop::Failed(error.into()))?;
                    }
                    ended[run] = Some(Ended {
                        flows: flows.clone(),
                        commit: execution.commit.clone(),
                    });
                    tell(Step::Run)?;
                    tell_points(&ended, &mut tell)
                },
            );
            stop = made.err();
        }
        match stop {
            Some(Stop::Failed(error)) => Err(error),
            // The rows of the points that are complete are the result in both cases.
            Some(Stop::Asked) | None => Ok(rows),
        }
    }

    fn repetitions(&self) -> usize {
        self.repetitions.max(1) as usize
    }

    /// The stored runs of all points, in the order of the points and repetitions.
    fn stored(&self, points: &[Point], store: &Store<StoredRun>) -> Vec<Option<Ended>> {
        let repetitions = self.repetitions();
        let runs = 0..points.len() * repetitions;
        runs.map(|run| points[run / repetitions].stored(store, run % repetitions))
            .collect()
    }

    /// The points: the value of each swept key, in the order of the sweeps, and the path with these
    /// values and all overrides.
    ///
    /// # Errors
    /// The path file, an override or a swept value is wrong.
    pub fn paths(&self) -> Result<Vec<(Vec<String>, Path)>, Error> {
        let mut combinations: Vec<Vec<&(String, Override)>> = vec![Vec::new()];
        for sweep in &self.sweeps {
            combinations = combinations
                .iter()
                .flat_map(|known| {
                    sweep.values().iter().map(|value| {
                        let mut longer = known.clone();
                        longer.push(value);
                        longer
                    })
                })
                .collect();
        }
        // Every point begins with the overrides that all have.
        let mut source = self.source.clone();
        for change in &self.overrides {
            source = change.apply(&source, Path::read)?.0;
        }
        combinations
            .into_iter()
            .map(|combination| {
                let (values, changes): (Vec<String>, Vec<Override>) =
                    combination.into_iter().cloned().unzip();
                let path = overrides::read_with(&source, &changes, Path::read)?;
                Ok((values, self.choose(path)?))
            })
            .collect()
    }

    fn points(&self) -> Result<Vec<Point>, Error> {
        let mut points = Vec::new();
        for (values, path) in self.paths()? {
            for case in self.cases_on(&path)? {
                points.push(Point {
                    values: values.clone(),
                    key: key_of_point(&path, &case),
                    path: path.clone(),
                    case,
                });
            }
        }
        Ok(points)
    }

    /// The cases on a path. One without proxies has no case with them.
    ///
    /// # Errors
    /// The path does not have an overlay route that is to be compared.
    pub fn cases_on(&self, path: &Path) -> Result<Vec<Case>, Error> {
        let has_proxies = path.proxies().next().is_some();
        if self.cases.is_empty() {
            return Ok(Case::by_default(has_proxies));
        }
        let mut cases: Vec<Case> = Vec::new();
        for case in &self.cases {
            for case in case.on(path).map_err(|error| Error::Written {
                given: case.to_string(),
                problem: format!("does not fit the path \"{}\": {error}", path.name),
            })? {
                let is_empty = case == Case::Midspan && !has_proxies;
                if !is_empty && !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
        Ok(cases)
    }

    /// Keeps only the selected flows, and sets the seed.
    fn choose(&self, mut path: Path) -> Result<Path, Error> {
        if let Some(seed) = self.seed {
            path.seed = seed;
        }
        for name in &self.flows {
            if !path.flows.iter().any(|flow| flow.name == *name) {
                let known: Vec<&str> = path.flows.iter().map(|flow| flow.name.as_str()).collect();
                return Err(Error::NoSuchPlace {
                    key: format!("flow {name}"),
                    part: name.clone(),
                    place: format!("among the flows, which are {}", known.join(", ")),
                    near: midspan_document::nearest(name, known).map(str::to_owned),
                });
            }
        }
        if !self.flows.is_empty() {
            path.flows.retain(|flow| self.flows.contains(&flow.name));
        }
        if path.flows.is_empty() {
            return Err(Error::Written {
                given: path.name,
                problem: "has no flow, so there is nothing to run: add a [[flow]]".into(),
            });
        }
        Ok(path)
    }
}

/// The numbers of the runs of a part that have not ended.
fn missing(ended: &[Option<Ended>], part: &Part) -> Vec<usize> {
    let runs = ended.iter().enumerate();
    runs.filter(|(run, ended)| ended.is_none() && part.has(*run))
        .map(|(run, _)| run)
        .collect()
}

impl Point {
    /// Seeds are the same at every point: only the swept values differ.
    const fn seed(&self, repetition: usize) -> u64 {
        self.path.seed.wrapping_add(repetition as u64)
    }

    fn key_of(&self, repetition: usize) -> Option<RunKey> {
        Some(self.key.clone()?.with("seed", self.seed(repetition)))
    }

    fn stored(&self, store: &Store<StoredRun>, repetition: usize) -> Option<Ended> {
        // Without any row, no key needs to be computed.
        if store.is_empty() {
            return None;
        }
        let found = store.get(&self.key_of(repetition)?)?;
        Some(Ended {
            flows: found.flows(&self.path)?,
            commit: found.commit.clone(),
        })
    }

    /// Makes one run. If the simulator refuses the path, every flow has failed.
    fn run(&self, repetition: usize) -> Vec<FlowRun> {
        let mut path = self.path.clone();
        path.seed = self.seed(repetition);
        let made = measure_flows(&path, &self.case, |_| Ok(None::<NoObserver>), |_, _| ());
        made.unwrap_or_else(|error| {
            let failed = |flow| FlowRun {
                flow,
                outcome: Err(error.to_string()),
                route: None,
            };
            (0..path.flows.len()).map(failed).collect()
        })
    }

    /// Each flow of its runs, which are in the order of the repetitions.
    fn run_rows(&self, runs: &[&Ended]) -> Vec<RunRow> {
        let mut rows = Vec::new();
        for (repetition, run) in runs.iter().enumerate() {
            rows.extend(run.flows.iter().map(|flow| RunRow {
                point: self.values.clone(),
                case: self.case.clone(),
                route: flow.route.clone(),
                flow: self.path.flows[flow.flow].name.clone(),
                seed: self.seed(repetition),
                outcome: flow.outcome.clone(),
                commit: run.commit.clone(),
            }));
        }
        rows
    }

    /// The rows of its runs, which are in the order of the repetitions.
    fn rows(&self, runs: &[&Ended]) -> Vec<Row> {
        let flows = 0..self.path.flows.len();
        flows.flat_map(|flow| self.rows_of(flow, runs)).collect()
    }

    /// The rows of one flow: one for each quantity that every run has.
    fn rows_of(&self, flow: usize, runs: &[&Ended]) -> Vec<Row> {
        let (mut measured, mut failure) = (Vec::new(), None::<Failure>);
        for (repetition, run) in runs.iter().enumerate() {
            let found = run.flows.iter().find(|run| run.flow == flow);
            match found.map(|run| &run.outcome) {
                Some(Ok(measures)) => measured.push(measures),
                Some(Err(reason)) => {
                    let failure = failure.get_or_insert_with(|| Failure {
                        failed: 0,
                        runs: runs.len(),
                        seed: self.seed(repetition),
                        reason: reason.clone(),
                    });
                    failure.failed += 1;
                }
                None => {}
            }
        }
        let all = || measured.iter().copied().flatten();
        let row = |quantity: &'static Quantity| Row {
            point: self.values.clone(),
            case: self.case.clone(),
            flow: self.path.flows[flow].name.clone(),
            quantity,
            values: all()
                .filter(|one| one.quantity == quantity)
                .map(|one| one.value)
                .collect(),
            failure: failure.clone(),
        };
        match measured.first() {
            Some(first) => first
                .iter()
                .map(|one: &Measure| row(one.quantity))
                .collect(),
            None if self.path.flows[flow].workload.total_size().is_some() => {
                vec![row(&COMPLETION_TIME)]
            }
            None => vec![row(&GOODPUT)],
        }
    }
}
