//! Medians, paired ratios, and their bounds.

use std::collections::BTreeSet;

use midspan_records::{Bound, By, Record, Records, Spread};
use midspan_report::{pivot, stdout_width};

use crate::accounting::COUNT;
use crate::peer::Peer;
use crate::rounds::Run;
use crate::run::Quantity;

/// The measured quantities: name, unit and the order of peers.
const QUANTITIES: [(Quantity, &str, &str); 11] = [
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
    (Quantity::IdleCpu, "share of a core, idle sessions", ""),
];

/// The ratio of a quantity of one peer to that of another.
struct Comparison {
    quantity: Quantity,
    of: Peer,
    to: Peer,
    /// What is asked; `None`: nothing, the ratio is reported.
    bound: Option<Bound>,
}

const fn compare(quantity: Quantity, of: Peer, to: Peer, bound: Option<Bound>) -> Comparison {
    Comparison {
        quantity,
        of,
        to,
        bound,
    }
}

const FORWARD: Peer = Peer::MidspanForward;
const CLIENT_RATES: Peer = Peer::MidspanClientRates;
const EARLY: Peer = Peer::MidspanEarly;
const EXPRESS: Peer = Peer::MidspanExpress;
const END_TO_END: Peer = Peer::MidspanEndToEnd;
const OTHER_FORWARD: Peer = Peer::OtherForward;
const OTHER_EARLY: Peer = Peer::OtherEarly;

/// Compared with another build: within 3 %.
const NOT_LESS: Option<Bound> = Some(Bound::AtLeast(0.97));
const NOT_MORE: Option<Bound> = Some(Bound::AtMost(1.03));

const COMPARISONS: [Comparison; 32] = [
    compare(
        Quantity::Bulk1,
        FORWARD,
        Peer::HaproxyTuned,
        Some(Bound::AtLeast(1.0)),
    ),
    compare(
        Quantity::BulkCpu1,
        FORWARD,
        Peer::HaproxyTuned,
        Some(Bound::AtMost(0.97)),
    ),
    compare(
        Quantity::Bulk16,
        FORWARD,
        Peer::HaproxyTuned,
        Some(Bound::AtLeast(1.0)),
    ),
    compare(
        Quantity::BulkCpu16,
        FORWARD,
        Peer::HaproxyTuned,
        Some(Bound::AtMost(0.9)),
    ),
    compare(
        Quantity::Connections,
        FORWARD,
        Peer::Nginx,
        Some(Bound::AtLeast(1.0)),
    ),
    compare(
        Quantity::ConnectionCpu,
        FORWARD,
        Peer::Nginx,
        Some(Bound::AtMost(0.95)),
    ),
    compare(
        Quantity::SetUpP99,
        FORWARD,
        Peer::Nginx,
        Some(Bound::AtMost(1.0)),
    ),
    compare(
        Quantity::RoundTrip,
        FORWARD,
        Peer::HaproxyTuned,
        Some(Bound::AtMost(0.9)),
    ),
    compare(
        Quantity::RoundTrip,
        EARLY,
        FORWARD,
        Some(Bound::AtMost(1.1)),
    ),
    compare(Quantity::Bulk1, EARLY, FORWARD, Some(Bound::AtLeast(0.9))),
    compare(Quantity::Bulk16, EARLY, FORWARD, Some(Bound::AtLeast(0.9))),
    compare(
        Quantity::Connections,
        EARLY,
        FORWARD,
        Some(Bound::AtLeast(0.8)),
    ),
    compare(
        Quantity::Connections,
        EXPRESS,
        FORWARD,
        Some(Bound::AtLeast(0.92)),
    ),
    compare(
        Quantity::BulkCpu1,
        EARLY,
        FORWARD,
        Some(Bound::AtMost(1.12)),
    ),
    compare(
        Quantity::BulkCpu16,
        EARLY,
        FORWARD,
        Some(Bound::AtMost(1.12)),
    ),
    compare(
        Quantity::Bulk1,
        END_TO_END,
        FORWARD,
        Some(Bound::AtLeast(0.9)),
    ),
    compare(
        Quantity::Bulk16,
        END_TO_END,
        FORWARD,
        Some(Bound::AtLeast(0.9)),
    ),
    compare(
        Quantity::Connections,
        END_TO_END,
        FORWARD,
        Some(Bound::AtLeast(0.75)),
    ),
    compare(Quantity::Bulk1, FORWARD, Peer::Routing, None),
    compare(
        Quantity::Connections,
        CLIENT_RATES,
        FORWARD,
        Some(Bound::AtLeast(0.98)),
    ),
    compare(Quantity::ConnectionCpu, CLIENT_RATES, FORWARD, None),
    compare(Quantity::BulkCpu16, CLIENT_RATES, FORWARD, None),
    compare(Quantity::Bulk1, FORWARD, OTHER_FORWARD, NOT_LESS),
    compare(Quantity::BulkCpu1, FORWARD, OTHER_FORWARD, NOT_MORE),
    compare(Quantity::Bulk16, FORWARD, OTHER_FORWARD, NOT_LESS),
    compare(Quantity::BulkCpu16, FORWARD, OTHER_FORWARD, NOT_MORE),
    compare(Quantity::Connections, FORWARD, OTHER_FORWARD, NOT_LESS),
    compare(Quantity::ConnectionCpu, FORWARD, OTHER_FORWARD, NOT_MORE),
    compare(Quantity::RoundTrip, FORWARD, OTHER_FORWARD, NOT_MORE),
    compare(Quantity::BulkCpu1, EARLY, OTHER_EARLY, NOT_MORE),
    compare(Quantity::Connections, EARLY, OTHER_EARLY, NOT_LESS),
    compare(Quantity::RoundTrip, EARLY, OTHER_EARLY, NOT_MORE),
];

/// Most bytes of own memory per idle session, and the largest share of a core for all of them.
const IDLE_MEMORY: f64 = 1024.0;
const IDLE_CPU: f64 = 0.001;

/// The results.
pub struct Verdict {
    /// Medians and ratios.
    pub records: Records,
    seconds: f64,
    runs: usize,
}

impl Verdict {
    /// Evaluates all runs.
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
                if let Some(spread) = Spread::of(&values).filter(|spread| spread.median > 0.0) {
                    let record = record("peers", peer.name(), name, unit, &spread);
                    let bound = match quantity {
                        Quantity::IdleMemory => Some(IDLE_MEMORY),
                        Quantity::IdleCpu => Some(IDLE_CPU),
                        _ => None,
                    };
                    records.push(match bound.filter(|_| peer == FORWARD) {
                        Some(most) => judged(record, &spread, Bound::AtMost(most)),
                        None => record,
                    });
                }
            }
        }
        for peer in Peer::ALL {
            records.records.extend(accounts(runs, peer));
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

    /// Prints the results as tables.
    pub fn print(&self, rounds: usize, congestion_control: &str) {
        for (item, title) in [
            ("peers", "Each peer: median and 95 % interval"),
            (
                "accounts",
                "Where the time goes while connections are opened, per connection",
            ),
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
            "{} runs of {each:.1} s ({rounds} rounds), {:.0} s in all; all hosts have {congestion_control}",
            self.runs, self.seconds
        );
    }
}

/// The accounts of a peer: medians of all rounds. An account that is missing in a round is zero in
/// that round.
fn accounts(runs: &[Run], peer: Peer) -> Vec<Record> {
    let runs: Vec<&Run> = runs.iter().filter(|run| run.peer == peer).collect();
    let all = runs.iter().flat_map(|run| &run.accounts);
    let names: BTreeSet<&str> = all.map(|(name, _)| name.as_str()).collect();
    let record_of = |name: &str| {
        let of_run = |run: &&Run| {
            let found = run.accounts.iter().find(|(account, _)| account == name);
            found.map_or(0.0, |(_, value)| *value)
        };
        let values: Vec<f64> = runs.iter().map(of_run).collect();
        let spread = Spread::of(&values)?;
        let unit = match name.starts_with(COUNT) {
            true => "",
            false => "s",
        };
        let is_notable = match unit {
            "s" => spread.median >= LEAST_TIME,
            _ => spread.median > 0.0,
        };
        is_notable.then(|| {
            let record = record("accounts", name, peer.name(), unit, &spread);
            record.with_note("per connection")
        })
    };
    names.into_iter().filter_map(record_of).collect()
}

/// Accounts of less time per connection, in seconds, are left out.
const LEAST_TIME: f64 = 0.2e-6;

fn value(run: &Run, quantity: Quantity) -> Option<f64> {
    let found = run.values.iter().find(|(which, _)| *which == quantity);
    found.map(|(_, value)| *value)
}

fn record(item: &str, case: &str, name: &str, unit: &str, spread: &Spread) -> Record {
    Record::new(item, case, name, unit, By::Measurement, spread.median).with_interval(spread)
}

/// The record with the verdict and the bound.
fn judged(record: Record, spread: &Spread, bound: Bound) -> Record {
    match bound.verdict(spread, None) {
        Some(ok) => record.with_ok(ok).with_note(bound.to_string()),
        None => record.with_note(format!("{bound}: open, the interval holds it")),
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
    let spread = Spread::of(&ratios)?;
    let record = record("ratio", &case, name, "", &spread);
    Some(match comparison.bound {
        Some(bound) => judged(record, &spread, bound),
        None => record,
    })
}
