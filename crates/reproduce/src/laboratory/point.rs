//! The points of a paper's figures, each with the cases that are compared at it.

use midspan_lab::Case;
use midspan_report::Axis;

use super::statement::{Metric, Statement};

/// Repetitions of points with a bound: the smallest number that gives an interval of 95 %.
pub(crate) const JUDGED: u32 = 6;
/// Repetitions of points without a bound.
pub(crate) const SHOWN: u32 = 3;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// A few points of a few seconds each, to check that everything works.
    Quick,
    /// A selection of points that takes at most 45 minutes.
    #[default]
    Normal,
    /// The paper's whole grid.
    Full,
}

/// A point of a figure: the cases that are compared at it, and the statements about them.
#[derive(Debug, Clone)]
pub struct Point {
    /// The item to which the point belongs, such as "figure 8".
    pub item: &'static str,
    /// The point's name, unique among those that are measured together, such as "32 kbit/s up,
    /// queue 200".
    pub name: String,
    /// The point's plot, and its position on the horizontal axis.
    pub place: Option<Place>,
    /// The cases.
    pub cases: Vec<Case>,
    /// How often each case is measured.
    pub repetitions: u32,
    /// If the best case is searched: a case whose first run takes more than this multiple of the shortest first run, or
    /// fails, has no other runs.
    pub dismissed_beyond: Option<f64>,
    /// The goodputs in bit/s that the paper prints, each with the name of its case.
    pub printed: Vec<(&'static str, f64)>,
    /// The statements about the measurements.
    pub statements: Vec<Statement>,
    /// The metrics that are shown for every case, in addition to its statements.
    pub shown: &'static [Metric],
    /// Whether the simulator and the analysis run the cases too.
    pub beside: bool,
    /// How far the goodputs may be from the simulator's, as a share of the simulator's.
    pub near_simulation: Option<f64>,
}

impl Default for Point {
    fn default() -> Self {
        Self {
            item: "",
            name: String::new(),
            place: None,
            cases: Vec::new(),
            repetitions: 0,
            dismissed_beyond: None,
            printed: Vec::new(),
            statements: Vec::new(),
            shown: &[Metric::Goodput, Metric::Acks],
            beside: true,
            near_simulation: None,
        }
    }
}

impl Point {
    /// The runs of this point.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&Self, &Case, u32)> {
        let of = move |repetition| self.cases.iter().map(move |case| (self, case, repetition));
        (0..self.repetitions).flat_map(of)
    }

    /// The name in records of a case at this point.
    pub(crate) fn name_of(&self, case: &Case) -> String {
        format!("{}, {}", self.name, case.name)
    }
}

/// The position of a point in a plot of goodput.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The plot's title. Points with the same title are in the same plot.
    pub plot: String,
    /// The horizontal axis, the same for all points of a plot.
    pub axis: Axis,
    /// The position on the axis.
    pub at: f64,
}

impl Place {
    /// A position by the upstream rate in kbit/s.
    pub(crate) fn upstream(plot: String, rate: f64) -> Self {
        let axis = Axis::new("upstream", "kbit/s");
        Self {
            plot,
            axis,
            at: rate,
        }
    }

    /// A position on a logarithmic axis.
    pub(crate) fn logarithmic(plot: String, axis: (&str, &str), at: f64) -> Self {
        let axis = Axis::new(axis.0, axis.1).on_a_logarithmic_scale();
        Self { plot, axis, at }
    }
}

/// All runs of the points, in their order. The cases of a point alternate within a repetition. All
/// points are measured once before one is measured again, so that a measurement that is stopped has
/// results of each point.
pub(super) fn runs(points: &[Point]) -> Vec<(&Point, &Case, u32)> {
    let mut runs: Vec<_> = points.iter().flat_map(Point::runs).collect();
    runs.sort_by_key(|(_, _, repetition)| *repetition);
    runs
}

/// The number of repetitions of a point, which depends on whether the point has a bound.
pub(crate) const fn repetitions(judged: bool, extent: Extent) -> u32 {
    match (extent, judged) {
        (Extent::Quick, _) => 1,
        (Extent::Normal, false) => SHOWN,
        _ => JUDGED,
    }
}

/// Seconds that a download of `megabytes` takes if one ACK of `ack` bytes goes upstream for
/// `per_ack` segments. Rates in kbit/s.
pub(crate) fn expected(megabytes: f64, down: f64, up: f64, ack: f64, per_ack: f64) -> f64 {
    let by_acks = up / (ack * 8.0) * per_ack * 1448.0 * 8.0;
    let rate = by_acks.min(down * 0.965);
    megabytes * 8000.0 / rate
}
