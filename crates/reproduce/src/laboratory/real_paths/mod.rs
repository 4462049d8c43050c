//! Real paths: Midspan without any hand-set value, compared with direct connections and with
//! HAProxy with hand-set values.

mod by_hand;
mod grid;
mod paths;
mod presentation;
mod tables;
#[cfg(test)]
mod tests;

use midspan_lab::{Case, CaseKind};
use midspan_path::{Flow, Order, Path, Workload};
use midspan_units::{ByteSize, TimeSpan};

use super::point::{Extent, JUDGED, Point, SHOWN};
use super::statement::{Metric, Statement};
use super::{LabEffort, LaboratoryError, distinct};
use by_hand::ByHand;
pub use grid::Chosen;
use paths::RealPath;
pub use presentation::report;
pub use tables::{choices, summary, targets, times};

/// Plain routing; the end hosts send with this congestion control.
const DIRECT_CUBIC: &str = "direct, CUBIC";
const DIRECT_BBR: &str = "direct, BBR";
const HAPROXY: &str = "HAProxy, by hand";
/// Midspan without a hand-set value: just started, and after a transfer from which it has learned
/// the path.
const COLD: &str = "Midspan, cold";
const LEARNED: &str = "Midspan, learned";

/// A median ratio to HAProxy up to this value rounds to 1.00.
const AS_FAST: f64 = 1.005;
/// By how much Midspan may be slower than a direct connection: a share, or seconds.
const SLOWER: (f64, f64) = (0.01, 0.001);
/// Repetitions of transfers that take long, by default.
const LONG: u32 = 1;
/// The limit in seconds for a transfer with a proxy. By default, transfers that take longer are
/// left out.
const LONGEST: f64 = 15.0;
/// The limit for direct transfers: by default, and with [`Extent::Full`].
const LONGEST_DIRECT: (f64, f64) = (40.0, 120.0);
/// Transfers that take longer than this number of seconds get fewer repetitions.
const SHORT: f64 = 6.0;
/// A pause in seconds after the transfer that is not measured.
const REST: f64 = 2.0;

const KILOBYTE: u64 = 1000;
const MEGABYTE: u64 = 1_000_000;

/// The transfers, the most informative first.
const TRANSFERS: [Transfer; 7] = [
    Transfer::new("1 MB", Kind::Down(MEGABYTE), Extent::Normal),
    Transfer::new("100 KB", Kind::Down(100 * KILOBYTE), Extent::Normal),
    Transfer::new("10 MB", Kind::Down(10 * MEGABYTE), Extent::Normal),
    Transfer::new("page", Kind::Page, Extent::Normal),
    Transfer::new("upload 1 MB", Kind::Up(MEGABYTE), Extent::Full),
    Transfer::new("10 KB", Kind::Down(10 * KILOBYTE), Extent::Full),
    Transfer::new("upload 10 MB", Kind::Up(10 * MEGABYTE), Extent::Full),
];
/// The paths of the quick extent.
const QUICK: [&str; 3] = ["wifi", "geo-1e-3", "lan"];

/// A page: objects, and bytes of each.
const PAGE: (u32, u64) = (30, 20 * KILOBYTE);
/// Connections of a browser to one server.
const PARALLEL: u32 = 6;
/// The paths whose uploads are measured with `--full`.
const UPLOADS: [&str; 5] = ["geo-0", "geo-1e-2", "lte", "maritime", "wireless"];

#[derive(Debug, Clone, Copy)]
struct Transfer {
    name: &'static str,
    kind: Kind,
    /// The least extent that has this transfer. Paths with a list of usual transfers ignore it.
    from: Extent,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A download of this number of bytes.
    Down(u64),
    Up(u64),
    Page,
}

impl Transfer {
    const fn new(name: &'static str, kind: Kind, from: Extent) -> Self {
        Self { name, kind, from }
    }

    const fn is_upload(&self) -> bool {
        matches!(self.kind, Kind::Up(_))
    }

    fn is_in(&self, path: &RealPath, extent: Extent) -> bool {
        match (extent, self.from) {
            // The path's most informative transfer.
            (Extent::Quick, _) => path.usual.first().unwrap_or(&TRANSFERS[0].name) == &self.name,
            (Extent::Normal, _) if !path.usual.is_empty() => path.usual.contains(&self.name),
            (Extent::Normal, from) => from != Extent::Full,
            (Extent::Full, _) => !self.is_upload() || UPLOADS.contains(&path.name),
        }
    }

    /// Whether the transfer fits into the first flight. A proxy cannot gain anything there, so it is not judged.
    const fn is_one_flight(&self) -> bool {
        matches!(self.kind, Kind::Down(bytes) if bytes <= 10 * KILOBYTE)
    }

    /// Bytes of the largest object.
    const fn largest_object(&self) -> u64 {
        match self.kind {
            Kind::Down(bytes) | Kind::Up(bytes) => bytes,
            Kind::Page => PAGE.1,
        }
    }

    const fn workload(&self) -> Workload {
        match self.kind {
            Kind::Down(size) => Workload::Download {
                size: ByteSize::from_bytes(size),
            },
            Kind::Up(size) => Workload::Upload {
                size: ByteSize::from_bytes(size),
            },
            Kind::Page => Workload::Page {
                objects: PAGE.0,
                size: ByteSize::from_bytes(PAGE.1),
                parallel: PARALLEL,
            },
        }
    }

    /// The transfer that is not measured, from which Midspan learns the path. It has the same
    /// direction.
    const fn discarded(&self) -> Self {
        let kind = match self.kind {
            Kind::Up(_) => Kind::Up(MEGABYTE),
            _ => Kind::Down(MEGABYTE),
        };
        Self { kind, ..*self }
    }
}

/// The points: downloads, uploads and pages without a hand-set value, compared with direct
/// connections and with HAProxy with the hand-set values that were chosen, or those that are assumed to be best.
///
/// # Errors
/// There is no such path or transfer.
pub fn points(effort: &LabEffort, chosen: &Chosen) -> Result<Vec<Point>, LaboratoryError> {
    let points = all(effort, |path, transfer, is_requested| {
        point(path, transfer, effort.extent, is_requested, chosen)
    })?;
    super::wanted(points, "the real paths", effort)
}

/// The points where HAProxy's hand-set values are chosen: those that [`Extent::Full`] judges.
///
/// # Errors
/// There is no such path or transfer.
pub fn grid(effort: &LabEffort) -> Result<Vec<Point>, LaboratoryError> {
    let effort = LabEffort {
        extent: Extent::Full,
        ..effort.clone()
    };
    let points = all(&effort, |path, transfer, is_requested| {
        let is_judged = is_requested || !transfer.is_one_flight();
        is_judged.then(|| grid::point(path, transfer))
    })?;
    super::wanted(points, "the real paths", &effort)
}

/// Every path with one transfer, then every path with the next.
fn all(
    effort: &LabEffort,
    point: impl Fn(&RealPath, &Transfer, bool) -> Option<Point>,
) -> Result<Vec<Point>, LaboratoryError> {
    let transfers = wanted(&effort.transfers)?;
    let mut all = paths::all()?;
    // A path that is requested by name is measured, even if it does not belong to the quick extent.
    if effort.extent == Extent::Quick && effort.item.is_none() {
        all.retain(|path| QUICK.contains(&path.name));
    }
    let mut points = Vec::new();
    for transfer in transfers {
        for path in &all {
            let is_requested = !effort.transfers.is_empty();
            if is_requested || transfer.is_in(path, effort.extent) {
                points.extend(point(path, &transfer, is_requested));
            }
        }
    }
    Ok(points)
}

/// The transfers with these names; all of them if no name is given.
fn wanted(names: &[String]) -> Result<Vec<Transfer>, LaboratoryError> {
    for name in names {
        if !TRANSFERS.iter().any(|transfer| transfer.name == name) {
            return Err(LaboratoryError::Item {
                what: "transfer",
                of: "the real paths",
                item: name.clone(),
                known: distinct(TRANSFERS.iter().map(|transfer| transfer.name)),
            });
        }
    }
    let is_wanted = |one: &Transfer| names.is_empty() || names.iter().any(|name| name == one.name);
    Ok(TRANSFERS.into_iter().filter(is_wanted).collect())
}

fn name_of(path: &RealPath, transfer: &Transfer) -> String {
    format!("{}, {}", path.name, transfer.name)
}

/// `None` if the transfer takes too long and was not requested.
fn point(
    path: &RealPath,
    transfer: &Transfer,
    extent: Extent,
    is_requested: bool,
    chosen: &Chosen,
) -> Option<Point> {
    let seconds = path.seconds(transfer);
    let is_short = extent == Extent::Full || seconds <= LONGEST;
    if !is_short && !is_requested && path.usual.is_empty() {
        return None;
    }
    let name = name_of(path, transfer);
    let by_hand = chosen.of(&name).unwrap_or(path.hand);
    let cases = cases(path, transfer, extent, &by_hand);
    let is_judged =
        extent != Extent::Quick && !(extent == Extent::Full && transfer.is_one_flight());
    Some(Point {
        item: path.name,
        statements: statements(path, transfer, &cases, is_judged),
        cases,
        repetitions: match extent {
            Extent::Quick => 1,
            Extent::Normal if seconds > SHORT => LONG,
            Extent::Normal => SHOWN - 1,
            Extent::Full if is_judged => JUDGED,
            Extent::Full => 1,
        },
        name,
        shown: &[Metric::Completion],
        beside: false,
        ..Point::default()
    })
}

/// The path with this transfer as its only flow.
fn with_flow(mut path: Path, transfer: &Transfer) -> Path {
    path.order = Order::InTurn;
    let ends = path.find_node("client").zip(path.find_node("server"));
    path.flows = ends
        .map(|(from, to)| Flow {
            name: transfer.name.to_owned(),
            from,
            to,
            workload: transfer.workload(),
            start: TimeSpan::ZERO,
        })
        .into_iter()
        .collect();
    path
}

fn cases(path: &RealPath, transfer: &Transfer, extent: Extent, by_hand: &ByHand) -> Vec<Case> {
    let with_flow = |path| with_flow(path, transfer);
    let seconds = path.seconds(transfer);
    let mut cases = Vec::new();
    let longest = match extent {
        Extent::Full => LONGEST_DIRECT.1,
        _ => LONGEST_DIRECT.0,
    };
    let by_cubic = path.seconds_by_cubic(transfer);
    if by_cubic <= longest {
        let path = with_flow(path.ends_with("cubic"));
        cases.push(Case::direct(DIRECT_CUBIC, path, by_cubic));
    }
    let by_bbr = with_flow(path.ends_with("bbr"));
    cases.push(Case::direct(DIRECT_BBR, by_bbr, seconds));
    let haproxy = with_flow(path.by_hand(by_hand));
    cases.push(Case::new(HAPROXY, haproxy, CaseKind::Haproxy, seconds));
    let alone = with_flow(path.by_itself());
    let lesson = transfer.discarded();
    cases.push(Case::midspan(COLD, alone.clone(), seconds));
    cases.push(
        Case::midspan(LEARNED, alone, seconds)
            .after(lesson.workload(), path.seconds(&lesson) + REST),
    );
    cases
}

fn statements(
    path: &RealPath,
    transfer: &Transfer,
    cases: &[Case],
    is_judged: bool,
) -> Vec<Statement> {
    let there = |name: &&'static str| cases.iter().any(|case| case.name == *name);
    let direct = [DIRECT_CUBIC, DIRECT_BBR].into_iter().filter(there);
    let direct: Vec<&'static str> = direct.collect();
    let judge = |said: Statement, judged: fn(Statement) -> Statement| {
        if is_judged { judged(said) } else { said }
    };
    let mut said = Vec::new();
    for ours in [COLD, LEARNED] {
        let ratio = Statement::new(Metric::Completion, ours, &[HAPROXY]);
        said.push(judge(ratio, |ratio| ratio.at_most(AS_FAST)));
        let ratio = Statement::new(Metric::Completion, ours, &direct);
        said.push(judge(ratio, |ratio| ratio.not_slower(SLOWER.0, SLOWER.1)));
    }
    if path.has_short_queue && transfer.is_upload() {
        for case in cases {
            let dropped = Statement::new(Metric::Dropped, case.name, &[]);
            let is_ours = case.name == COLD || case.name == LEARNED;
            said.push(if is_ours && is_judged {
                dropped.at_most(0.0)
            } else {
                dropped
            });
            said.push(Statement::new(Metric::Overflows, case.name, &[]));
        }
    }
    said
}
