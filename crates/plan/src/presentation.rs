//! A plan as tables and plots.

use midspan_report::units::format;
use midspan_report::{Alignment, Axis, Cell, LinePlot, Series, Table};
use midspan_units::number;

use crate::answer::limit_name;
use crate::plan::DataPathPlan;

impl DataPathPlan {
    /// The tables of this direction: end to end, the legs, the proxies.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut tables = vec![end_to_end(self)];
        if self.split.is_some() {
            tables.push(legs(self));
            tables.push(proxies(self));
        }
        tables
    }

    /// Completion time as a function of size, a line for each connection.
    #[must_use]
    pub fn transfer_plot(&self) -> LinePlot {
        let series = self
            .cases()
            .into_iter()
            .map(|(case, answer)| Series {
                name: case.to_owned(),
                points: answer.transfer_curve(),
            })
            .collect();
        LinePlot {
            title: self.data_path.name(),
            x: Axis::new("size of the transfer", "bytes"),
            y: Axis::new("completion time", "s"),
            series,
        }
    }
}

fn table(title: &str, words: &[&str], numbers: &[&str]) -> Table {
    let mut table = Table::new(title);
    for heading in words {
        table.add_column(heading, Alignment::Left);
    }
    for heading in numbers {
        table.add_column(heading, Alignment::Right);
    }
    table
}

fn end_to_end(data_path: &DataPathPlan) -> Table {
    let mut table = table(
        &format!("{}, end to end", data_path.data_path.name()),
        &["connection", "bound by"],
        &["throughput", "coupling loss", "100 KB", "1 MB", "10 MB"],
    );
    for (case, answer) in data_path.cases() {
        let bound = if answer.legs.len() > 1 {
            format!("{} on {}", answer.limit(), answer.slowest_leg())
        } else {
            answer.limit().to_owned()
        };
        let mut row = vec![
            Cell::new(case),
            Cell::new(&bound),
            Cell::new(&format(answer.throughput(), "bit/s")),
            Cell::new(&format(answer.outcome.coupling_loss(), "share")),
        ];
        row.extend(answer.completion.map(|time| {
            Cell::new(&time.map_or_else(|| "never".to_owned(), |time| format(time, "s")))
        }));
        table.add_row(row);
    }
    table
}

fn legs(data_path: &DataPathPlan) -> Table {
    let mut table = table(
        "Legs",
        &["leg", "connection", "bound by"],
        &["rate", "round trip", "loss", "by itself", "in the chain"],
    );
    for (case, answer) in data_path.cases().into_iter().skip(1) {
        for ((name, chained), outcome) in answer
            .leg_names
            .iter()
            .zip(&answer.legs)
            .zip(&answer.outcome.legs)
        {
            let section = &chained.leg.section;
            table.add_row(vec![
                Cell::new(name),
                Cell::new(case),
                Cell::new(limit_name(outcome.isolated.limit)),
                Cell::new(&format(section.rate(), "bit/s")),
                Cell::new(&format(section.round_trip(), "s")),
                Cell::new(&format(section.loss(), "share")),
                Cell::new(&format(
                    outcome.isolated.throughput.bits_per_second(),
                    "bit/s",
                )),
                Cell::new(&format(outcome.throughput.bits_per_second(), "bit/s")),
            ]);
        }
    }
    table
}

fn proxies(data_path: &DataPathPlan) -> Table {
    let mut table = table(
        "Proxies: what they need",
        &["proxy"],
        &[
            "receive buffer",
            "send buffer",
            "pacing rate",
            "k",
            "packets per ACK",
            "segment",
        ],
    );
    for advice in &data_path.advice {
        let pacing = advice.pacing.map_or_else(
            || "none".to_owned(),
            |pacing| format(number(pacing.rate.bits_per_second()), "bit/s"),
        );
        table.add_row(vec![
            Cell::new(&advice.node),
            Cell::new(&format(number(advice.receive_buffer.bytes()), "bytes")),
            Cell::new(&format(number(advice.send_buffer.bytes()), "bytes")),
            Cell::new(&pacing),
            Cell::new(&format!("{:.2}", advice.acks.k)),
            Cell::new(&advice.acks.packets_per_ack.to_string()),
            Cell::new(&format(f64::from(advice.acks.segment.segment), "bytes")),
        ]);
    }
    table
}
