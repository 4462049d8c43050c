//! A run, and the values that are stored of it.

use midspan_lab::{Case, FlowResult, Measurement, Progress, Purpose};
use midspan_link::Histogram;
use midspan_path::{Flow, NodeKind, Path};
use midspan_records::statistics::quantile;
use midspan_units::BitRate;
use serde::{Deserialize, Serialize};

use super::LaboratoryError;
use crate::run::number;

/// Seconds after which the first slow start is over.
const START: usize = 3;

/// The stored values of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The point's name.
    pub point: String,
    /// The case's name.
    #[serde(rename = "arm")]
    pub case: String,
    /// The number of the repetition, from 0.
    pub repetition: u32,
    /// Why the run is void; `None` if it is valid.
    pub void: Option<String>,
    /// The flows, in the order of the path; empty if the run failed.
    pub transfers: Vec<Transfer>,
    /// Pure ACKs sent into the narrow upstream.
    pub acks: f64,
    /// Packets that found a queue full on the path of the first flow's data.
    pub overflows: f64,
    /// Segments sent again.
    pub retransmissions: f64,
    /// Retransmission time-outs.
    pub timeouts: f64,
    /// What the links behind proxies carried for the first flow.
    #[serde(default)]
    pub wire: Wire,
}

/// Counts at the links behind a proxy, in the direction of the first flow's data, after the start.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// The length in segments that 99.9 % of the bursts into the links behind proxies do not
    /// exceed; 0 if there are none.
    pub burst: f64,
    /// The longest of these bursts.
    pub longest: f64,
    /// Packets that found a queue full.
    pub dropped: f64,
}

/// The stored values of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// The completion time in seconds; `None` if the duration is fixed.
    pub completion: Option<f64>,
    /// Goodput in bit/s.
    pub goodput: f64,
    /// For requests and responses, the time in seconds that 95 % of the responses do not exceed.
    #[serde(default)]
    pub p95: Option<f64>,
}

/// Makes a run in the lab. A transfer that fails makes the run void. `say` gets a message if a run
/// is repeated.
pub(super) fn make(
    point: &str,
    case: &Case,
    repetition: u32,
    say: &mut dyn FnMut(&str),
) -> Result<Run, LaboratoryError> {
    let cases = std::slice::from_ref(case);
    let this = repetition..repetition.saturating_add(1);
    let made = midspan_lab::run(cases, this, Purpose::Measurement, &mut |progress| {
        if let Progress::Again(validity) = progress {
            say(&format!("repeated, because it was {validity}"));
        }
    });
    let mut run = Run::new(point, case.name, repetition);
    match made {
        Ok(measurements) => measurements.iter().for_each(|one| run.add(&case.path, one)),
        // A failure of the transfer, not of the set-up. A transfer that never ends is a result too.
        Err(error) if error.is_of_transfer() => run.void = Some(error.to_string()),
        Err(error) => return Err(error.into()),
    }
    Ok(run)
}

impl Run {
    /// A run without values yet.
    pub(super) fn new(point: &str, case: &str, repetition: u32) -> Self {
        Self {
            point: point.to_owned(),
            case: case.to_owned(),
            repetition,
            void: None,
            transfers: Vec::new(),
            acks: 0.0,
            overflows: 0.0,
            retransmissions: 0.0,
            timeouts: 0.0,
            wire: Wire::default(),
        }
    }

    /// Whether the transfer failed, or did not end within its limit.
    pub(super) fn has_failed(&self) -> bool {
        self.void.is_some() && self.transfers.is_empty()
    }

    /// The completion time in seconds, if there is one transfer only.
    fn completion(&self) -> Option<f64> {
        match self.transfers.as_slice() {
            [one] => one.completion,
            _ => None,
        }
    }

    /// The same, of a valid run.
    pub(super) fn valid_completion(&self) -> Option<f64> {
        self.completion().filter(|_| self.void.is_none())
    }

    fn add(&mut self, path: &Path, measured: &Measurement) {
        if !measured.validity.is_valid() {
            self.void = Some(measured.validity.to_string());
        }
        for one in &measured.flows {
            let Some(flow) = path.flows.get(one.flow) else {
                continue;
            };
            self.transfers.push(Transfer {
                completion: one.completion().map(|time| time.as_seconds()),
                goodput: one.goodput(flow).unwrap_or_default(),
                p95: p95(&one.result),
            });
        }
        // Downloads first: if a flow also uploads, the ACKs of its download count.
        if let Some(flow) = path.flows.first() {
            self.acks += number(acks(path, flow, measured));
            self.wire.add(path, flow, measured);
            let way = path.data_way(flow);
            self.overflows += way
                .iter()
                .map(|hop| measured.direction(hop.link, hop.direction))
                .map(|report| number(report.counters.queue_full.packets))
                .sum::<f64>();
        }
        self.retransmissions += number(measured.retransmissions);
        self.timeouts += number(measured.timeouts);
    }

    /// One line for the person who waits.
    pub(super) fn line(&self, case: &Case) -> String {
        let goodput: f64 = self.transfers.iter().map(|one| one.goodput).sum();
        let goodput = if case.is_staggered() {
            format!(
                "{} transfers, {} time-outs",
                self.transfers.len(),
                self.timeouts
            )
        } else {
            midspan_report::units::format(goodput, "bit/s")
        };
        let time = self.completion().map_or_else(String::new, |time| {
            format!(" in {}", midspan_report::units::format(time, "s"))
        });
        let void = self
            .void
            .as_ref()
            .map_or_else(String::new, |reason| format!("  ({reason})"));
        let (point, case) = (&self.point, &self.case);
        format!("{point}: {case}: {goodput}{time}, {} ACKs{void}", self.acks)
    }
}

impl Wire {
    fn add(&mut self, path: &Path, flow: &Flow, measured: &Measurement) {
        let way = path.data_way(flow);
        let mut from = if flow.workload.is_upload() {
            flow.from
        } else {
            flow.to
        };
        let mut is_behind = false;
        let mut bursts = Histogram::default();
        for hop in &way {
            let is_proxy = matches!(path.node(from).kind, NodeKind::Proxy(_));
            is_behind |= is_proxy;
            let report = measured.direction(hop.link, hop.direction);
            for second in report.seconds.iter().skip(START) {
                if is_proxy {
                    bursts.merge(&second.bursts);
                }
                if is_behind {
                    self.dropped += number(second.queue_full);
                }
            }
            from = hop.node;
        }
        // The largest value of all measurements of the run.
        let worst = |now: f64, seen: Option<u64>| now.max(number(seen.unwrap_or(0)));
        self.burst = worst(self.burst, bursts.quantile(999));
        self.longest = worst(self.longest, bursts.largest());
    }
}

fn p95(result: &FlowResult) -> Option<f64> {
    let FlowResult::RequestResponse { times } = result else {
        return None;
    };
    let times: Vec<f64> = times.iter().map(|time| time.as_seconds()).collect();
    quantile(&times, 0.95)
}

/// Pure ACKs that were sent into the narrowest link on the ACKs' path.
fn acks(path: &Path, flow: &Flow, measured: &Measurement) -> u64 {
    let way = path.data_way(flow);
    let back = way.iter().map(|hop| (hop.link, hop.direction.other()));
    back.min_by_key(|(link, direction)| {
        let rate = path.link(*link).direction(*direction).state.rate;
        rate.map_or(u64::MAX, BitRate::bits_per_second)
    })
    .map_or(0, |(link, direction)| {
        measured.direction(link, direction).pure_acks
    })
}
