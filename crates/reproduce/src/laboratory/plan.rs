//! What is measured: points, each with the arms that are compared at it.

use midspan_document::Source;
use midspan_lab::{Case, ThinOptions};
use midspan_path::{Acknowledge, NodeKind, Path, Workload};
use midspan_policy::AccessLink;
use midspan_policy::oversized_segments::Wish;
use midspan_policy::sending_ahead::SendAhead;
use midspan_records::RunKey;
use midspan_report::Axis;
use midspan_units::TimeSpan;

use super::LaboratoryError;
use super::statement::{Metric, Statement};

/// What every run takes besides its transfers: the network, the servers, the proxy. Seconds.
const SET_UP: f64 = 3.0;
/// What ACE thinning acknowledges at most with one ACK.
const PACKETS_PER_ACK: u32 = 5;

/// Repetitions of points with a bound: as few as give an interval of 95 %.
pub(crate) const JUDGED: u32 = 6;
/// Of others.
pub(crate) const SHOWN: u32 = 3;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// A few points, in a few seconds each: to see that it works.
    Quick,
    /// What fits 45 minutes.
    #[default]
    Normal,
    /// The paper's whole grid.
    Full,
}

/// All that is measured of a paper.
#[derive(Debug, Clone)]
pub struct LabPlan {
    /// The points, in the order in which they are measured.
    pub points: Vec<Point>,
    /// What is shown of every arm, besides what is said of it.
    pub shown: &'static [Metric],
    /// Whether the simulator and the analysis stand beside.
    pub beside: bool,
}

/// A place in a figure: a path, and what is compared on it.
#[derive(Debug, Clone)]
pub struct Point {
    /// What it belongs to, such as "figure 8".
    pub item: &'static str,
    /// Its name, unique in the plan, such as "32 kbit/s up, queue 200".
    pub name: String,
    /// The plot that it is a point of, with its place on the horizontal axis.
    pub place: Option<Place>,
    /// What is compared.
    pub arms: Vec<Arm>,
    /// How often each arm is measured.
    pub repetitions: u32,
    /// What is said of the measurements.
    pub statements: Vec<Statement>,
}

impl Point {
    /// An arm at this point, as it is called in records.
    pub(crate) fn case(&self, arm: &Arm) -> String {
        format!("{}, {}", self.name, arm.name)
    }
}

/// Where a point lies in a plot of goodput.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The plot's title; points with the same one are in the same plot.
    pub plot: String,
    /// The horizontal axis, the same for all points of a plot.
    pub axis: Axis,
    /// Where on it.
    pub at: f64,
}

impl Place {
    /// By the rate upstream in kbit/s.
    pub(crate) fn upstream(plot: String, rate: f64) -> Self {
        let axis = Axis::new("upstream", "kbit/s");
        Self {
            plot,
            axis,
            at: rate,
        }
    }

    /// On a logarithmic axis.
    pub(crate) fn logarithmic(plot: String, axis: (&str, &str), at: f64) -> Self {
        let axis = Axis::new(axis.0, axis.1).on_a_logarithmic_scale();
        Self { plot, axis, at }
    }
}

/// One of the things that are compared.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Its name, unique in its point, such as "normal segments".
    pub name: &'static str,
    /// The path, with what stands on it.
    pub path: Path,
    /// What is done at the proxies.
    pub case: Case,
    /// What is done at the clients.
    pub thin: Option<ThinOptions>,
    /// What is transferred beforehand through the same proxies, and not measured.
    pub discarded: Option<Workload>,
    /// How long its transfers are expected to take, in seconds.
    pub seconds: f64,
    /// What the paper prints as its goodput, in bit/s.
    pub paper: Option<f64>,
    /// How far its goodput may be from the simulator's, as a share of that.
    pub within: Option<f64>,
}

impl Arm {
    /// The proxy on the path.
    pub(crate) const fn midspan(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, Case::Midspan, seconds)
    }

    /// Plain routing.
    pub(crate) const fn direct(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, Case::Direct, seconds)
    }

    /// Plain routing, ACKs thinned.
    pub(crate) const fn thin(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, Case::Thin, seconds)
    }

    /// Whatever `case` puts on the path.
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

    /// With the clients' ACKs dealt with like this.
    pub(crate) const fn with_thin(mut self, options: ThinOptions) -> Self {
        self.thin = Some(options);
        self
    }

    /// After a transfer that is not measured, which takes about so long, in seconds.
    pub(crate) fn after(mut self, discarded: Workload, seconds: f64) -> Self {
        self.discarded = Some(discarded);
        self.seconds += seconds;
        self
    }

    /// With a printed goodput.
    pub(crate) const fn with_paper(mut self, goodput: f64) -> Self {
        self.paper = Some(goodput);
        self
    }

    /// With its goodput asked to be so near the simulator's.
    pub(crate) const fn with_simulation_within(mut self, share: f64) -> Self {
        self.within = Some(share);
        self
    }

    /// Whether its flows start one after another.
    pub(crate) fn is_staggered(&self) -> bool {
        let mut flows = self.path.flows.iter();
        flows.any(|flow| flow.start > TimeSpan::ZERO)
    }

    /// Seconds that a run takes in all.
    #[must_use]
    pub fn run_seconds(&self) -> f64 {
        self.seconds + SET_UP
    }

    /// The same for the simulator, with whether its proxies are there: one flow, no access profile that
    /// does something (the simulator's proxy has none), and thinning as the client's own.
    pub(crate) fn simulated(&self) -> Option<(Path, bool)> {
        let mut path = self.path.clone();
        let does_something = |access: &AccessLink| {
            access.oversized_segments != Wish::Off || access.send_ahead != SendAhead::Off
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

    /// What distinguishes a measurement of this arm from those of others: all that is set on it, in
    /// the words of a path file. The names of point and arm are no part of it. `None` if no path
    /// file can have the path.
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
    /// The points of a paper, with simulator and analysis beside.
    pub(crate) const fn of(points: Vec<Point>) -> Self {
        Self {
            points,
            shown: &[Metric::Goodput, Metric::Acks],
            beside: true,
        }
    }

    /// Only the points of which there is a run of which this holds.
    pub(crate) fn retain_runs(&mut self, holds: impl Fn(&Point, &Arm, u32) -> bool) {
        self.points.retain(|point| {
            let mut repetitions = 0..point.repetitions;
            repetitions.any(|repetition| point.arms.iter().any(|arm| holds(point, arm, repetition)))
        });
    }

    /// Every run: the arms of a point alternate within a repetition, and all points are measured once
    /// before one is measured again, so that what is stopped says something of each.
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

/// How often an arm is measured, by whether its point has a bound.
pub(crate) const fn repetitions(judged: bool, extent: Extent) -> u32 {
    match (extent, judged) {
        (Extent::Quick, _) => 1,
        (Extent::Normal, false) => SHOWN,
        _ => JUDGED,
    }
}

/// Reads a path made here.
pub(crate) fn read(name: &str, text: &str) -> Result<Path, LaboratoryError> {
    Ok(Path::read(&Source::new(name, text)).map_err(midspan_path::Error::from)?)
}

/// Seconds that a download of `megabytes` takes where one ACK of `ack` bytes goes up for
/// `per_ack` segments; rates in kbit/s.
pub(crate) fn expected(megabytes: f64, down: f64, up: f64, ack: f64, per_ack: f64) -> f64 {
    let by_acks = up / (ack * 8.0) * per_ack * 1448.0 * 8.0;
    let rate = by_acks.min(down * 0.965);
    megabytes * 8000.0 / rate
}
