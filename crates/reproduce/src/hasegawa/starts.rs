//! The ways in which a session begins oversized segments, compared with normal segments: Midspan's
//! probe, the paper's SYN/ACK with the oversized MSS, and the paper's duplicate start (§6.2).

use midspan_policy::oversized_segments::OversizedStart;
use midspan_records::Record;
use midspan_report::{Axis, LinePlot, Series};
use midspan_sweep::in_parallel;
use midspan_units::{Probability, TimeSpan};

use super::testbed::{Client, Measured, Testbed, Windows};
use crate::run::{number, simulated};
use crate::{Effort, Error, FigurePlot, Simulated};

pub(super) const ITEM: &str = "starts";
const SIZES: [(u64, &str); 3] = [
    (100_000, "100 KB"),
    (1_000_000, "1 MB"),
    (10_000_000, "10 MB"),
];
const WAYS: [(&str, Option<OversizedStart>); 4] = [
    ("normal segments", None),
    ("probe", Some(OversizedStart::Probe)),
    ("SYN/ACK", Some(OversizedStart::SynAck)),
    ("duplicate start", Some(OversizedStart::Duplicate)),
];
/// 32 kbit/s upstream, and the propagation delays of the round trip in milliseconds.
const UP: u64 = 32_000;
const ROUND_TRIPS: [u64; 2] = [0, 500];

/// How the path treats fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fragments {
    Pass,
    Dropped,
    Lost,
}

impl Fragments {
    const ALL: [Self; 3] = [Self::Pass, Self::Dropped, Self::Lost];

    const fn name(self) -> &'static str {
        match self {
            Self::Pass => "fragments pass",
            Self::Dropped => "fragments are dropped",
            Self::Lost => "1 % of packets and fragments lost",
        }
    }

    /// The number of runs: cases with random loss are repeated.
    const fn runs(self, quick: bool) -> u64 {
        match (self, quick) {
            (Self::Lost, true) => 5,
            (Self::Lost, false) => 50,
            _ => 1,
        }
    }
}

/// One case with all its runs.
struct Case {
    fragments: Fragments,
    round_trip: u64,
    size: (u64, &'static str),
    way: (&'static str, Option<OversizedStart>),
    runs: Vec<Measured>,
}

impl Case {
    fn bed(&self, run: u64) -> Result<Testbed, Error> {
        // With a long delay, the client also has a large window.
        let windows = match self.round_trip {
            0 => Windows::Default,
            _ => Windows::Wso,
        };
        let mut bed = Testbed::new(Client::Two, UP, windows);
        bed.round_trip = TimeSpan::from_milliseconds(self.round_trip);
        bed.way = self.way.1;
        bed.size = self.size.0;
        bed.drops_fragments = self.fragments == Fragments::Dropped;
        if self.fragments == Fragments::Lost {
            bed.loss = "1 %".parse::<Probability>()?;
        }
        bed.seed = run + 1;
        Ok(bed)
    }

    fn name(&self) -> String {
        let (size, way) = (self.size.1, self.way.0);
        format!(
            "{way}, {size}, {} ms, {}",
            self.round_trip,
            self.fragments.name()
        )
    }

    fn broken(&self) -> u64 {
        self.runs.iter().filter(|run| run.time.is_none()).count() as u64
    }

    /// The mean over the runs that ended.
    fn mean(&self, value: impl Fn(&Measured) -> f64) -> Option<f64> {
        let ended = || self.runs.iter().filter(|run| run.time.is_some());
        let count = number(ended().count() as u64);
        (count > 0.0).then(|| ended().map(value).sum::<f64>() / count)
    }

    fn time(&self) -> Option<f64> {
        self.mean(|run| run.time.unwrap_or(0.0))
    }

    fn records(&self) -> Vec<Record> {
        let name = self.name();
        let mut broken = simulated(ITEM, &name, "broken downloads", "", number(self.broken()));
        // With SYN/ACK, a session cannot fall back: the item shows how many downloads break.
        if self.way.1 != Some(OversizedStart::SynAck) {
            broken.ok = Some(self.broken() == 0);
        }
        let mut records = vec![broken];
        if let Some(time) = self.time() {
            records.push(simulated(ITEM, &name, "completion time", "s", time));
        }
        if let Some(again) = self.mean(|run| number(run.again)) {
            records.push(simulated(ITEM, &name, "sent again", "bytes", again));
        }
        records
    }
}

/// The item "starts".
pub(super) fn starts(effort: &Effort, progress: &mut dyn FnMut(&str)) -> Result<Simulated, Error> {
    progress(ITEM);
    let mut cases = Vec::new();
    for fragments in Fragments::ALL {
        for round_trip in ROUND_TRIPS {
            for size in SIZES {
                cases.extend(WAYS.map(|way| Case {
                    fragments,
                    round_trip,
                    size,
                    way,
                    runs: Vec::new(),
                }));
            }
        }
    }
    let runs: Vec<(usize, u64)> = (cases.iter().enumerate())
        .flat_map(|(index, case)| {
            (0..case.fragments.runs(effort.quick)).map(move |run| (index, run))
        })
        .collect();
    let one = |run: usize| {
        let (index, run) = runs[run];
        cases[index].bed(run)?.run()
    };
    let measured = in_parallel(runs.len(), effort.threads, one, |_| ())?;
    for ((index, _), measured) in runs.iter().zip(measured) {
        cases[*index].runs.push(measured);
    }
    Ok(Simulated {
        records: cases.iter().flat_map(Case::records).collect(),
        figures: vec![FigurePlot::new(ITEM, plot(&cases))],
    })
}

/// Completion times over 500 ms.
fn plot(cases: &[Case]) -> LinePlot {
    let mut series = Vec::new();
    for fragments in Fragments::ALL {
        for (way, _) in WAYS {
            let of = |case: &&Case| {
                case.fragments == fragments && case.way.0 == way && case.round_trip == 500
            };
            let points: Vec<_> = cases
                .iter()
                .filter(of)
                .filter_map(|case| Some((number(case.size.0), case.time()?)))
                .collect();
            if !points.is_empty() {
                series.push(Series {
                    name: format!("{way}, {}", fragments.name()),
                    points,
                });
            }
        }
    }
    LinePlot {
        title: "client 2, 32 kbit/s up, 500 ms".to_owned(),
        x: Axis::new("size", "bytes").on_a_logarithmic_scale(),
        y: Axis::new("completion time", "s").on_a_logarithmic_scale(),
        series,
    }
}
