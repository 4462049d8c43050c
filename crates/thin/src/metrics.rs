//! The metrics of the agent.
//!
//! `docs/thin.md` has them as a table, which a test holds equal to [`METRICS`].

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::Status;

/// A metric of the agent.
struct Metric {
    kind: Kind,
    /// Its name without `midspan_thin_`, and without the unit.
    name: &'static str,
    help: &'static str,
    read: fn(&Status) -> u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Bytes,
    Gauge,
}

impl Metric {
    const fn new(
        kind: Kind,
        name: &'static str,
        help: &'static str,
        read: fn(&Status) -> u64,
    ) -> Self {
        Self {
            kind,
            name,
            help,
            read,
        }
    }
}

/// All metrics.
const METRICS: &[Metric] = &[
    Metric::new(
        Kind::Counter,
        "acks_seen",
        "Pure ACKs of known connections that were examined.",
        |s| s.acks_seen,
    ),
    Metric::new(
        Kind::Counter,
        "acks_sent",
        "Examined ACKs that left.",
        |s| s.acks_sent,
    ),
    Metric::new(
        Kind::Counter,
        "acks_saved",
        "Examined ACKs that a later ACK replaced.",
        |s| s.acks_saved,
    ),
    Metric::new(
        Kind::Bytes,
        "acks_seen",
        "Bytes of the examined ACKs, at the network layer.",
        |s| s.bytes_seen,
    ),
    Metric::new(
        Kind::Bytes,
        "acks_saved",
        "Bytes of the replaced ACKs, at the network layer.",
        |s| s.bytes_saved,
    ),
    Metric::new(
        Kind::Counter,
        "packets_passed",
        "Other packets, which passed: data, SYN, FIN, RST.",
        |s| s.others,
    ),
    Metric::new(
        Kind::Counter,
        "packets_unreadable",
        "Packets that passed because they could not be parsed.",
        |s| s.unreadable,
    ),
    Metric::new(
        Kind::Counter,
        "packets_untracked",
        "Packets that passed because there were too many connections.",
        |s| s.untracked,
    ),
    Metric::new(
        Kind::Counter,
        "acks_unheld",
        "ACKs that passed because too many ACKs waited.",
        |s| s.unheld,
    ),
    Metric::new(
        Kind::Counter,
        "timeouts",
        "ACKs that left because their maximum waiting time was over.",
        |s| s.timeouts,
    ),
    Metric::new(
        Kind::Counter,
        "headers_lost",
        "Headers of arriving packets that were lost before they were read.",
        |s| s.headers_lost,
    ),
    Metric::new(Kind::Gauge, "flows", "Known connections.", |s| s.flows),
    Metric::new(Kind::Gauge, "acks_held", "ACKs that are waiting.", |s| {
        s.held
    }),
];

/// The numbers at one moment.
#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in METRICS {
            let name = format!("midspan_thin_{}", metric.name);
            let (kind, unit) = match metric.kind {
                Kind::Counter => (MetricType::Counter, None),
                Kind::Bytes => (MetricType::Counter, Some(Unit::Bytes)),
                Kind::Gauge => (MetricType::Gauge, None),
            };
            let help = metric.help.trim_end_matches('.');
            let mut encoder = encoder.encode_descriptor(&name, help, unit.as_ref(), kind)?;
            let value = (metric.read)(&self.0);
            match metric.kind {
                Kind::Gauge => encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))?,
                Kind::Counter | Kind::Bytes => {
                    encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                }
            }
        }
        Ok(())
    }
}

/// The numbers in the OpenMetrics text format.
///
/// # Errors
/// None that is known.
pub(crate) fn encode(status: Status) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTATION: &str = include_str!("../../../docs/thin.md");

    #[test]
    fn the_documentation_has_them_all() {
        let row = |metric: &Metric| {
            let (kind, ending) = match metric.kind {
                Kind::Counter => ("counter", "_total"),
                Kind::Bytes => ("counter", "_bytes_total"),
                Kind::Gauge => ("gauge", ""),
            };
            let (name, help) = (metric.name, metric.help);
            format!("| `midspan_thin_{name}{ending}` | {kind} | {help} |\n")
        };
        let table: String = METRICS.iter().map(row).collect();
        assert!(
            DOCUMENTATION.contains(&table),
            "docs/thin.md must have this table:\n{table}"
        );
    }

    #[test]
    fn the_text_is_as_its_format_says() {
        let status = Status {
            acks_seen: 7,
            bytes_saved: 520,
            flows: 2,
            ..Status::default()
        };
        let text = encode(status).unwrap();
        for line in [
            "# TYPE midspan_thin_acks_seen counter",
            "midspan_thin_acks_seen_total 7",
            "midspan_thin_acks_saved_bytes_total 520",
            "midspan_thin_flows 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
