//! A figure of a paper, by analysis, simulator and lab.

use std::collections::BTreeMap;

use midspan_records::Record;

use crate::laboratory::{Extent, LaboratoryError, Point};
use crate::{Effort, Error, Simulated};

type Analysis = fn() -> Result<Vec<Record>, Error>;
type Measuring = fn(&mut Simulating<'_>) -> Result<(), Error>;
type Laboratory = fn(Extent) -> Result<Vec<Point>, LaboratoryError>;

/// Figures, tables or sections of a paper that are made together. Each paper has a list of them:
/// nothing else names a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    /// Their names, such as "figure 10". A user can ask the simulator for each of them.
    pub(crate) items: &'static [&'static str],
    /// Computes the paper's equations.
    pub(crate) analysis: Option<Analysis>,
    /// Measures in the simulator.
    pub(crate) simulation: Option<Measuring>,
    /// Lists the measurements in the lab.
    pub(crate) lab: Option<Laboratory>,
}

impl Figure {
    /// Figures that nothing makes yet.
    pub(crate) const fn new(items: &'static [&'static str]) -> Self {
        Self {
            items,
            analysis: None,
            simulation: None,
            lab: None,
        }
    }

    pub(crate) const fn by_analysis(mut self, analysis: Analysis) -> Self {
        self.analysis = Some(analysis);
        self
    }

    pub(crate) const fn by_simulation(mut self, simulation: Measuring) -> Self {
        self.simulation = Some(simulation);
        self
    }

    pub(crate) const fn by_lab(mut self, lab: Laboratory) -> Self {
        self.lab = Some(lab);
        self
    }
}

/// A simulation that does not depend on other figures. It reports its progress to the caller.
pub(crate) type Simulation = fn(&Effort, &mut dyn FnMut(&str)) -> Result<Simulated, Error>;

/// The simulation of a paper while its figures are made, one after another.
pub(crate) struct Simulating<'a> {
    /// How much is simulated.
    pub(crate) effort: &'a Effort,
    progress: &'a mut dyn FnMut(&str),
    /// The results so far.
    pub(crate) out: Simulated,
    /// Numbers that a figure leaves for later ones of the same paper, by a name.
    pub(crate) kept: BTreeMap<&'static str, Vec<f64>>,
}

impl Simulating<'_> {
    /// Adds what `simulation` gives.
    ///
    /// # Errors
    /// Those of `simulation`.
    pub(crate) fn make(&mut self, simulation: Simulation) -> Result<(), Error> {
        let made = simulation(self.effort, self.progress)?;
        self.add(made);
        Ok(())
    }

    /// Reports a finished step to the caller, in a few words.
    pub(crate) fn progress(&mut self, step: &str) {
        (self.progress)(step);
    }

    /// The amount of work, and the receiver of progress reports.
    pub(crate) fn parts(&mut self) -> (&Effort, &mut dyn FnMut(&str)) {
        (self.effort, self.progress)
    }

    /// Adds what a figure gave.
    pub(crate) fn add(&mut self, made: Simulated) {
        self.out.records.extend(made.records);
        self.out.figures.extend(made.figures);
    }
}

/// Simulates those of `figures` that are asked for, in their order.
///
/// # Errors
/// A scenario cannot be set up, or ended before its time.
#[cfg(test)]
pub(crate) fn simulate(
    figures: &[Figure],
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    simulate_each(figures, effort, progress, &mut |_| ())
}

/// Simulates those of `figures` that are asked for, in their order. `made` is called with the names of
/// each that has been simulated.
///
/// # Errors
/// A scenario cannot be set up, or ended before its time.
pub(crate) fn simulate_each(
    figures: &[Figure],
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
    made: &mut dyn FnMut(&'static [&'static str]),
) -> Result<Simulated, Error> {
    let mut simulating = Simulating {
        effort,
        progress,
        out: Simulated::default(),
        kept: BTreeMap::new(),
    };
    for figure in figures {
        let is_wanted = figure.items.iter().any(|item| effort.wants(item));
        if let Some(simulation) = figure.simulation.filter(|_| is_wanted) {
            simulation(&mut simulating)?;
            made(figure.items);
        }
    }
    Ok(simulating.out)
}
