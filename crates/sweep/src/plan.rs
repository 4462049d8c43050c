//! All runs of a sweep, and their results.

use midspan_document::{Override, Source, Sweep, overrides};
use midspan_path::Path;
use midspan_records::Quantity;
use midspan_sim::NoObserver;

use crate::Error;
use crate::measure::{Measure, measure};
use crate::work::in_parallel;

/// The runs of a sweep.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The path file.
    pub source: Source,
    /// The values that every point has instead of the file's.
    pub overrides: Vec<Override>,
    /// The swept keys: every combination of values is a point.
    pub sweeps: Vec<Sweep>,
    /// Only these flows; all flows if the list is empty.
    pub flows: Vec<String>,
    /// How often each point runs, each time with another seed.
    pub repetitions: u32,
    /// The first seed; `None`: that of the path file.
    pub seed: Option<u64>,
    /// Number of threads.
    pub threads: usize,
}

/// One quantity of one flow at one point.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The value of each swept key, in the order of the sweeps.
    pub point: Vec<String>,
    /// Whether the path's proxies ran.
    pub proxies: bool,
    /// The flow's name.
    pub flow: String,
    /// The quantity that was measured.
    pub quantity: &'static Quantity,
    /// One value for each repetition.
    pub values: Vec<f64>,
    /// What the reader must know about some of the values.
    pub note: Option<&'static str>,
}

/// A point, with proxies or without.
struct Point {
    values: Vec<String>,
    path: Path,
    proxies: bool,
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

    /// Number of runs.
    ///
    /// # Errors
    /// The path file, an override or a swept value is wrong.
    pub fn runs(&self) -> Result<usize, Error> {
        Ok(self.points()?.len() * self.repetitions as usize)
    }

    /// Runs all points. `done` is called after each run.
    ///
    /// # Errors
    /// A value cannot be set, a path cannot be simulated, or a flow can never finish.
    pub fn run(&self, mut done: impl FnMut()) -> Result<Vec<Row>, Error> {
        let points = self.points()?;
        let repetitions = self.repetitions.max(1) as usize;
        let runs = in_parallel(
            points.len() * repetitions,
            self.threads,
            |run| {
                let point = &points[run / repetitions];
                let mut path = point.path.clone();
                // The same seeds at every point: only the swept values differ.
                path.seed = path.seed.wrapping_add((run % repetitions) as u64);
                measure(&path, point.proxies, |_| Ok(None::<NoObserver>), |_, _| ())
            },
            |_| done(),
        )?;
        let mut rows = Vec::new();
        for (point, runs) in points.iter().zip(runs.chunks(repetitions)) {
            rows.extend(point.rows(runs));
        }
        Ok(rows)
    }

    fn points(&self) -> Result<Vec<Point>, Error> {
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
        let mut points = Vec::new();
        for combination in combinations {
            let (values, changes): (Vec<String>, Vec<Override>) =
                combination.into_iter().cloned().unzip();
            let path = self.choose(overrides::read_with(&source, &changes, Path::read)?)?;
            let has_proxies = path.proxies().next().is_some();
            for proxies in [false, true] {
                if !proxies || has_proxies {
                    points.push(Point {
                        values: values.clone(),
                        path: path.clone(),
                        proxies,
                    });
                }
            }
        }
        Ok(points)
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

impl Point {
    /// The rows of its runs, one for each quantity that every run has.
    fn rows(&self, runs: &[Vec<Measure>]) -> Vec<Row> {
        let Some(first) = runs.first() else {
            return Vec::new();
        };
        let values_of = |wanted: &Measure| {
            let found = |run: &Vec<Measure>| {
                run.iter()
                    .find(|one| one.flow == wanted.flow && one.quantity == wanted.quantity)
                    .map(|one| one.value)
            };
            runs.iter().filter_map(found).collect()
        };
        let note_of = |wanted: &Measure| {
            let of_flow = runs.iter().flatten().filter(|one| one.flow == wanted.flow);
            of_flow.filter_map(|one| one.note).next()
        };
        first
            .iter()
            .map(|measure| Row {
                point: self.values.clone(),
                proxies: self.proxies,
                flow: self.path.flows[measure.flow].name.clone(),
                quantity: measure.quantity,
                values: values_of(measure),
                note: note_of(measure),
            })
            .collect()
    }
}
