//! Bhole: Tables 1 to 6 and Figs 3 to 9, by simulation; Tables 4 and 6 and Fig. 9 on the lab.

mod conditions;
mod figures;
mod lab;
mod scenario;
#[cfg(test)]
mod tests;

use midspan_records::Record;
use midspan_report::Axis;
use midspan_sim::proxy::LocalAck;
use midspan_units::TimeSpan;

use crate::figure::{Figure, Simulating};
use crate::run::{number, simulated};
use crate::{Error, FigurePlot, Simulated};
use conditions::{BUFFERS, PLACES, PLAIN_4, PLAIN_6, TABLE_4, TABLES_1_TO_3, TABLES_5_AND_6};
use figures::{CwndFigure, named, throughput_figure};
use scenario::{Case, Congestion, Outcome};

/// The largest difference in packets to the paper, for cases in which the paper names all
/// parameters.
const CLOSE: u64 = 2;
const TEN_SECONDS: TimeSpan = TimeSpan::from_seconds(10);
/// Runs of Table 5 in the order "served first", for which the random service times matter.
const SEEDS: u64 = 20;
/// The share by which a row of Table 5 may fall.
const GREATEST_FALL: f64 = 0.04;
/// A row is saturated if its last step grows by less than this share.
const SATURATED: f64 = 0.01;

const HIDDEN: &str = "acknowledged first, the service of the packets before hides the service time";
const ONE_ROUND_TRIP: &str = "not matched: the difference is shown. Each copy is kept for a round \
    trip of the second leg, and its room is used a round trip of the first leg later. Used at once, \
    10 packets in each 67.5 ms would be 1467 in the time, below the paper's 1948. The paper does not \
    name the node: hop 4 here";
const CONGESTION: &str = "the paper does not describe its cross traffic. Cross traffic at the hop's \
    rate for 0.5 s, from 1.4 s on, reproduces the paper's value for TCP in both tables, and is used";
const CONGESTED_PTS: &str = "with the cross traffic that reproduces the paper's value for TCP; the \
    bound is only that PTS is above TCP";
const NO_NUMBERS: &str = "the paper prints no numbers";
const NOT_PRINTED: &str = "the paper ends at 40 packets";

/// Each table with the figure that shows it.
pub(crate) const FIGURES: &[Figure] = &[
    Figure::new(&["table 1", "figure 3"]).by_simulation(|run| make(run, &[Tables::table_1])),
    Figure::new(&["table 2", "figure 4"]).by_simulation(|run| make(run, &[Tables::table_2])),
    Figure::new(&["table 3", "figure 5"]).by_simulation(|run| make(run, &[Tables::table_3])),
    Figure::new(&["table 4", "figure 6"])
        .by_simulation(|run| make(run, &[Tables::table_4]))
        .by_lab(lab::table_4),
    Figure::new(&["table 5", "figure 7"])
        .by_simulation(|run| make(run, &[Tables::table_5, Tables::table_5_served_first])),
    Figure::new(&["table 6", "figure 8"])
        .by_simulation(|run| make(run, &[Tables::table_6]))
        .by_lab(lab::table_6),
    Figure::new(&["figure 9"])
        .by_simulation(|run| make(run, &[Tables::figure_9]))
        .by_lab(lab::figure_9),
    Figure::new(&["all tables"]).by_simulation(nothing_lost),
];

/// Runs the steps of a table.
fn make(run: &mut Simulating<'_>, steps: &[Step]) -> Result<(), Error> {
    let mut tables = Tables::default();
    for step in steps {
        step(&mut tables)?;
        let item = tables.records.last().map(|record| record.item.clone());
        run.progress(&item.unwrap_or_default());
    }
    let lost = run.kept.entry(LOST).or_insert_with(|| vec![0.0; 3]);
    let counts = [
        tables.retransmissions,
        tables.congestion_repairs,
        tables.bytes_beyond_window,
    ];
    for (sum, count) in lost.iter_mut().zip(counts) {
        *sum += number(count);
    }
    run.add(Simulated {
        records: tables.records,
        figures: tables.figures,
    });
    Ok(())
}

/// The name under which the tables keep the number of lost packets, in the order of [`Tables`].
const LOST: &str = "lost";

type Step = fn(&mut Tables) -> Result<(), Error>;

/// The records so far, and the lost packets of all legs.
#[derive(Debug, Default)]
struct Tables {
    records: Vec<Record>,
    figures: Vec<FigurePlot>,
    /// Without the retransmissions of Tables 2 and 3, in which congestion loses packets.
    retransmissions: u64,
    congestion_repairs: u64,
    bytes_beyond_window: u64,
}

impl Tables {
    fn run(&mut self, case: &Case) -> Result<Outcome, Error> {
        let outcome = case.run()?;
        self.retransmissions += outcome.retransmissions;
        self.bytes_beyond_window += outcome.bytes_beyond_window;
        Ok(outcome)
    }

    /// Records a number of packets that should be close to the paper's.
    fn close(&mut self, item: &str, case: &str, ours: u64, paper: u64) {
        let close = ours.abs_diff(paper) <= CLOSE;
        self.records
            .push(packets(item, case, ours, Some(paper)).with_ok(close));
    }

    /// Without congestion; packets that the source had sent.
    fn table_1(&mut self) -> Result<(), Error> {
        let duration = TimeSpan::from_milliseconds(2500);
        let mut figure = CwndFigure::default();
        for (name, nodes, paper) in [("TCP", &[][..], 230), ("PTS at hop 4", &[4], 510)] {
            let case = Case::new(TABLES_1_TO_3, duration, nodes);
            let outcome = self.run(&case)?;
            self.close("table 1", name, outcome.sent, paper);
            figure.add(&case)?;
        }
        self.figures
            .push(figure.plot("figure 3", "without congestion"));
        Ok(())
    }

    /// With congestion on the third link; packets that the receiver had received.
    fn table_2(&mut self) -> Result<(), Error> {
        self.congested(
            2,
            ["table 2", "figure 4", "with congestion in the first half"],
            287,
        )
    }

    /// With congestion on the seventh link.
    fn table_3(&mut self) -> Result<(), Error> {
        self.congested(
            6,
            ["table 3", "figure 5", "with congestion in the second half"],
            252,
        )
    }

    fn congested(&mut self, hop: usize, names: [&str; 3], paper: u64) -> Result<(), Error> {
        let [table, item, title] = names;
        let congestion = Congestion {
            hop,
            start: TimeSpan::from_milliseconds(1400),
            duration: TimeSpan::from_milliseconds(500),
        };
        let mut figure = CwndFigure::default();
        let mut plain = 0;
        for (name, nodes, paper) in [("TCP", &[][..], 173), ("PTS at hop 4", &[4], paper)] {
            let case = Case {
                congestion: Some(congestion),
                ..Case::new(TABLES_1_TO_3, TimeSpan::from_seconds(3), nodes)
            };
            let outcome = case.run()?;
            let record = packets(table, name, outcome.got, Some(paper));
            self.congestion_repairs += outcome.retransmissions;
            self.bytes_beyond_window += outcome.bytes_beyond_window;
            self.records.push(if nodes.is_empty() {
                plain = outcome.got;
                let close = outcome.got.abs_diff(paper) <= CLOSE;
                record.with_ok(close).with_note(CONGESTION)
            } else {
                record.with_ok(outcome.got > plain).with_note(CONGESTED_PTS)
            });
            figure.add(&case)?;
        }
        self.figures.push(figure.plot(item, title));
        Ok(())
    }

    /// By position; packets that the receiver had received.
    fn table_4(&mut self) -> Result<(), Error> {
        let outcome = self.run(&Case::new(TABLE_4, TEN_SECONDS, &[]))?;
        self.close("table 4", "TCP", outcome.got, PLAIN_4);
        let mut ours = Vec::new();
        for (node, _, paper) in PLACES {
            let outcome = self.run(&Case::new(TABLE_4, TEN_SECONDS, &[node]))?;
            let case = format!("PTS at hop {node}");
            self.close("table 4", &case, outcome.got, paper);
            ours.push((f64::from(node), number(outcome.got)));
        }
        let paper = PLACES.map(|(node, _, got)| (f64::from(node), number(got)));
        let series = vec![named("here", ours), named("paper", paper.to_vec())];
        let x = Axis::new("hops between source and PTS", "");
        self.figures
            .push(throughput_figure("figure 6", "PTS by its place", x, series));
        Ok(())
    }

    /// By service time, as §II describes it. The row without a proxy counts the packets that the
    /// source had sent.
    fn table_5(&mut self) -> Result<(), Error> {
        let outcome = self.run(&Case::new(TABLES_5_AND_6, TEN_SECONDS, &[]))?;
        self.close("table 5", "TCP", outcome.sent, 1410);
        let mut row = Vec::new();
        for (service, paper) in TABLE_5 {
            let got = self
                .run(&table_5_case(service, LocalAck::BeforeService, 1))?
                .got;
            row.push(number(got));
            let case = table_5_name("acknowledged first", service);
            let record = packets("table 5", &case, got, Some(paper));
            self.records.push(record.with_note(HIDDEN));
        }
        self.fall("acknowledged first", &row);
        let points = |values: &mut dyn Iterator<Item = f64>| {
            let times = TABLE_5.iter().map(|(service, _)| number(*service) * 1e-6);
            times.zip(values).collect()
        };
        let ours = points(&mut row.iter().copied());
        let paper = points(&mut TABLE_5.iter().map(|(_, got)| number(*got)));
        let series = vec![named("acknowledged first", ours), named("paper", paper)];
        let x = Axis::new("service time", "s");
        self.figures.push(throughput_figure(
            "figure 7",
            "PTS by its service time",
            x,
            series,
        ));
        Ok(())
    }

    /// Like [`table_5`](Self::table_5), but the node serves a packet before it acknowledges the
    /// packet.
    fn table_5_served_first(&mut self) -> Result<(), Error> {
        let mut row = Vec::new();
        let mut means = Vec::new();
        for (service, paper) in TABLE_5 {
            let mut got = Vec::new();
            for seed in 1..=SEEDS {
                let case = table_5_case(service, LocalAck::AfterService, seed);
                got.push(self.run(&case)?.got);
            }
            let mean = number(got.iter().sum()) / number(SEEDS);
            row.push(mean);
            means.push((number(service) * 1e-6, mean));
            let case = table_5_name("served first", service);
            let mut record = simulated("table 5", &case, "packets", "packets", mean)
                .with_note(format!("mean, least and most of {SEEDS} seeds"));
            record.low = got.iter().min().copied().map(number);
            record.high = got.iter().max().copied().map(number);
            record.paper = Some(number(paper));
            self.records.push(record);
        }
        self.fall("served first", &row);
        if let Some(figure) = self
            .figures
            .iter_mut()
            .find(|figure| figure.item == "figure 7")
        {
            figure.plot.series.push(named("served first", means));
        }
        Ok(())
    }

    /// The share by which a row of Table 5 falls.
    fn fall(&mut self, case: &str, row: &[f64]) {
        let fall = |first: f64, last: f64| (first - last) / first;
        let printed = fall(number(TABLE_5[0].1), number(TABLE_5[5].1));
        let ours = fall(row[0], row[5]);
        let mut record = simulated("table 5", case, "fall", "share", ours)
            .with_ok((0.0..=GREATEST_FALL).contains(&ours))
            .with_note("from 0.25 ms to 1.5 ms; the paper's from its packets");
        record.paper = Some(printed);
        self.records.push(record);
    }

    /// By buffer; packets that the receiver had received.
    fn table_6(&mut self) -> Result<(), Error> {
        let outcome = self.run(&Case::new(TABLES_5_AND_6, TEN_SECONDS, &[]))?;
        self.close("table 6", "TCP", outcome.got, PLAIN_6);
        let mut row = Vec::new();
        for (buffer, paper) in BUFFERS {
            let case = Case {
                buffer: u64::from(buffer),
                ..Case::new(TABLES_5_AND_6, TEN_SECONDS, &[4])
            };
            let got = self.run(&case)?.got;
            let name = format!("C_max = {buffer} packets");
            let record = packets("table 6", &name, got, paper);
            row.push(record.with_note(match paper {
                Some(_) => ONE_ROUND_TRIP,
                None => NOT_PRINTED,
            }));
        }
        grows(&mut row);
        saturates(&mut row);
        let of = |value: fn(&Record) -> Option<f64>| -> Vec<(f64, f64)> {
            let buffers = BUFFERS.iter().map(|(buffer, _)| f64::from(*buffer));
            let pairs = buffers.zip(&row);
            pairs
                .filter_map(|(buffer, record)| Some((buffer, value(record)?)))
                .collect()
        };
        let series = vec![
            named("here", of(|record| Some(record.value))),
            named("paper", of(|record| record.paper)),
        ];
        let x = Axis::new("C_max", "packets");
        self.figures.push(throughput_figure(
            "figure 8",
            "PTS by its buffer",
            x,
            series,
        ));
        self.records.extend(row);
        Ok(())
    }

    /// By number of nodes; packets that the receiver had received.
    fn figure_9(&mut self) -> Result<(), Error> {
        let mut row = Vec::new();
        let mut points = Vec::new();
        for nodes in conditions::PROXIES {
            let case = Case {
                service: TimeSpan::from_milliseconds(1),
                ..Case::new(conditions::FIGURE_9, TEN_SECONDS, nodes)
            };
            let got = self.run(&case)?.got;
            let name = pts_at(nodes);
            row.push(packets("figure 9", &name, got, None).with_note(NO_NUMBERS));
            points.push((number(nodes.len() as u64), number(got)));
        }
        grows(&mut row);
        saturates(&mut row);
        let x = Axis::new("PTS nodes", "");
        let series = vec![named("here", points)];
        self.figures.push(throughput_figure(
            "figure 9",
            "Several PTS nodes",
            x,
            series,
        ));
        self.records.extend(row);
        Ok(())
    }
}

/// Whatever the buffer, no acknowledged data is lost. No packet is even sent twice, apart from
/// those that congestion dropped. Only if all tables were made.
fn nothing_lost(run: &mut Simulating<'_>) -> Result<(), Error> {
    let kept = run.kept.get(LOST).map_or(&[][..], Vec::as_slice);
    let &[retransmissions, repairs, beyond_window] = kept else {
        return Ok(());
    };
    let case = "tables 2 and 3";
    let record = simulated("all tables", case, "retransmissions", "packets", repairs);
    let mut records = vec![record.with_note("packets that congestion dropped")];
    let counts = [
        ("retransmissions", "packets", retransmissions),
        ("beyond the window", "bytes", beyond_window),
    ];
    for (quantity, unit, count) in counts {
        let record = simulated("all tables", "the others", quantity, unit, count);
        records.push(record.with_ok(count == 0.0));
    }
    run.out.records.extend(records);
    Ok(())
}

/// `T_s` in microseconds, and the printed number of packets.
const TABLE_5: [(u64, u64); 6] = [
    (250, 2850),
    (500, 2844),
    (750, 2830),
    (1000, 2817),
    (1250, 2810),
    (1500, 2790),
];

/// The name of a case with these nodes.
fn pts_at(nodes: &[u32]) -> String {
    let hops: Vec<String> = nodes.iter().map(u32::to_string).collect();
    match hops.len() {
        0 => "TCP".to_owned(),
        1 => format!("PTS at hop {}", hops.join(", ")),
        _ => format!("PTS at hops {}", hops.join(", ")),
    }
}

fn table_5_case(service: u64, local_ack: LocalAck, seed: u64) -> Case {
    Case {
        service: TimeSpan::from_nanoseconds(service * 1000),
        local_ack,
        buffer: 400,
        seed,
        ..Case::new(TABLES_5_AND_6, TEN_SECONDS, &[4])
    }
}

fn table_5_name(order: &str, service: u64) -> String {
    format!("{order}, T_s = {} ms", number(service) / 1000.0)
}

fn packets(item: &str, case: &str, ours: u64, paper: Option<u64>) -> Record {
    let mut record = simulated(item, case, "packets", "packets", number(ours));
    record.paper = paper.map(number);
    record
}

/// Marks for each value of a row whether it is at least the previous value.
fn grows(row: &mut [Record]) {
    let values: Vec<f64> = row.iter().map(|record| record.value).collect();
    for (record, pair) in row.iter_mut().skip(1).zip(values.windows(2)) {
        record.ok = Some(pair[0] <= pair[1]);
    }
}

/// Marks the last value of a row as missed if it is still well above the previous value.
fn saturates(row: &mut [Record]) {
    if let [.., before, last] = row {
        let flat = last.value <= before.value * (1.0 + SATURATED);
        last.ok = last.ok.map(|grew| grew && flat);
    }
}
