//! The plan of a network as sentences, a table and records.

use midspan_records::{By, Record};
use midspan_report::units::format;
use midspan_report::{Alignment, Cell, Table};
use midspan_units::number;

use super::{NetworkPlan, PairPlan};
use crate::answer::Answer;

/// With a smaller gain, overlay nodes are not worthwhile.
const HARDLY: f64 = 1.05;

impl NetworkPlan {
    /// The advice, and how far the search went, one sentence in each line.
    #[must_use]
    pub fn text(&self) -> String {
        let size = format(number(self.size.bytes()), "bytes");
        let (gain, pairs) = (self.gain(), self.pairs.len());
        let mut lines = vec![match (&self.nodes[..], gain) {
            ([], _) => format!("No overlay node makes a transfer of {size} faster."),
            (nodes, Some(gain)) if gain < HARDLY => format!(
                "Overlay nodes hardly make a transfer of {size} faster: at {}, {gain:.2} times.",
                nodes.join(", ")
            ),
            (nodes, gain) => {
                let times = gain.map_or_else(
                    || "arrives, which it does not directly".to_owned(),
                    |gain| match pairs {
                        1 => format!("arrives {gain:.1} times as fast"),
                        _ => format!(
                            "arrives {gain:.1} times as fast (geometric mean of {pairs} pairs of hosts)"
                        ),
                    },
                );
                format!("Put overlay nodes at {}: {size} {times}.", nodes.join(", "))
            }
        }];
        lines.push(match self.is_exact {
            true => format!("All {} sets of useful nodes were compared.", self.examined),
            false => format!(
                "{} sets of nodes were compared, not all: another set may be better.",
                self.examined
            ),
        });
        if let Some(longest) = self.longest {
            lines.push(format!(
                "Routes over more than {longest} overlay nodes were left out, because there are too many."
            ));
        }
        lines.join("\n") + "\n"
    }

    /// One row for each pair.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(&format!(
            "Routes of {} on the path \"{}\"",
            format(number(self.size.bytes()), "bytes"),
            self.name
        ));
        for heading in ["from, to", "overlay nodes"] {
            table.add_column(heading, Alignment::Left);
        }
        for heading in [
            "direct",
            "by the route",
            "gain",
            "throughput direct",
            "by the route",
        ] {
            table.add_column(heading, Alignment::Right);
        }
        for pair in &self.pairs {
            let time = |answer: &Answer| {
                let time = answer.completion_time(self.size);
                time.map_or_else(|| "never".to_owned(), |time| format(time, "s"))
            };
            let gain = pair.gain(self.size);
            table.add_row(vec![
                Cell::new(&pair.name),
                Cell::new(&pair.route_text()),
                Cell::new(&time(&pair.direct)),
                Cell::new(&time(&pair.best)),
                Cell::new(&gain.map_or_else(|| "–".to_owned(), |gain| format!("{gain:.2}"))),
                Cell::new(&format(pair.direct.throughput(), "bit/s")),
                Cell::new(&format(pair.best.throughput(), "bit/s")),
            ]);
        }
        table
    }

    /// All numbers.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let quantity = format!(
            "completion time of {}",
            format(number(self.size.bytes()), "bytes")
        );
        let mut records = Vec::new();
        for pair in &self.pairs {
            let route = pair.route_text();
            for (way, answer) in [("direct", &pair.direct), (route.as_str(), &pair.best)] {
                let case = format!("{} {way}", pair.name);
                let of = |quantity: &str, unit: &str, value: f64| {
                    Record::new(&self.name, &case, quantity, unit, By::Analysis, value)
                };
                let time = answer.completion_time(self.size);
                records.extend(time.map(|time| of(&quantity, "s", time)));
                records.push(of("throughput", "bit/s", answer.throughput()));
                // Without a route, both are the same.
                if pair.route.is_empty() {
                    break;
                }
            }
        }
        if let Some(gain) = self.gain() {
            let case = format!("overlay nodes: {}", self.nodes.join(", "));
            let record = Record::new(&self.name, &case, "gain", "ratio", By::Analysis, gain);
            records.push(match self.is_exact {
                true => record,
                false => record.with_note(format!(
                    "the best of {} sets of nodes that were tried, not of all",
                    self.examined
                )),
            });
        }
        records
    }
}

impl PairPlan {
    /// "over ams, fra", or "direct".
    fn route_text(&self) -> String {
        match &self.route[..] {
            [] => "direct".to_owned(),
            nodes => format!("over {}", nodes.join(", ")),
        }
    }
}
