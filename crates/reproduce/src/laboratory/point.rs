//! The plan of a measurement: points, each with the cases that are compared at it.

use midspan_document::Source;
use midspan_lab::{Case, ThinOptions};
use midspan_path::{Acknowledge, NodeKind, Path, Workload};
use midspan_policy::AccessLink;
use midspan_policy::oversized_segments::SegmentSizes;
use midspan_policy::sending_ahead::SendAhead;
use midspan_records::RunKey;
use midspan_report::Axis;
use midspan_units::TimeSpan;

use super::LaboratoryError;
use super::statement::{Metric, Statement};

/// Seconds of a run apart from its transfers: for the network, the servers and the proxy.
const SET_UP: f64 = 3.0;
/// The largest number of packets that ACE thinning acknowledges with one ACK.
const PACKETS_PER_ACK: u32 = 5;

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

/// The measurements of one paper.
#[derive(Debug, Clone)]
pub struct LabPlan {
    /// The points, in the order in which they are measured.
    pub points: Vec<Point>,
    /// The metrics that are shown for every case, in addition to its statements.
    pub shown: &'static [Metric],
    /// Whether the simulator and the analysis run the cases too.
    pub beside: bool,
}

/// A point of a figure: a path, and the cases that are compared on it.
#[derive(Debug, Clone)]
pub struct Point {
    /// The item to which the point belongs, such as "figure 8".
    pub item: &'static str,
    /// The point's name, unique in the plan, such as "32 kbit/s up, queue 200".
    pub name: String,
    /// The point's plot, and its position on the horizontal axis.
    pub place: Option<Place>,
    /// The cases.
    pub arms: Vec<Arm>,
    /// How often each case is measured.
    pub repetitions: u32,
    /// The statements about the measurements.
    pub statements: Vec<Statement>,
}

impl Point {
    /// The name in records of a case at this point.
    pub(crate) fn case(&self, arm: &Arm) -> String {
        format!("{}, {}", self.name, arm.name)
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

/// One of the cases that are compared at a point.
#[derive(Debug, Clone)]
pub struct Arm {
    /// The case's name, unique in its point, such as "normal segments".
    pub name: &'static str,
    /// The path, with its hosts, proxies and flows.
    pub path: Path,
    /// What runs at the places of the proxies.
    pub case: Case,
    /// How the clients thin ACKs, if they do.
    pub thin: Option<ThinOptions>,
    /// A transfer through the same proxies before the measured ones. It is not measured.
    pub discarded: Option<Workload>,
    /// How long the transfers are expected to take, in seconds.
    pub seconds: f64,
    /// The goodput that the paper prints, in bit/s.
    pub paper: Option<f64>,
    /// How far the goodput may be from the simulator's, as a share of the simulator's.
    pub within: Option<f64>,
}

impl Arm {
    /// A case with Midspan at the places of the proxies.
    pub(crate) const fn midspan(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, Case::Midspan, seconds)
    }

    /// A case with plain routing.
    pub(crate) const fn direct(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, Case::Direct, seconds)
    }

    /// A case with plain routing and thinned ACKs.
    pub(crate) const fn thin(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, Case::Thin, seconds)
    }

    /// A case with `case` at the places of the proxies.
    pub(crate) const fn new(name: &'static str, path: Path, case: Case, seconds: f64) -> Self {
        Self {
            name,
            path,
            case,
            thin: None,
            discarded: None,
            seconds,
            paper: None,
            within: None,
        }
    }

    /// The case with these options of thinning.
    pub(crate) const fn with_thin(mut self, options: ThinOptions) -> Self {
        self.thin = Some(options);
        self
    }

    /// The case after a transfer that is not measured and takes about `seconds`.
    pub(crate) fn after(mut self, discarded: Workload, seconds: f64) -> Self {
        self.discarded = Some(discarded);
        self.seconds += seconds;
        self
    }

    /// The case with a goodput that the paper prints.
    pub(crate) const fn with_paper(mut self, goodput: f64) -> Self {
        self.paper = Some(goodput);
        self
    }

    /// The case with a bound: its goodput is as near to the simulator's as `share`.
    pub(crate) const fn with_simulation_within(mut self, share: f64) -> Self {
        self.within = Some(share);
        self
    }

    /// Whether its flows start one after another.
    pub(crate) fn is_staggered(&self) -> bool {
        let mut flows = self.path.flows.iter();
        flows.any(|flow| flow.start > TimeSpan::ZERO)
    }

    /// Seconds of a whole run.
    #[must_use]
    pub fn run_seconds(&self) -> f64 {
        self.seconds + SET_UP
    }

    /// The path for the simulator, and whether the simulator uses its proxies. `None` if the
    /// simulator does not support the case: it needs one flow and proxies whose access profile
    /// changes nothing, and it thins ACKs only as the client's own method.
    pub(crate) fn simulated(&self) -> Option<(Path, bool)> {
        let mut path = self.path.clone();
        let does_something = |access: &AccessLink| {
            access.oversized_segments != SegmentSizes::Off || access.send_ahead != SendAhead::Off
        };
        let has_profile = path
            .proxies()
            .any(|(_, proxy)| proxy.access.as_ref().is_some_and(does_something));
        if path.flows.len() != 1 || self.thin.is_some() || self.discarded.is_some() {
            return None;
        }
        match self.case {
            Case::Direct => Some((path, false)),
            Case::Midspan if !has_profile => Some((path, true)),
            Case::Thin => {
                let client = path.flows.first()?.from;
                if let Some(node) = path.nodes.get_mut(client.0)
                    && let NodeKind::Host(host) = &mut node.kind
                {
                    host.acknowledge = Acknowledge::Thin(PACKETS_PER_ACK);
                }
                Some((path, false))
            }
            _ => None,
        }
    }

    /// What distinguishes a measurement of this case from others: all its settings, as in a path
    /// file. The names of the point and the case are not part of the key. `None` if no path file
    /// can have the path.
    #[must_use]
    pub fn key(&self, repetition: u32) -> Option<RunKey> {
        let mut path = self.path.clone();
        path.description.clear();
        let mut key = RunKey::new()
            .with("path", path.to_text()?)
            .with("case", self.case)
            .with("repetition", repetition);
        if let Some(ThinOptions { pass, ack_first }) = self.thin {
            key = key.with("thin", if pass { "pass" } else { "by default" });
            if let Some(rate) = ack_first {
                key = key.with("ACKs first at", rate);
            }
        }
        if let Some(discarded) = self.discarded {
            key = key.with("after", discarded.to_text());
        }
        Some(key)
    }
}

impl LabPlan {
    /// The points of a paper, with simulator and analysis.
    pub(crate) const fn of(points: Vec<Point>) -> Self {
        Self {
            points,
            shown: &[Metric::Goodput, Metric::Acks],
            beside: true,
        }
    }

    /// Keeps only the points with at least one run for which `holds` returns true.
    pub(crate) fn retain_runs(&mut self, holds: impl Fn(&Point, &Arm, u32) -> bool) {
        self.points.retain(|point| {
            let mut repetitions = 0..point.repetitions;
            repetitions.any(|repetition| point.arms.iter().any(|arm| holds(point, arm, repetition)))
        });
    }

    /// All runs, in their order. The cases of a point alternate within a repetition. All points are
    /// measured once before one is measured again, so that a measurement that is stopped has
    /// results of each point.
    pub(crate) fn runs(&self) -> Vec<(&Point, &Arm, u32)> {
        let points = self.points.iter();
        let mut runs: Vec<_> = points
            .flat_map(|point| {
                (0..point.repetitions).flat_map(move |repetition| {
                    point.arms.iter().map(move |arm| (point, arm, repetition))
                })
            })
            .collect();
        runs.sort_by_key(|(_, _, repetition)| *repetition);
        runs
    }
}

/// The number of repetitions of a point, which depends on whether the point has a bound.
pub(crate) const fn repetitions(judged: bool, extent: Extent) -> u32 {
    match (extent, judged) {
        (Extent::Quick, _) => 1,
        (Extent::Normal, false) => SHOWN,
        _ => JUDGED,
    }
}

/// Reads the text of a path that this crate has written.
pub(crate) fn read(name: &str, text: &str) -> Result<Path, LaboratoryError> {
    Ok(Path::read(&Source::new(name, text)).map_err(midspan_path::Error::from)?)
}

/// Seconds that a download of `megabytes` takes if one ACK of `ack` bytes goes upstream for
/// `per_ack` segments. Rates in kbit/s.
pub(crate) fn expected(megabytes: f64, down: f64, up: f64, ack: f64, per_ack: f64) -> f64 {
    let by_acks = up / (ack * 8.0) * per_ack * 1448.0 * 8.0;
    let rate = by_acks.min(down * 0.965);
    megabytes * 8000.0 / rate
}
