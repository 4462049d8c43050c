//! Simulated runs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, Instant};

use midspan_document::Sweep;
use midspan_records::Store;
use midspan_sweep::{
    self as sweep, Execution, Part, Plan, RUNS, RunRow, Shard, Status, Step, StoredRun, column_of,
};
use midspan_units::si_value;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{located, storing, sweeping, value};
use crate::path::{Path, written};
use crate::table::{Column, Table};

/// Time between two reports of the progress.
const BETWEEN_REPORTS: Duration = Duration::from_millis(100);

/// The runs of a sweep: every combination of swept values, without proxies and with them, with each
/// seed. Runs have numbers from 0. `midspan.Sweep` is the interface for users.
#[pyclass(frozen, module = "midspan._midspan")]
#[derive(Debug)]
pub struct Runs {
    plan: Plan,
    runs: sweep::Runs,
}

fn open(store: Option<&FilePath>) -> PyResult<Store<StoredRun>> {
    match store {
        Some(name) => Store::open(name, RUNS).map_err(|error| storing(&error)),
        None => Ok(Store::in_memory(RUNS)),
    }
}

fn execution(threads: Option<usize>, part: Part) -> Execution {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    Execution {
        threads: threads.unwrap_or_else(cores).max(1),
        part,
        commit: option_env!("MIDSPAN_COMMIT").unwrap_or_default().to_owned(),
    }
}

/// Reports to a Python function, and looks for Ctrl-C.
struct Watch {
    progress: Option<Py<PyAny>>,
    total: usize,
    done: usize,
    last: Option<Instant>,
    failed: Option<PyErr>,
}

impl Watch {
    fn run_has_ended(&mut self) -> ControlFlow<()> {
        self.done += 1;
        let is_due = self
            .last
            .is_none_or(|last| last.elapsed() >= BETWEEN_REPORTS);
        if !is_due && self.done < self.total {
            return ControlFlow::Continue(());
        }
        self.last = Some(Instant::now());
        let told = Python::attach(|py| {
            py.check_signals()?;
            if let Some(progress) = &self.progress {
                progress.call1(py, (self.done, self.total))?;
            }
            Ok(())
        });
        match told {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// What a call has made.
struct Made {
    /// Number of runs that were not stored before.
    runs: usize,
    /// The runs of all complete points, with those that were stored before.
    rows: Vec<RunRow>,
}

impl Runs {
    /// Makes the runs of a part that are not stored.
    fn make(
        &self,
        py: Python<'_>,
        execution: &Execution,
        store: &mut Store<StoredRun>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Made> {
        let counts = self.runs.counts(&execution.part, store);
        let mut watch = Watch {
            progress,
            total: counts.left,
            done: 0,
            last: None,
            failed: None,
        };
        let mut rows = Vec::new();
        let made = py.detach(|| {
            self.runs.make(execution, store, |step| match step {
                Step::Run => watch.run_has_ended(),
                Step::Point { runs, .. } => {
                    rows.extend(runs.to_vec());
                    ControlFlow::Continue(())
                }
            })
        });
        made.map_err(|error| sweeping(py, &error))?;
        match watch.failed {
            Some(error) => Err(error),
            None => Ok(Made {
                runs: watch.done,
                rows,
            }),
        }
    }
}

#[pymethods]
impl Runs {
    #[new]
    #[pyo3(signature = (path, over, repetitions, flows, seed))]
    fn new(
        py: Python<'_>,
        path: &Path,
        over: &Bound<'_, PyDict>,
        repetitions: u32,
        flows: Vec<String>,
        seed: Option<u64>,
    ) -> PyResult<Self> {
        let mut sweeps = Vec::new();
        for (key, values) in over {
            let key: String = key.extract()?;
            let values = match values.extract::<String>() {
                Ok(text) => text,
                Err(_) => {
                    let values: Vec<String> = values
                        .try_iter()?
                        .map(|value| written(&value?))
                        .collect::<PyResult<_>>()?;
                    if values.iter().any(|text| text.contains(',')) {
                        return Err(value(format!(
                            "{key}: a swept value cannot contain a comma"
                        )));
                    }
                    values.join(",")
                }
            };
            let sweep = Sweep::parse("over", &format!("{key}={values}"));
            sweeps.push(sweep.map_err(|error| located(py, &error))?);
        }
        if repetitions == 0 {
            return Err(value("repetitions must be at least 1"));
        }
        let plan = Plan {
            source: path.source.clone(),
            overrides: path.overrides.clone(),
            sweeps,
            cases: Vec::new(),
            flows,
            repetitions,
            seed,
        };
        // A wrong key or value is an error here, not later.
        let runs = plan.runs().map_err(|error| sweeping(py, &error))?;
        Ok(Self { plan, runs })
    }

    /// The numbers of the runs that a store lacks.
    #[pyo3(signature = (store = None))]
    fn missing(&self, py: Python<'_>, store: Option<PathBuf>) -> PyResult<Vec<usize>> {
        let store = open(store.as_deref())?;
        Ok(py.detach(|| self.runs.missing(&Part::All, &store)))
    }

    /// Makes some runs; returns them as lines.
    #[pyo3(signature = (numbers, threads = None))]
    fn lines(
        &self,
        py: Python<'_>,
        numbers: BTreeSet<usize>,
        threads: Option<usize>,
    ) -> PyResult<Vec<String>> {
        let mut made = Store::in_memory(RUNS);
        let execution = execution(threads, Part::Runs(numbers));
        self.make(py, &execution, &mut made, None)?;
        made.lines().map_err(|error| storing(&error))
    }

    /// Makes some runs, those that the folder lacks, and writes each to the folder as soon as it has
    /// ended; returns how many were made. Of the folder, only the files of these runs are read.
    #[pyo3(signature = (numbers, folder, threads = None))]
    fn write(
        &self,
        py: Python<'_>,
        numbers: BTreeSet<usize>,
        folder: PathBuf,
        threads: Option<usize>,
    ) -> PyResult<usize> {
        let execution = execution(threads, Part::Runs(numbers));
        let keys = self.runs.keys(&execution.part);
        let store = Store::open_some(&folder, RUNS, &keys);
        let mut store = store.map_err(|error| storing(&error))?;
        Ok(self.make(py, &execution, &mut store, None)?.runs)
    }

    /// Makes the runs of a part, such as "0/4", that the store lacks; returns how many were made.
    #[pyo3(signature = (shard, store, threads = None, progress = None))]
    fn run_shard(
        &self,
        py: Python<'_>,
        shard: &str,
        store: PathBuf,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<usize> {
        let shard: Shard = shard.parse().map_err(value)?;
        let mut store = open(Some(&store))?;
        let execution = execution(threads, Part::Shard(shard));
        Ok(self.make(py, &execution, &mut store, progress)?.runs)
    }

    /// Makes all runs that neither the store nor `lines` has; returns a row for each quantity of each
    /// run. `lines` are added to the store.
    #[pyo3(signature = (store = None, lines = Vec::new(), threads = None, progress = None))]
    fn run(
        &self,
        py: Python<'_>,
        store: Option<PathBuf>,
        lines: Vec<String>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Table> {
        let mut store = open(store.as_deref())?;
        for line in &lines {
            store.add_line(line).map_err(|error| storing(&error))?;
        }
        let execution = execution(threads, Part::All);
        let made = self.make(py, &execution, &mut store, progress)?;
        table(&self.plan, &made.rows)
    }
}

/// A file or folder of finished runs, to which runs from elsewhere are added.
#[pyclass(module = "midspan._midspan")]
#[derive(Debug)]
pub struct RunStore {
    store: Store<StoredRun>,
}

#[pymethods]
impl RunStore {
    #[new]
    fn new(name: PathBuf) -> PyResult<Self> {
        let store = open(Some(&name))?;
        Ok(Self { store })
    }

    /// Adds runs that `Runs.lines` has returned.
    fn add(&mut self, lines: Vec<String>) -> PyResult<()> {
        let mut lines = lines.iter();
        lines.try_for_each(|line| self.store.add_line(line).map_err(|error| storing(&error)))
    }
}

/// A line of the table.
struct Line<'a> {
    run: &'a RunRow,
    quantity: Option<&'a str>,
    unit: Option<&'a str>,
    value: Option<f64>,
}

fn lines(run: &RunRow) -> Vec<Line<'_>> {
    let line = |quantity, unit, value| Line {
        run,
        quantity,
        unit,
        value,
    };
    match &run.outcome {
        Ok(measures) => measures
            .iter()
            .map(|one| {
                line(
                    Some(&*one.quantity.name),
                    Some(one.quantity.unit),
                    Some(one.value),
                )
            })
            .collect(),
        Err(_) => vec![line(None, None, None)],
    }
}

/// The columns are those of `midspan sim --csv --each-run`.
fn table(plan: &Plan, runs: &[RunRow]) -> PyResult<Table> {
    let lines: Vec<Line<'_>> = runs.iter().flat_map(lines).collect();
    let text =
        |of: &dyn Fn(&Line<'_>) -> Option<String>| Column::Text(lines.iter().map(of).collect());
    let mut columns = Vec::new();
    for (index, sweep) in plan.sweeps.iter().enumerate() {
        let typed = text(&|line| line.run.point.get(index).cloned());
        columns.push((sweep.key().to_owned(), typed));
    }
    for (index, sweep) in plan.sweeps.iter().enumerate() {
        let Some(name) = column_of(sweep) else {
            continue;
        };
        let number = |line: &Line<'_>| Some(si_value(line.run.point.get(index)?)?.0);
        columns.push((name, Column::Number(lines.iter().map(number).collect())));
    }
    let status = |line: &Line<'_>| match line.run.outcome {
        Ok(_) => Status::Ok.name(),
        Err(_) => Status::Failed.name(),
    };
    let seeds = lines.iter().map(|line| line.run.seed).collect();
    let values = lines.iter().map(|line| line.value).collect();
    columns.extend([
        ("flow".to_owned(), text(&|line| Some(line.run.flow.clone()))),
        (
            "case".to_owned(),
            text(&|line| Some(line.run.case.to_string())),
        ),
        ("seed".to_owned(), Column::Whole(seeds)),
        (
            "quantity".to_owned(),
            text(&|line| line.quantity.map(str::to_owned)),
        ),
        (
            "unit".to_owned(),
            text(&|line| line.unit.map(str::to_owned)),
        ),
        ("value".to_owned(), Column::Number(values)),
        (
            "status".to_owned(),
            text(&|line| Some(status(line).to_owned())),
        ),
        (
            "reason".to_owned(),
            text(&|line| line.run.outcome.clone().err()),
        ),
        (
            "commit".to_owned(),
            text(&|line| Some(line.run.commit.clone())),
        ),
    ]);
    Table::new(columns)
}

/// Joins files and folders of finished runs to one new file, sorted by their keys; returns the number
/// of runs.
#[pyfunction]
pub fn merge(stores: Vec<PathBuf>, output: PathBuf) -> PyResult<usize> {
    let merged = midspan_records::merge(&stores, &output).map_err(|error| storing(&error))?;
    Ok(merged.rows)
}
