//! Invented numbers, similar to those of a run on a satellite path. They were not measured.

use midspan_records::{By, Record, Records};
use midspan_report::{
    Axis, BarPlot, Categories, Content, DirectionPicture, Download, Fact, HeatPlot, Interval,
    IntervalPlot, LinePlot, LinkPicture, Method, NodeKind, NodePicture, Panel, PanelPlot,
    PathPicture, Report, Section, Series, Validity, pivot,
};
use midspan_units::{Probability, TimeSpan};

/// File, size in bytes, variant, time to first byte, completion time, retransmissions, ACKs.
const DOWNLOADS: [(&str, f64, &str, [f64; 4]); 6] = [
    ("100 KB", 1e5, "direct", [1.21, 2.41, 0.0, 42.0]),
    ("100 KB", 1e5, "through midspan", [1.21, 1.81, 0.0, 36.0]),
    ("1 MB", 1e6, "direct", [1.21, 6.02, 2.0, 371.0]),
    ("1 MB", 1e6, "through midspan", [1.21, 3.73, 1.0, 352.0]),
    ("10 MB", 1e7, "direct", [1.22, 13.6, 14.0, 3_480.0]),
    ("10 MB", 1e7, "through midspan", [1.21, 8.25, 9.0, 3_466.0]),
];

const RATE: f64 = 20e6;

/// The records of all downloads.
pub fn records() -> Records {
    let mut records = Records::default();
    for (file, size, way, [first_byte, completion, retransmissions, acknowledgements]) in DOWNLOADS
    {
        let case = format!("{file} {way}");
        let goodput = size * 8.0 / completion;
        let mut add = |quantity: &str, unit: &str, value: f64, spread: f64| {
            let record = Record::new("geo", &case, quantity, unit, By::Lab, value);
            let record = record.with_note("made-up numbers, not measured");
            records.push(if spread > 0.0 {
                record.with_spread(value * (1.0 - spread), value * (1.0 + spread))
            } else {
                record
            });
        };
        add("time to first byte", "s", first_byte, 0.0);
        add("completion time", "s", completion, 0.04);
        add("goodput", "bit/s", goodput, 0.0);
        add("share of the link", "share", goodput / RATE, 0.0);
        add("retransmissions", "", retransmissions, 0.0);
        add("ACKs sent upstream", "", acknowledgements, 0.0);
    }
    records
}

/// The file and the variant of a case.
fn place(record: &Record) -> Option<(String, String)> {
    let ways = ["direct", "through midspan"];
    let way = ways.into_iter().find(|way| record.case.ends_with(way))?;
    let file = record.case.strip_suffix(way)?.trim_end();
    Some((file.to_owned(), way.to_owned()))
}

/// Bytes received over time: none at first, then faster and faster.
fn received(size: f64, first_byte: f64, completion: f64) -> Vec<(f64, f64)> {
    (0..=200)
        .map(|step| {
            let time = completion * f64::from(step) / 200.0;
            let elapsed = (time - first_byte).max(0.0);
            let share = libm::pow(elapsed / (completion - first_byte), 1.5);
            (time, size * share)
        })
        .collect()
}

fn picture() -> PathPicture {
    let node = |name: &str, detail: &str, kind| NodePicture {
        name: name.to_owned(),
        detail: detail.to_owned(),
        kind,
    };
    let direction = |rate: &str, milliseconds, loss, queue: &str| DirectionPicture {
        rate: rate.parse().ok(),
        delay: TimeSpan::from_milliseconds(milliseconds),
        loss: Probability::from_f64(loss).unwrap_or_default(),
        queue: queue.to_owned(),
        notes: Vec::new(),
    };
    let terrestrial = direction("100 Mbit/s", 20, 0.0, "1,000 packets");
    PathPicture {
        caption: "The download runs from the right to the left. Delays are one way.".to_owned(),
        nodes: vec![
            node("client", "curl", NodeKind::Host),
            node("gateway", "midspan", NodeKind::Proxy),
            node("server", "nginx", NodeKind::Host),
        ],
        links: vec![
            LinkPicture {
                name: "satellite".to_owned(),
                forward: direction("2 Mbit/s", 280, 0.001, "1,000 packets"),
                backward: direction("20 Mbit/s", 280, 0.001, "1,000 packets"),
            },
            LinkPicture {
                name: "terrestrial".to_owned(),
                forward: terrestrial.clone(),
                backward: terrestrial,
            },
        ],
    }
}

fn lines() -> LinePlot {
    let series = DOWNLOADS
        .into_iter()
        .filter(|(file, ..)| *file != "100 KB")
        .map(|(file, size, way, [first_byte, completion, ..])| Series {
            name: format!("{file} {way}"),
            points: received(size, first_byte, completion),
        });
    LinePlot {
        title: "Bytes received against time".to_owned(),
        x: Axis::new("time since the request", "s"),
        y: Axis::new("bytes received", "bytes"),
        series: series.collect(),
    }
}

/// The lines of [`lines`], a chart for each variant.
fn above_each_other() -> PanelPlot {
    let LinePlot { x, y, series, .. } = lines();
    let of = |way: &str| Panel {
        name: way.to_owned(),
        series: series
            .iter()
            .filter(|series| series.name.ends_with(way))
            .cloned()
            .collect(),
    };
    PanelPlot {
        title: "The same, variant by variant".to_owned(),
        x,
        y,
        columns: 1,
        panels: ["direct", "through midspan"].map(of).into(),
    }
}

fn by_loss() -> IntervalPlot {
    let points = vec![(0.001, 9e6), (0.01, 4e6), (0.1, 0.5e6)];
    let intervals = points.iter().map(|&(x, y)| Interval {
        x,
        low: 0.8 * y,
        high: 1.2 * y,
    });
    IntervalPlot {
        intervals: vec![intervals.collect()],
        lines: LinePlot {
            title: "Goodput by loss".to_owned(),
            x: Axis::new("loss", "share").on_a_logarithmic_scale(),
            y: Axis::new("goodput", "bit/s"),
            series: vec![Series {
                name: "through midspan".to_owned(),
                points,
            }],
        },
    }
}

fn by_loss_and_delay() -> HeatPlot {
    let names = |names: [&str; 3]| names.map(str::to_owned).to_vec();
    HeatPlot {
        title: "Completion time by loss and delay".to_owned(),
        x: Categories {
            label: "loss".to_owned(),
            names: names(["0.1 %", "1 %", "10 %"]),
        },
        y: Categories {
            label: "delay".to_owned(),
            names: names(["10 ms", "100 ms", "300 ms"]),
        },
        unit: "s".to_owned(),
        values: vec![
            vec![Some(0.9), Some(1.2), Some(4.5)],
            vec![Some(2.1), Some(3.4), Some(22.0)],
            vec![Some(4.8), Some(8.3), None],
        ],
    }
}

/// The whole report.
pub fn report() -> Report {
    let records = records();
    let bars = BarPlot::from_records(
        "Completion time by file size",
        "completion time",
        &records.records,
        place,
    );
    Report {
        title: "A download over a satellite link (made-up numbers)".to_owned(),
        summary: "With Midspan on the gateway, 10 MB arrive in 8.25 s in place of 13.6 s."
            .to_owned(),
        command: "midspan demo".to_owned(),
        picture: Some(picture()),
        sections: vec![
            Section {
                heading: "Each download".to_owned(),
                text: "Medians of 3 repetitions, each with the least and the greatest.".to_owned(),
                content: vec![
                    Content::Table(pivot("", &records.records)),
                    Content::Bars(bars),
                ],
            },
            Section {
                heading: "Over time".to_owned(),
                text: String::new(),
                content: vec![Content::Lines(lines()), Content::Panels(above_each_other())],
            },
            Section {
                heading: "By loss and delay".to_owned(),
                text: String::new(),
                content: vec![
                    Content::Intervals(by_loss()),
                    Content::Heat(by_loss_and_delay()),
                ],
            },
        ],
        method: Method {
            validity: Validity::Valid,
            facts: vec![
                Fact::new("kernel", "Linux 6.1.0 (made up)"),
                Fact::new("repetitions", 3),
                Fact::new("seed of the loss", 1),
            ],
            notes: vec!["These numbers were made up to show the layout.".to_owned()],
        },
        records,
        downloads: vec![Download {
            name: "runs.csv".to_owned(),
            media_type: "text/csv",
            content: "size,seconds\n10 MB,8.25\n".to_owned(),
        }],
    }
}
