//! Lab runs as a report.

use std::collections::BTreeSet;

use midspan_link::QueueLimit;
use midspan_path::{Flow, Link, NodeKind, Path};
use midspan_records::Records;
use midspan_report::{
    Axis, BarPlot, Content, DirectionPicture, Download, Fact, LinePlot, LinkPicture, Method,
    NodePicture, PathPicture, Report, Section, Series, Validity, pivot,
};
use midspan_units::{TimeSpan, number};

use crate::emulator::BIN;
use crate::headline::RATIO;
use crate::results::{case_name, cases};
use crate::trace::{self, RunTrace};
use crate::versions::versions;
use crate::{Measurement, headline, validity};

/// The results of a lab run.
#[derive(Debug, Clone)]
pub struct Presentation<'a> {
    /// The path.
    pub path: &'a Path,
    /// The report's title.
    pub title: &'a str,
    /// The command that made the measurements, as it was typed.
    pub command: String,
    /// The measurements.
    pub measurements: &'a [Measurement],
    /// The traces that are plotted; may be empty.
    pub traces: &'a [RunTrace],
    /// The measurements as records.
    pub records: &'a Records,
}

impl Presentation<'_> {
    /// The report.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            title: self.title.to_owned(),
            summary: headline(&self.records.records),
            command: self.command.clone(),
            picture: self.picture(),
            sections: self.sections(),
            method: self.method(),
            records: self.records.clone(),
            downloads: self
                .path
                .to_text()
                .map(Download::path_file)
                .into_iter()
                .collect(),
        }
    }

    fn sections(&self) -> Vec<Section> {
        let (ratios, flows): (Vec<_>, Vec<_>) = self
            .records
            .records
            .iter()
            .cloned()
            .partition(|record| record.quantity == RATIO);
        let mut sections = vec![Section {
            heading: "What was measured".into(),
            text: self.what_was_done(),
            content: vec![Content::Table(pivot("", &flows))],
        }];
        let place = |record: &midspan_records::Record| {
            let (flow, case) = record.case.rsplit_once(' ')?;
            Some((flow.to_owned(), case.to_owned()))
        };
        let bars = BarPlot::from_records("Completion time", "completion time", &flows, place);
        if !bars.groups.is_empty() {
            sections.push(Section {
                heading: "Completion times".into(),
                text: String::new(),
                content: vec![Content::Bars(bars)],
            });
        }
        sections.push(Section {
            heading: "Progress".into(),
            text:
                "Data that reached the far end of the last link, against time; first repetition, \
                   data sent again included."
                    .into(),
            content: self
                .path
                .flows
                .iter()
                .enumerate()
                .map(|(index, flow)| Content::Lines(self.progress(index, flow)))
                .collect(),
        });
        sections.extend(trace::sections(self.path, self.traces));
        if !ratios.is_empty() {
            sections.push(Section {
                heading: "Midspan against the others".into(),
                text: "Below 1, Midspan is faster.".into(),
                content: vec![Content::Table(pivot("", &ratios))],
            });
        }
        sections
    }

    /// The proxies, and how to read the table.
    fn what_was_done(&self) -> String {
        let cases = cases(self.measurements).into_iter();
        let mut cases: Vec<&str> = cases.map(|case| case.description()).collect();
        // All cases with one overlay route have the same description.
        cases.dedup();
        let how = "Medians over the repetitions; the least and the greatest value in brackets.";
        cases.push(how);
        cases.join(" ")
    }

    /// Bytes received as a function of time, one line per case.
    fn progress(&self, index: usize, flow: &Flow) -> LinePlot {
        let series = self
            .measurements
            .iter()
            .filter(|run| run.repetition == 0 && run.flows.iter().any(|f| f.flow == index))
            .map(|run| {
                let points = self
                    .path
                    .data_way(flow)
                    .last()
                    .map_or_else(Vec::new, |hop| {
                        cumulative(&run.direction(hop.link, hop.direction).delivered)
                    });
                Series {
                    name: case_name(flow, run.case),
                    points,
                }
            })
            .collect();
        LinePlot {
            title: flow.name.clone(),
            x: Axis::new("time", "s"),
            y: Axis::new("received", "bytes"),
            series,
        }
    }

    /// The path of the first flow.
    fn picture(&self) -> Option<PathPicture> {
        let path = self.path;
        let flow = path.flows.first()?;
        let way = path.way(flow.from, flow.to);
        let indices = std::iter::once(flow.from).chain(way.iter().map(|hop| hop.node));
        let nodes = indices
            .map(|index| {
                let node = path.node(index);
                let (kind, detail) = match &node.kind {
                    NodeKind::Host(settings) => (
                        midspan_report::NodeKind::Host,
                        settings.congestion_control.clone().unwrap_or_default(),
                    ),
                    NodeKind::Router => (midspan_report::NodeKind::Router, String::new()),
                    NodeKind::Proxy(_) => (midspan_report::NodeKind::Proxy, "proxy".to_owned()),
                };
                NodePicture {
                    name: node.name.clone(),
                    detail,
                    kind,
                }
            })
            .collect();
        let links = way
            .iter()
            .map(|hop| {
                let link = path.link(hop.link);
                LinkPicture {
                    name: link.name.clone(),
                    forward: direction(link, hop.direction),
                    backward: direction(link, hop.direction.other()),
                }
            })
            .collect();
        Some(PathPicture {
            caption: path.description.clone(),
            nodes,
            links,
        })
    }

    fn method(&self) -> Method {
        let void: BTreeSet<String> = self
            .measurements
            .iter()
            .filter(|run| !run.validity.counts())
            .map(|run| run.validity.to_string())
            .collect();
        let remark = validity::remark(self.measurements.iter().map(|run| &run.validity));
        let kinds = cases(self.measurements);
        let programs = versions(kinds.iter().map(|kind| (*kind, self.path)));
        let cases: Vec<&str> = kinds.iter().map(|case| case.name()).collect();
        let repetitions = self.measurements.iter().map(|run| run.repetition + 1);
        let mut facts = vec![
            Fact::new("seed of the first repetition", self.path.seed),
            Fact::new("repetitions", repetitions.max().unwrap_or(0)),
            Fact::new("cases, alternating", cases.join(", ")),
        ];
        facts.extend(programs);
        Method {
            validity: if void.is_empty() {
                Validity::Valid
            } else {
                Validity::Void(void.into_iter().collect())
            },
            facts,
            notes: std::iter::once(
                "Hosts and proxies are network namespaces of one machine, each with the kernel's \
                 own TCP. Links are emulated in user space; losses are drawn from the seed, the \
                 same for every case of a repetition."
                    .into(),
            )
            .chain(remark)
            .chain(self.traces.iter().flat_map(trace_notes))
            .collect(),
        }
    }
}

/// What is missing in the traces of a run.
fn trace_notes(trace: &RunTrace) -> impl Iterator<Item = String> {
    let RunTrace { run, notes, .. } = trace;
    notes.iter().map(|note| format!("{}: {note}", run.case))
}

/// Bytes of a full packet, for the mean loss.
const PACKET: u32 = 1500;

fn direction(link: &Link, direction: midspan_path::Direction) -> DirectionPicture {
    let configuration = link.direction(direction);
    let queue = match configuration.queue {
        QueueLimit::Packets(packets) => {
            midspan_report::units::format(f64::from(packets), "packets")
        }
        QueueLimit::Bytes(size) => size.to_string(),
    };
    let changes = configuration.changes();
    DirectionPicture {
        rate: match configuration.opportunities() {
            Some(opportunities) => Some(opportunities.mean_rate()),
            None => configuration.state.rate,
        },
        delay: configuration.mean_delay(),
        loss: configuration.mean_loss(PACKET),
        queue,
        notes: changes
            .then(|| "changes over time".to_owned())
            .into_iter()
            .collect(),
    }
}

/// Sums over bins, with a point at the end of each.
fn cumulative(bins: &[u64]) -> Vec<(f64, f64)> {
    let mut sum = 0u64;
    let mut end = TimeSpan::ZERO;
    std::iter::once((0.0, 0.0))
        .chain(bins.iter().map(|bytes| {
            sum += bytes;
            end = end + BIN;
            (end.as_seconds(), number(sum))
        }))
        .collect()
}
