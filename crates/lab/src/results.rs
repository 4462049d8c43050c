//! Measurements as records.

use midspan_path::{Flow, Path};
use midspan_records::quantity::{
    ACKS_UPSTREAM, COMPLETION_TIME, GOODPUT, RETRANSMISSIONS, SHARE_OF_LINK, TIME_TO_FIRST_BYTE,
};
use midspan_records::{Better, Bound, By, Quantity, Record, Spread};
use midspan_units::{BitRate, number};

use crate::CaseKind;
use crate::headline::RATIO;
use crate::measurement::{FlowMeasurement, Measurement};
use crate::validity::accounts_for;

/// How a command ended; 0 if it has succeeded.
static EXIT_STATUS: Quantity = Quantity::new("exit status", "", Better::Neither);

/// The value of a quantity of a flow in one run; `None` if the flow has none.
type ValueOf = fn(&Path, &Flow, &Measurement, &FlowMeasurement) -> Option<f64>;

/// What is measured of every flow, in the order of the table.
static MEASURED: [(&Quantity, ValueOf); 7] = [
    (&TIME_TO_FIRST_BYTE, |_, _, _, flow| match flow.result {
        crate::FlowResult::File { first_byte, .. } => Some(first_byte.as_seconds()),
        _ => None,
    }),
    (&COMPLETION_TIME, |_, _, _, flow| {
        flow.completion().map(midspan_units::TimeSpan::as_seconds)
    }),
    (&EXIT_STATUS, |_, _, _, flow| match flow.result {
        crate::FlowResult::Command { status, .. } => Some(f64::from(status)),
        _ => None,
    }),
    (&GOODPUT, |_, flow, _, measured| measured.goodput(flow)),
    (&SHARE_OF_LINK, |path, flow, _, measured| {
        let rate = path.data_rate(flow).map(BitRate::bits_per_second)?;
        Some(measured.goodput(flow)? / number(rate))
    }),
    (&RETRANSMISSIONS, |_, _, run, _| {
        Some(number(run.retransmissions))
    }),
    (&ACKS_UPSTREAM, |path, flow, run, _| {
        Some(number(run.acks_sent(path, flow)))
    }),
];

/// The name of a flow under a case, as in every table: "1 MB midspan".
#[must_use]
pub fn case_name(flow: &Flow, case: CaseKind) -> String {
    format!("{} {case}", flow.name)
}

/// The note on a number of runs that were disturbed, but count ([`Grade::Rough`]).
///
/// [`Grade::Rough`]: crate::validity::Grade::Rough
pub const ROUGH: &str = "rough";
/// The note on a ratio to which a notable part may come from the machine.
pub const UNCERTAIN: &str = "rough: delays of this machine may account for more than a quarter of \
                             the difference";

/// Every quantity of every flow under every case: medians over the repetitions, with the smallest
/// and the largest value as spread. Void runs do not count. If all runs are void, their numbers are
/// included, with a note.
#[must_use]
pub fn flow_records(path: &Path, measurements: &[Measurement]) -> Vec<Record> {
    let mut records = Vec::new();
    for (index, flow) in path.flows.iter().enumerate() {
        for case in cases(measurements) {
            let (runs, note) = runs_of(measurements, case, index);
            for (quantity, value) in MEASURED {
                let values: Vec<f64> = runs
                    .iter()
                    .filter_map(|(run, measured)| value(path, flow, run, measured))
                    .collect();
                let Some(spread) = Spread::of(&values) else {
                    continue;
                };
                let case = case_name(flow, case);
                let mut record = Record::of(&path.name, &case, quantity, By::Lab, spread.median)
                    .with_range(&spread);
                record.note.clone_from(&note);
                records.push(record);
            }
        }
    }
    records
}

/// For each flow, ratios of completion times (for bulk: of times per byte), paired by repetition: the
/// median with its interval. Below 1, Midspan is faster than the other case.
///
/// The case `midspan` is compared with every other case that ran. In addition, `midspan-early` is
/// compared with `pepsal`, `midspan-forward` with `haproxy`, `thin` and the cases of an overlay with `direct`,
/// and `overlay` with `oracle`. Without the case `midspan`, `midspan-early` and `midspan-forward` are also
/// compared with plain routing and HAProxy.
///
/// `bound` applies to comparisons with HAProxy only. Such a record is marked as met if the median is
/// at most `bound`, and as missed if the whole interval is above it. Otherwise it is not marked.
#[must_use]
pub fn comparison_records(
    path: &Path,
    measurements: &[Measurement],
    bound: Option<f64>,
) -> Vec<Record> {
    let mut records = Vec::new();
    for (index, flow) in path.flows.iter().enumerate() {
        for (ours, other) in comparisons(&cases(measurements)) {
            let pairs = pairs(flow, index, measurements, ours, other);
            let ratios: Vec<f64> = pairs.iter().map(Pair::ratio).collect();
            let Some(ratio) = Spread::of(&ratios) else {
                continue;
            };
            let mut note = ratio.note("paired ratios");
            if is_uncertain(&pairs) {
                note = format!("{note}; {UNCERTAIN}");
            }
            let case = format!("{} {ours} / {other}", flow.name);
            let mut record = Record::new(&path.name, &case, RATIO, "", By::Lab, ratio.median)
                .with_interval(&ratio)
                .with_note(note);
            // The bound applies to the comparison with HAProxy; plain routing is included to show
            // the gain.
            if other == CaseKind::Haproxy {
                record.ok = bound.and_then(|bound| Bound::AtMost(bound).verdict(&ratio, None));
            }
            records.push(record);
        }
    }
    records
}

/// The cases that ran, in the order in which they began.
#[must_use]
pub fn cases(measurements: &[Measurement]) -> Vec<CaseKind> {
    let mut cases = Vec::new();
    for run in measurements {
        if !cases.contains(&run.case) {
            cases.push(run.case);
        }
    }
    cases
}

/// The pairs of cases that are compared, of those that ran.
fn comparisons(cases: &[CaseKind]) -> Vec<(CaseKind, CaseKind)> {
    let ran = |case: &CaseKind| cases.contains(case);
    let others: &[(CaseKind, &[CaseKind])] = if ran(&CaseKind::Midspan) {
        &[
            // Both accept the client's connection before the server's.
            (CaseKind::MidspanEarly, &[CaseKind::Pepsal]),
            (CaseKind::MidspanForward, &[CaseKind::Haproxy]),
            (CaseKind::Thin, &[CaseKind::Direct]),
        ]
    } else {
        // Without the case `midspan`, the other cases of Midspan are compared.
        &[
            (
                CaseKind::MidspanEarly,
                &[
                    CaseKind::Direct,
                    CaseKind::DirectBbr,
                    CaseKind::Haproxy,
                    CaseKind::Pepsal,
                ],
            ),
            (
                CaseKind::MidspanForward,
                &[CaseKind::Direct, CaseKind::DirectBbr, CaseKind::Haproxy],
            ),
            (CaseKind::Thin, &[CaseKind::Direct]),
        ]
    };
    let all = cases.iter().filter(|case| **case != CaseKind::Midspan);
    let of_midspan = all.map(|other| (CaseKind::Midspan, *other));
    let of_others = others
        .iter()
        .flat_map(|(ours, others)| others.iter().map(|other| (*ours, *other)));
    let overlays = cases.iter().filter(|case| case.is_overlay());
    let of_overlays = overlays.flat_map(|ours| {
        let others = match ours {
            CaseKind::Overlay => &[CaseKind::Direct, CaseKind::Oracle][..],
            _ => &[CaseKind::Direct],
        };
        others.iter().map(|other| (*ours, *other))
    });
    of_midspan
        .chain(of_others)
        .chain(of_overlays)
        .filter(|(ours, other)| ran(ours) && ran(other))
        .collect()
}

/// Times of one flow in one repetition: Midspan's and that of another case.
struct Pair {
    ours: f64,
    other: f64,
    /// The greater one of the two runs' [slowdowns](crate::Validity::slowdown).
    slowdown: f64,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.ours / self.other
    }
}

fn pairs(
    flow: &Flow,
    index: usize,
    measurements: &[Measurement],
    ours: CaseKind,
    other: CaseKind,
) -> Vec<Pair> {
    let (ours, _) = runs_of(measurements, ours, index);
    let (theirs, _) = runs_of(measurements, other, index);
    ours.iter()
        .filter_map(|(run, measured)| {
            let (peer_run, peer) = theirs
                .iter()
                .find(|(peer, _)| peer.repetition == run.repetition)?;
            Some(Pair {
                ours: measured.time_per_work(flow)?,
                other: peer.time_per_work(flow)?,
                slowdown: run.validity.slowdown().max(peer_run.validity.slowdown()),
            })
        })
        .filter(|pair| pair.ratio().is_finite())
        .collect()
}

/// Whether the machine may account for a notable part of the difference: of the medians, at the
/// median slowdown.
fn is_uncertain(pairs: &[Pair]) -> bool {
    let median = |value: fn(&Pair) -> f64| {
        let values: Vec<f64> = pairs.iter().map(value).collect();
        Spread::of(&values).map_or(0.0, |spread| spread.median)
    };
    accounts_for(
        median(|pair| pair.slowdown),
        median(|pair| pair.ours),
        median(|pair| pair.other),
    )
}

type Runs<'a> = Vec<(&'a Measurement, &'a FlowMeasurement)>;

/// The runs of a flow under a case that count, with what a reader must know about them. If none
/// counts, the void runs, with a note.
fn runs_of(
    measurements: &[Measurement],
    case: CaseKind,
    flow: usize,
) -> (Runs<'_>, Option<String>) {
    let all = || {
        measurements
            .iter()
            .filter(move |run| run.case == case)
            .filter_map(move |run| Some((run, run.flows.iter().find(|f| f.flow == flow)?)))
    };
    let counted: Runs<'_> = all().filter(|(run, _)| run.validity.counts()).collect();
    if counted.is_empty() {
        let note = all().next().map(|(run, _)| run.validity.to_string());
        return (all().collect(), note);
    }
    let void = all().count() - counted.len();
    let mut notes = Vec::new();
    if void > 0 {
        notes.push(format!("{void} void runs left out"));
    }
    if counted.iter().any(|(run, _)| !run.validity.is_valid()) {
        notes.push(ROUGH.to_owned());
    }
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    (counted, note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CaseKind::{
        Direct, DirectBbr, Haproxy, Midspan, MidspanEarly, MidspanForward, Oracle, Overlay, Pepsal,
        Thin,
    };

    #[test]
    fn midspan_is_compared_with_all_and_its_forward_kind_with_its_kind() {
        assert_eq!(comparisons(&[Direct]), []);
        assert_eq!(comparisons(&[Direct, Midspan]), [(Midspan, Direct)]);
        assert_eq!(comparisons(&[Direct, Thin]), [(Thin, Direct)]);
        assert_eq!(
            comparisons(&[Direct, Haproxy, Midspan, MidspanForward]),
            [
                (Midspan, Direct),
                (Midspan, Haproxy),
                (Midspan, MidspanForward),
                (MidspanForward, Haproxy)
            ]
        );
        assert_eq!(
            comparisons(&[Direct, Haproxy, MidspanForward]),
            [(MidspanForward, Direct), (MidspanForward, Haproxy)]
        );
        let fixed = "overlay-static=here".parse().unwrap();
        assert_eq!(
            comparisons(&[Direct, fixed, Overlay, Oracle]),
            [
                (fixed, Direct),
                (Overlay, Direct),
                (Overlay, Oracle),
                (Oracle, Direct)
            ]
        );
        assert_eq!(
            comparisons(&[Direct, DirectBbr, Pepsal, Midspan, MidspanEarly]),
            [
                (Midspan, Direct),
                (Midspan, DirectBbr),
                (Midspan, Pepsal),
                (Midspan, MidspanEarly),
                (MidspanEarly, Pepsal)
            ]
        );
    }
}
