//! What a sweep runs.

use midspan_document::{Override, Source, Sweep, overrides};
use midspan_path::Path;

use crate::runs::Runs;
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

    /// All runs, each with its path.
    ///
    /// # Errors
    /// The path file, an override or a swept value is wrong; a path does not have an overlay route that is
    /// to be compared.
    pub fn runs(&self) -> Result<Runs, Error> {
        let mut points = Vec::new();
        for (values, path) in self.paths()? {
            let cases = self.cases_on(&path)?;
            points.push((values, path, cases));
        }
        Ok(Runs::new(points, self.repetitions))
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
