//! Medians, paired ratios, and the bounds they are to hold.

use midspan_records::statistics::{Median, median};
use midspan_records::{By, Record, Records};
use midspan_report::{pivot, stdout_width};

use crate::peer::Peer;
use crate::rounds::Run;
use crate::run::Quantity;

/// Name, unit and peers' order of what is measured.
const QUANTITIES: [(Quantity, &str, &str); 10] = [
    (Quantity::Bulk1, "rate, 1 flow", "bit/s"),
    (Quantity::BulkCpu1, "CPU time per byte, 1 flow", "s/byte"),
    (Quantity::Bulk16, "rate, 16 flows", "bit/s"),
    (Quantity::BulkCpu16, "CPU time per byte, 16 flows", "s/byte"),
    (Quantity::Connections, "connection rate", "1/s"),
    (Quantity::ConnectionCpu, "CPU time per connection", "s"),
    (Quantity::SetUpMedian, "set-up time, median", "s"),
    (Quantity::SetUpP99, "set-up time, 99 % below", "s"),
    (Quantity::RoundTrip, "round trip of one byte", "s"),
    (Quantity::IdleMemory, "own memory per idle session", "bytes"),
];

/// What is asked of a ratio.
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing: it is reported.
    Reported,
}

/// A quantity of one peer over that of another.
struct Comparison {
    quantity: Quantity,
    of: Peer,
    to: Peer,
    bound: Bound,
}

const fn compare(quantity: Quantity, of: Peer, to: Peer, bound: Bound) -> Comparison {
    Comparison {
        quantity,
        of,
        to,
        bound,
    }
}

const FORWARD: Peer = Peer::MidspanForward;
const EARLY: Peer = Peer::MidspanEarly;
const END_TO_END: Peer = Peer::MidspanEndToEnd;

const COMPARISONS: [Comparison; 15] = [
    compare(
        Quantity::Bulk1,
        FORWARD,
        Peer::HaproxyTuned,
        Bound::AtLeast(1.0),
    ),
    compare(
        Quantity::BulkCpu1,
        FORWARD,
        Peer::HaproxyTuned,
        Bound::AtMost(1.0),
    ),
    compare(
        Quantity::Bulk16,
        FORWARD,
        Peer::HaproxyTuned,
        Bound::AtLeast(1.0),
    ),
    compare(
        Quantity::BulkCpu16,
        FORWARD,
        Peer::HaproxyTuned,
        Bound::AtMost(1.0),
    ),
    compare(
        Quantity::Connections,
        FORWARD,
        Peer::Nginx,
        Bound::AtLeast(1.0),
    ),
    compare(
        Quantity::ConnectionCpu,
        FORWARD,
        Peer::Nginx,
        Bound::AtMost(1.0),
    ),
    compare(Quantity::SetUpP99, FORWARD, Peer::Nginx, Bound::AtMost(1.0)),
    compare(
        Quantity::RoundTrip,
        FORWARD,
        Peer::HaproxyTuned,
        Bound::AtMost(1.0),
    ),
    compare(Quantity::Bulk1, EARLY, FORWARD, Bound::AtLeast(0.9)),
    compare(Quantity::Bulk16, EARLY, FORWARD, Bound::AtLeast(0.9)),
    compare(Quantity::Connections, EARLY, FORWARD, Bound::AtLeast(0.75)),
    compare(Quantity::Bulk1, END_TO_END, FORWARD, Bound::AtLeast(0.9)),
    compare(Quantity::Bulk16, END_TO_END, FORWARD, Bound::AtLeast(0.9)),
    compare(Quantity::Connections, END_TO_END, FORWARD, Bound::Reported),
    compare(Quantity::Bulk1, FORWARD, Peer::Routing, Bound::Reported),
];

/// Most bytes of own memory an idle session may take.
const IDLE_MEMORY: f64 = 1024.0;

/// What came out.
pub struct Verdict {
    /// Medians and ratios.
    pub records: Records,
    seconds: f64,
    runs: usize,
}

impl Verdict {
    /// Of all runs.
    pub fn of(runs: &[Run]) -> Self {
        let mut records = Records::default();
        for peer in Peer::ALL {
            for (quantity, name, unit) in QUANTITIES {
                let values: Vec<f64> = runs
                    .iter()
                    .filter(|run| run.peer == peer)
                    .filter_map(|run| value(run, quantity))
                    .collect();
                // Plain routing has no process.
                if let Some(middle) = median(&values).filter(|middle| middle.value > 0.0) {
                    let record = record("peers", peer.name(), name, unit, middle);
                    let is_bounded = quantity == Quantity::IdleMemory && peer == FORWARD;
                    records.push(match is_bounded {
                        true => judged(record, &Bound::AtMost(IDLE_MEMORY)),
                        false => record,
                    });
                }
            }
        }
        for comparison in &COMPARISONS {
            if let Some(record) = ratio(runs, comparison) {
                records.push(record);
            }
        }
        Self {
            records,
            seconds: runs.iter().map(|run| run.seconds).sum(),
            runs: runs.len(),
        }
    }

    /// Whether no bound was missed.
    pub fn is_met(&self) -> bool {
        self.records
            .records
            .iter()
            .all(|record| record.ok != Some(false))
    }

    /// Tables for people.
    pub fn print(&self, rounds: usize) {
        for (item, title) in [
            ("peers", "Each peer: median and 95 % interval"),
            (
                "ratio",
                "Ratios of the same round: median and 95 % interval",
            ),
        ] {
            let records: Vec<Record> = self
                .records
                .records
                .iter()
                .filter(|record| record.item == item)
                .cloned()
                .collect();
            println!("{}", pivot(title, &records).to_text(stdout_width()));
        }
        let each = self.seconds / self.runs.max(1) as f64;
        println!(
            "{} runs of {each:.1} s ({rounds} rounds), {:.0} s in all",
            self.runs, self.seconds
        );
    }
}

fn value(run: &Run, quantity: Quantity) -> Option<f64> {
    let found = run.values.iter().find(|(which, _)| *which == quantity);
    found.map(|(_, value)| *value)
}

fn record(item: &str, case: &str, name: &str, unit: &str, middle: Median) -> Record {
    Record::new(item, case, name, unit, By::Measurement, middle.value)
        .with_spread(middle.low, middle.high)
}

/// A bound is met where the median meets it, missed where the interval lies wholly beyond it, and
/// open between.
fn judged(record: Record, bound: &Bound) -> Record {
    let (low, high) = (
        record.low.unwrap_or(record.value),
        record.high.unwrap_or(record.value),
    );
    let (is_met, is_missed, text) = match bound {
        Bound::AtLeast(least) => (
            record.value >= *least,
            high < *least,
            format!("at least {least}"),
        ),
        Bound::AtMost(most) => (
            record.value <= *most,
            low > *most,
            format!("at most {most}"),
        ),
        Bound::Reported => return record,
    };
    match (is_met, is_missed) {
        (true, _) => record.with_ok(true).with_note(text),
        (false, true) => record.with_ok(false).with_note(text),
        (false, false) => record.with_note(format!("{text}: open, the interval holds it")),
    }
}

fn ratio(runs: &[Run], comparison: &Comparison) -> Option<Record> {
    let of_peer = |peer: Peer, round: usize| {
        runs.iter()
            .find(|run| (run.peer, run.round) == (peer, round))
            .and_then(|run| value(run, comparison.quantity))
    };
    let rounds = runs.iter().map(|run| run.round).max()? + 1;
    let ratios: Vec<f64> = (0..rounds)
        .filter_map(|round| {
            let of = of_peer(comparison.of, round)?;
            let to = of_peer(comparison.to, round)?;
            (to > 0.0).then_some(of / to)
        })
        .collect();
    let (_, name, _) = QUANTITIES
        .iter()
        .find(|(which, ..)| *which == comparison.quantity)?;
    let case = format!("{} / {}", comparison.of.name(), comparison.to.name());
    let record = record("ratio", &case, name, "", median(&ratios)?);
    Some(judged(record, &comparison.bound))
}
