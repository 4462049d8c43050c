//! The judgement of a run: whether the machine kept up, and whether the run measured its case.
//!
//! [`judge`] is the only rule, and it is pure. It compares each disturbance of a run with the path's
//! round trip: a frame that leaves 3 ms late matters if the round trip is 20 ms, and hardly matters
//! if it is 600 ms. The [`Purpose`] of the run decides how much is allowed, and whether a run that
//! was disturbed more is void or only rough.

use std::fmt;

use midspan_path::Path;
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::emulator::{Lateness, LinkReport};

/// Lateness that every path allows: an emulator in user space is not more precise on a shared
/// machine.
const LEAST_TOLERANCE: TimeSpan = TimeSpan::from_milliseconds(1);
/// With more frames than this, the latest 1 % of them is more than one frame.
const FRAMES: u64 = 100;
/// Time for which a program waits for a processor if other programs use half of the processors: of
/// the order of a time slice of the kernel's scheduler. With this value, a tolerance of 1 ms allows
/// a load of 25 %.
const SLICE: TimeSpan = TimeSpan::from_milliseconds(3);
/// The same if other machines on the same hardware take half of the processors: hypervisors use
/// longer slices. With this value, a tolerance of 1 ms allows 5 %.
const HYPERVISOR_SLICE: TimeSpan = TimeSpan::from_milliseconds(19);
/// A load counts as at most this much, so that the waiting time stays finite.
const MOST_LOAD: f64 = 0.99;
/// The shortest round trip to which a delay is compared.
const LEAST_ROUND_TRIP: TimeSpan = TimeSpan::from_nanoseconds(100_000);
/// Share of a difference from which on a delay is a notable part of it.
const NOTABLE: f64 = 0.25;

/// What runs are for. This decides how much may disturb them, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// The numbers are compared with bounds of half a percent, or published. A disturbed run is
    /// void and is repeated.
    #[default]
    Measurement,
    /// A person looks at the numbers. A disturbed run counts, but its numbers are marked as rough.
    /// No run is repeated.
    Demonstration,
}

impl Purpose {
    /// The lateness that is allowed, as a share of the round trip. A transfer takes a number of
    /// round trips, so its completion time is wrong by at most about this share.
    const fn tolerated_share(self) -> f64 {
        match self {
            Self::Measurement => 0.005,
            Self::Demonstration => 0.02,
        }
    }

    /// Attempts of one run; the last one is kept even if it is void.
    pub(crate) const fn attempts(self) -> u32 {
        match self {
            Self::Measurement => 3,
            Self::Demonstration => 1,
        }
    }

    /// The lateness that is allowed on a path with this round trip.
    fn tolerance(self, round_trip: TimeSpan) -> TimeSpan {
        share_of(round_trip, self.tolerated_share()).max(LEAST_TOLERANCE)
    }

    /// The waiting time that a load of other programs or machines may cause. A measurement allows
    /// no more on a long path, because the load was measured only before the run.
    fn tolerated_waiting(self, round_trip: TimeSpan) -> TimeSpan {
        match self {
            Self::Measurement => LEAST_TOLERANCE,
            Self::Demonstration => self.tolerance(round_trip),
        }
    }
}

/// Everything that can disturb a run.
#[derive(Debug, Clone)]
pub struct Disturbance<'a> {
    /// The shortest round trip of the run's flows, without queues and transmission times.
    pub round_trip: TimeSpan,
    /// The links with their names.
    pub links: Vec<(&'a str, &'a LinkReport)>,
    /// Share of the processors that other programs used just before the run, 0 to 1.
    pub load_before: f64,
    /// Share of the processors that other machines took during the run, 0 to 1.
    pub stolen: f64,
    /// The proxies that did not carry all connections, each as a text.
    pub not_carried: Vec<String>,
}

impl<'a> Disturbance<'a> {
    /// What disturbed a measurement of the emulator itself: there is no round trip to which a
    /// lateness could be compared.
    pub(crate) fn of_link(link: &'a LinkReport, load_before: f64, stolen: f64) -> Self {
        Self {
            round_trip: TimeSpan::ZERO,
            links: vec![("link", link)],
            load_before,
            stolen,
            not_carried: Vec::new(),
        }
    }
}

/// A fault of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// The kernel dropped frames because the emulator did not take them in time.
    Dropped {
        /// The link.
        link: String,
        /// Number of frames.
        frames: u64,
    },
    /// Frames left a link late.
    Late {
        /// The link and its direction.
        link: String,
        /// How late.
        lateness: Lateness,
        /// The lateness that was allowed.
        tolerance: TimeSpan,
        /// The round trip to which the lateness was compared.
        round_trip: TimeSpan,
    },
    /// Other programs used this share of the processors before the run.
    Load(f64),
    /// Other machines on the same hardware took this share of the processors during the run.
    Stolen(f64),
    /// A proxy did not carry all connections, so the run did not measure its case.
    NotCarried(String),
    /// A burst of packets was sent so slowly that some of them left the queue meanwhile.
    SlowBurst {
        /// How long it took.
        took: TimeSpan,
        /// The transmission time of one packet.
        transmission: TimeSpan,
    },
}

/// How good a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Grade {
    /// Nothing notable disturbed it.
    #[default]
    Valid,
    /// It was disturbed, and its numbers are marked as rough.
    Rough,
    /// Its numbers must not be used.
    Void,
}

/// The judgement of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Validity {
    grade: Grade,
    reasons: Vec<Reason>,
    slowdown: f64,
}

impl Validity {
    /// How good the run is.
    #[must_use]
    pub const fn grade(&self) -> Grade {
        self.grade
    }

    /// Whether nothing notable disturbed the run.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.grade == Grade::Valid
    }

    /// Whether the run's numbers may be used, even if they are rough.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.grade != Grade::Void
    }

    /// Why the run is not valid.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// An estimate of the share by which the machine made the run's times longer: what a round trip
    /// waited for the emulator and for processors, as a share of the round trip.
    #[must_use]
    pub const fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// The same run, void for one more reason.
    pub(crate) fn and_void(mut self, reason: Reason) -> Self {
        self.grade = Grade::Void;
        self.reasons.push(reason);
        self
    }
}

/// Judges a run.
#[must_use]
pub fn judge(purpose: Purpose, run: &Disturbance<'_>) -> Validity {
    let mut reasons = Vec::new();
    for (name, link) in &run.links {
        reasons.extend(judge_link(purpose, run.round_trip, name, link));
    }
    let tolerated = purpose.tolerated_waiting(run.round_trip);
    let by_load = waiting(run.load_before, SLICE);
    let by_machines = waiting(run.stolen, HYPERVISOR_SLICE);
    if by_load > tolerated {
        reasons.push(Reason::Load(run.load_before));
    }
    if by_machines > tolerated {
        reasons.push(Reason::Stolen(run.stolen));
    }
    reasons.extend(run.not_carried.iter().cloned().map(Reason::NotCarried));
    let is_void = match purpose {
        Purpose::Measurement => !reasons.is_empty(),
        Purpose::Demonstration => !run.not_carried.is_empty(),
    };
    Validity {
        grade: match (is_void, reasons.is_empty()) {
            (true, _) => Grade::Void,
            (false, true) => Grade::Valid,
            (false, false) => Grade::Rough,
        },
        reasons,
        slowdown: slowdown(run, by_load + by_machines),
    }
}

fn judge_link(
    purpose: Purpose,
    round_trip: TimeSpan,
    name: &str,
    link: &LinkReport,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if link.kernel_drops > 0 {
        reasons.push(Reason::Dropped {
            link: name.to_owned(),
            frames: link.kernel_drops,
        });
    }
    let tolerance = purpose.tolerance(round_trip);
    for (direction, report) in [("up", &link.up), ("down", &link.down)] {
        let late = report.lateness;
        let usually = late.frames > FRAMES && late.p99 > tolerance;
        if usually || late.tail > tolerance * 2 {
            reasons.push(Reason::Late {
                link: format!("link \"{name}\" {direction}"),
                lateness: late,
                tolerance,
                round_trip,
            });
        }
    }
    reasons
}

/// An estimate of how long a program waits for a processor at a load, if it waits `slice` at a load
/// of one half. As in a queue, the waiting time has no bound when the load approaches 1.
fn waiting(load: f64, slice: TimeSpan) -> TimeSpan {
    let load = load.clamp(0.0, MOST_LOAD);
    share_of(slice, load / (1.0 - load))
}

/// See [`Validity::slowdown`]. A round trip passes each link once in each direction.
fn slowdown(run: &Disturbance<'_>, waiting: TimeSpan) -> f64 {
    let of_link = |link: &LinkReport| link.up.lateness.mean + link.down.lateness.mean;
    let late = run
        .links
        .iter()
        .fold(waiting, |sum, (_, link)| sum + of_link(link));
    late.as_seconds() / run.round_trip.max(LEAST_ROUND_TRIP).as_seconds()
}

/// Whether the machine may account for a notable part of the difference between two times, which
/// were made longer by up to the share `slowdown`.
#[must_use]
pub fn accounts_for(slowdown: f64, one: f64, other: f64) -> bool {
    slowdown * (one + other) > NOTABLE * (one - other).abs()
}

/// The shortest round trip of some flows of a path, by their positions.
#[must_use]
pub fn round_trip(path: &Path, flows: &[usize]) -> TimeSpan {
    let of_flow = |flow: &usize| {
        let flow = &path.flows[*flow];
        let way = path.way(flow.from, flow.to);
        let links = way.iter().map(|hop| path.link(hop.link));
        links.fold(TimeSpan::ZERO, |sum, link| {
            sum + link.up.mean_delay() + link.down.mean_delay()
        })
    };
    flows.iter().map(of_flow).min().unwrap_or(TimeSpan::ZERO)
}

/// The worst reason of each kind, so that a result of several runs states each kind once.
#[must_use]
pub fn worst<'a>(runs: impl IntoIterator<Item = &'a Validity>) -> Vec<Reason> {
    let mut worst: Vec<Reason> = Vec::new();
    for reason in runs.into_iter().flat_map(Validity::reasons) {
        match worst.iter_mut().find(|known| known.is_like(reason)) {
            None => worst.push(reason.clone()),
            Some(known) if known.extent() < reason.extent() => *known = reason.clone(),
            Some(_) => {}
        }
    }
    worst
}

/// What disturbed the runs that count, in one sentence; `None` if nothing did.
#[must_use]
pub fn remark<'a>(runs: impl IntoIterator<Item = &'a Validity>) -> Option<String> {
    let rough = runs.into_iter().filter(|run| run.grade == Grade::Rough);
    let reasons: Vec<String> = worst(rough).iter().map(Reason::to_string).collect();
    (!reasons.is_empty()).then(|| {
        format!(
            "The machine was busy, so the numbers marked as rough may be wrong by a tenth or more: \
             {}.",
            reasons.join("; ")
        )
    })
}

impl Reason {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NotCarried(one), Self::NotCarried(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    fn extent(&self) -> f64 {
        match self {
            Self::Dropped { frames, .. } => *frames as f64,
            Self::Late { lateness, .. } => lateness.tail.max(lateness.p99).as_seconds(),
            Self::Load(share) | Self::Stolen(share) => *share,
            Self::NotCarried(_) => 0.0,
            Self::SlowBurst { took, .. } => took.as_seconds(),
        }
    }
}

fn share_of(span: TimeSpan, share: f64) -> TimeSpan {
    TimeSpan::from_nanoseconds((span.nanoseconds() as f64 * share) as u64)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped { link, frames } => write!(
                f,
                "link \"{link}\": the kernel dropped {frames} frames that the emulator did not \
                 take in time"
            ),
            Self::Late {
                link,
                lateness,
                tolerance,
                round_trip,
            } => write!(
                f,
                "{link}: frames left late (99 % within {:.2} ms, nearly all within {:.2} ms, the \
                 latest {:.1} ms; {:.2} ms and twice that are allowed where the round trip is \
                 {:.1} ms)",
                lateness.p99.as_milliseconds(),
                lateness.tail.as_milliseconds(),
                lateness.max.as_milliseconds(),
                tolerance.as_milliseconds(),
                round_trip.as_milliseconds(),
            ),
            Self::Load(share) => write!(
                f,
                "other programs used {:.0} % of the processors before the run",
                share * 100.0
            ),
            Self::Stolen(share) => write!(
                f,
                "other machines took {:.0} % of the processors during the run",
                share * 100.0
            ),
            Self::NotCarried(text) => f.write_str(text),
            Self::SlowBurst { took, transmission } => write!(
                f,
                "the burst took {:.1} ms; a packet leaves the queue every {:.1} ms",
                took.as_milliseconds(),
                transmission.as_milliseconds()
            ),
        }
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.grade {
            Grade::Valid => return f.write_str("valid"),
            Grade::Rough => "rough: ",
            Grade::Void => "void: ",
        })?;
        let reasons: Vec<String> = self.reasons.iter().map(Reason::to_string).collect();
        f.write_str(&reasons.join("; "))
    }
}

#[cfg(test)]
#[path = "validity_tests.rs"]
mod tests;
