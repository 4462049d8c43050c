//! Table and records.

use midspan_records::{By, Record, Records};
use midspan_report::{Table, pivot_of};

use crate::download::Download;
use crate::measure::{Outcome, Pair, Plan};

const SUMMARY: &str = "client stacks";
const EACH: &str = "each size";

/// One line: a stack and a version of IP.
pub struct Line {
    /// Name and version of the stack.
    pub stack: String,
    /// Version of IP.
    pub family: &'static str,
    /// The measurement, or the reason why there is none.
    pub outcome: Result<Outcome, String>,
}

impl Line {
    fn case(&self) -> String {
        format!("{}, {}", self.stack, self.family)
    }

    /// Why there is no measurement, or `None` if there is one.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        let why = self.outcome.as_ref().err()?;
        Some(format!("{}: not measured: {why}", self.case()))
    }
}

/// Number of ACKs for a million bytes.
fn acknowledgements(download: &Download, plan: &Plan) -> f64 {
    download.traffic.acknowledgements as f64 * 1e6 / plan.bytes as f64
}

/// A line for each stack and version of IP, and one for each size that was tried.
#[must_use]
pub fn tables(records: &Records, plan: &Plan) -> Vec<Table> {
    let bytes = plan.bytes;
    let titles = [
        (
            SUMMARY,
            format!(
                "TCP stacks as clients: downloads of {bytes} bytes at {}",
                plan.rate
            ),
        ),
        (EACH, "Each size, second download".to_owned()),
    ];
    let table = |(item, title): (&str, String)| {
        let of_item = records.records.iter().filter(|one| one.item == item);
        let records: Vec<Record> = of_item.cloned().collect();
        let mut quantities: Vec<&str> = Vec::new();
        for record in &records {
            if !quantities.contains(&record.quantity.as_str()) {
                quantities.push(&record.quantity);
            }
        }
        pivot_of(&title, &records, &quantities)
    };
    titles.into_iter().map(table).collect()
}

/// All numbers.
#[must_use]
pub fn records(lines: &[Line], plan: &Plan) -> Records {
    let mut records = Records::default();
    for line in lines {
        let Ok(outcome) = &line.outcome else { continue };
        let case = line.case();
        summarize(&mut records, &case, outcome, plan);
        for pair in &outcome.pairs {
            detail(
                &mut records,
                &format!("{case}, {} B", pair.size),
                pair,
                plan,
            );
        }
        let case = format!("{case}, {} B, no fragments arrive", outcome.dropped.size);
        detail(&mut records, &case, &outcome.dropped, plan);
    }
    records
}

fn summarize(records: &mut Records, case: &str, outcome: &Outcome, plan: &Plan) {
    let mut push = |quantity: &str, unit: &str, value: f64| {
        records.push(record(SUMMARY, case, quantity, unit, value));
    };
    let taken = outcome.pairs.iter().filter(|pair| pair.is_taken()).count();
    push("sizes taken", "", taken as f64);
    let largest = outcome.pairs.iter().rev().find(|pair| pair.is_taken());
    let sent = largest.and_then(|pair| pair.downloads[1].traffic.largest());
    if let Some(bytes) = sent {
        push("largest taken", "bytes", bytes as f64);
    }
    let smallest = outcome.pairs.iter().find(|pair| pair.is_taken());
    if let Some(traffic) = smallest.map(|pair| &pair.downloads[1].traffic) {
        let each = traffic.acknowledgements_each().unwrap_or_default();
        push("ACKs per oversized segment, smallest", "", each);
    }
    let normal = acknowledgements(&outcome.normal, plan);
    push("ACKs per MB, normal segments", "", normal);
    for (quantity, pair) in [
        ("ACKs per MB, smallest oversized", smallest),
        ("ACKs per MB, largest oversized", largest),
    ] {
        if let Some(pair) = pair {
            push(quantity, "", acknowledgements(&pair.downloads[1], plan));
        }
    }
    let fallbacks: u64 = outcome.pairs.iter().map(|pair| pair.fallbacks).sum();
    push("fallbacks, all sizes", "", fallbacks as f64);
    push(
        "fallbacks, no fragments arrive",
        "",
        outcome.dropped.fallbacks as f64,
    );
    let time = |download: &Download| download.time.as_secs_f64();
    push("time, normal segments", "s", time(&outcome.normal));
    let slowest = |pair: &Pair| pair.downloads.iter().map(time).fold(0.0, f64::max);
    push(
        "slowest, no fragments arrive",
        "s",
        slowest(&outcome.dropped),
    );
}

fn detail(records: &mut Records, case: &str, pair: &Pair, plan: &Plan) {
    let [first, second] = &pair.downloads;
    let traffic = &second.traffic;
    let mut push = |quantity: &str, unit: &str, value: f64| {
        records.push(record(EACH, case, quantity, unit, value));
    };
    push("taken", "", f64::from(u8::from(pair.is_taken())));
    push("probes", "", pair.probes as f64);
    push("fallbacks", "", pair.fallbacks as f64);
    push("oversized segments", "", traffic.oversized.len() as f64);
    push("fragments", "", traffic.fragments as f64);
    push(
        "oversized share of data",
        "share",
        traffic.oversized_share(),
    );
    if let Some(bytes) = traffic.largest() {
        push("largest segment", "bytes", bytes as f64);
    }
    if let Some(each) = traffic.acknowledgements_each() {
        push("ACKs per oversized segment", "", each);
    }
    push("ACKs per MB", "", acknowledgements(second, plan));
    push("time of the first", "s", first.time.as_secs_f64());
    push("time of the second", "s", second.time.as_secs_f64());
}

fn record(item: &str, case: &str, quantity: &str, unit: &str, value: f64) -> Record {
    Record::new(item, case, quantity, unit, By::Measurement, value)
}
