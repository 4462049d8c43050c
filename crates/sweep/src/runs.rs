//! All runs of a sweep: which are stored, and how the others are made.

use std::ops::ControlFlow;

use midspan_path::Path;
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_records::{Quantity, RunKey, Store};
use midspan_sim::NoObserver;

use crate::measure::{FlowRun, Measure, measure_flows};
use crate::rows::{Failure, Row, RunRow};
use crate::run::{Part, StoredRun, key_of_point};
use crate::work::in_parallel_each;
use crate::{Case, Error};

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

/// All runs of a sweep, with the path of each. Runs have numbers from 0, in the order of the points.
#[derive(Debug)]
pub struct Runs {
    points: Vec<Point>,
    repetitions: usize,
}

/// Why no further run begins.
enum Stop {
    /// The caller stops the sweep.
    Asked,
    /// A run cannot be stored.
    Failed(Error),
}

/// A point in one case.
#[derive(Debug)]
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

impl Runs {
    /// The runs of these points: of each the swept values, the path with them, and its cases. Each point runs
    /// `repetitions` times (at least once) in each case.
    pub(crate) fn new(paths: Vec<(Vec<String>, Path, Vec<Case>)>, repetitions: u32) -> Self {
        let mut points = Vec::new();
        for (values, path, cases) in paths {
            points.extend(cases.into_iter().map(|case| Point {
                values: values.clone(),
                key: key_of_point(&path, &case),
                path: path.clone(),
                case,
            }));
        }
        Self {
            points,
            repetitions: repetitions.max(1) as usize,
        }
    }

    /// How many runs there are, and how many of them are stored.
    #[must_use]
    pub fn counts(&self, part: &Part, store: &Store<StoredRun>) -> Counts {
        let ended = self.stored(store);
        Counts {
            runs: ended.len(),
            stored: ended.iter().flatten().count(),
            left: missing(&ended, part).len(),
        }
    }

    /// The numbers of the runs of a part that are not stored, in order.
    #[must_use]
    pub fn missing(&self, part: &Part, store: &Store<StoredRun>) -> Vec<usize> {
        missing(&self.stored(store), part)
    }

    /// The stored keys of the runs of a part, in the order of the runs. Runs that are not stored have none.
    #[must_use]
    pub fn keys(&self, part: &Part) -> Vec<RunKey> {
        let runs = (0..self.points.len() * self.repetitions).filter(|run| part.has(*run));
        runs.filter_map(|run| self.points[run / self.repetitions].key_of(run % self.repetitions))
            .collect()
    }

    /// Makes all runs of a part that are not stored, and stores them. Returns the rows of the points
    /// all of whose runs have ended, up to the first point for which this is not so. `each` is called
    /// after each run, and with the rows of these points, in the points' order and as early as
    /// possible. If `each` returns `Break`, no further run begins.
    ///
    /// A run that fails does not end the others: see [`Row::failure`].
    ///
    /// # Errors
    /// A run cannot be stored.
    pub fn make(
        &self,
        execution: &Execution,
        store: &mut Store<StoredRun>,
        mut each: impl FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Row>, Error> {
        let (points, repetitions) = (&self.points, self.repetitions);
        let mut ended = self.stored(store);
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

    /// The stored runs of all points, in the order of the points and repetitions.
    fn stored(&self, store: &Store<StoredRun>) -> Vec<Option<Ended>> {
        let runs = 0..self.points.len() * self.repetitions;
        runs.map(|run| self.points[run / self.repetitions].stored(store, run % self.repetitions))
            .collect()
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
