//! With any content of records and names, the HTML page and the text remain well-formed.

// The lint's exception for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use midspan_records::{By, Record, Records};
use midspan_report::{
    Axis, BarPlot, Categories, Content, DirectionPicture, Download, Fact, HeatPlot, Interval,
    IntervalPlot, LinePlot, LinkPicture, Method, NodeKind, NodePicture, Panel, PanelPlot,
    PathPicture, Report, Section, Series, Validity, pivot,
};
use proptest::prelude::*;

/// A report with `text` in every place for a text, and the records' values in its plots.
fn report(text: &str, records: Records, points: Vec<(f64, f64)>) -> Report {
    let owned = || text.to_owned();
    let direction = |notes| DirectionPicture {
        queue: owned(),
        notes,
        ..DirectionPicture::default()
    };
    let node = NodePicture {
        name: owned(),
        detail: owned(),
        kind: NodeKind::Proxy,
    };
    let bars = BarPlot::from_records(text, text, &records.records, |record| {
        Some((record.item.clone(), record.case.clone()))
    });
    let intervals = points.iter().map(|&(x, low)| Interval { x, low, high: x });
    let intervals = intervals.collect();
    let values: Vec<Option<f64>> = points.iter().map(|point| Some(point.1)).collect();
    let names = Categories {
        label: owned(),
        names: vec![owned(); values.len()],
    };
    let lines = LinePlot {
        title: owned(),
        x: Axis::new(text, text),
        y: Axis::new(text, text),
        series: vec![
            Series {
                name: owned(),
                points,
            };
            2
        ],
    };
    Report {
        title: owned(),
        summary: owned(),
        command: owned(),
        picture: Some(PathPicture {
            caption: owned(),
            nodes: vec![node; 6],
            links: vec![
                LinkPicture {
                    name: owned(),
                    forward: direction(vec![owned()]),
                    backward: direction(vec![]),
                };
                5
            ],
        }),
        sections: vec![Section {
            heading: owned(),
            text: owned(),
            content: vec![
                Content::Table(pivot(text, &records.records)),
                Content::Bars(bars),
                Content::Lines(lines.clone()),
                Content::Panels(PanelPlot {
                    title: owned(),
                    x: lines.x.clone(),
                    y: lines.y.clone(),
                    columns: 2,
                    panels: vec![
                        Panel {
                            name: owned(),
                            series: lines.series.clone(),
                        };
                        3
                    ],
                }),
                Content::Intervals(IntervalPlot {
                    lines,
                    intervals: vec![intervals],
                }),
                Content::Heat(HeatPlot {
                    title: owned(),
                    x: names.clone(),
                    y: names,
                    unit: owned(),
                    values: vec![values.clone(), values],
                }),
            ],
        }],
        method: Method {
            validity: Validity::Void(vec![owned()]),
            facts: vec![Fact::new(text, text)],
            notes: vec![owned()],
        },
        records,
        downloads: vec![Download {
            name: owned(),
            media_type: "text/csv",
            content: owned(),
        }],
    }
}

/// The names of all elements in `html`, in order.
fn elements(html: &str) -> Vec<&str> {
    let starts = html.split('<').skip(1);
    starts
        .map(|rest| {
            let rest = rest.trim_start_matches('/');
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
            end.map_or(rest, |end| &rest[..end])
        })
        .collect()
}

/// Checks every picture: nothing to the left or right of it, and no negative size.
fn assert_pictures_are_sound(html: &str) {
    let pictures = html.split("<svg ").skip(1);
    for picture in pictures.map(|rest| rest.split("</svg>").next().unwrap()) {
        assert!(!picture.contains("=\"-"), "{picture}");
        assert!(!picture.contains("NaN"), "{picture}");
        for attribute in [" x=\"", " x1=\"", " x2=\"", " cx=\""] {
            for value in picture.split(attribute).skip(1) {
                let value: i32 = value.split('"').next().unwrap().parse().unwrap();
                assert!((0..=800).contains(&value), "{attribute}{value}");
            }
        }
    }
}

#[test]
fn markup_stays_text() {
    let hostile =
        "</title></style><script>alert(1)</script><img src=x onerror=\"a()\"> ' \" onload=\"b()";
    let mut records = Records::default();
    for (case, value) in [(hostile, 1.0), ("harmless", 2.0)] {
        let mut record = Record::new(hostile, case, hostile, hostile, By::Lab, value);
        record.paper = Some(3.0);
        records.push(
            record
                .with_spread(0.5, 1.5)
                .with_ok(true)
                .with_note(hostile),
        );
    }
    let points = vec![(0.0, 0.0), (1.0, 1.0)];
    let html = report(hostile, records.clone(), points.clone())
        .to_html()
        .unwrap();
    let plain = report("harmless", records, points).to_html().unwrap();

    let known = elements(&plain);
    let unknown: Vec<&str> = elements(&html)
        .into_iter()
        .filter(|name| !known.contains(name) || *name == "script" || *name == "img")
        .collect();
    assert_eq!(unknown, Vec::<&str>::new());
    assert!(!html.contains("\" onload"), "an attribute was left");
    // The whole text is there.
    assert!(html.contains("&lt;script&gt;") || html.contains("&#60;script&#62;"));
}

#[test]
fn escape_sequences_reach_neither_terminal_nor_page() {
    let hostile = "\u{1b}[2J\u{9b}31m\u{0}\u{7}\u{202e}";
    let mut records = Records::default();
    records.push(Record::new(hostile, hostile, hostile, hostile, By::Lab, 1.0).with_note(hostile));
    let text = pivot(hostile, &records.records).to_text(None);
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    let html = report(hostile, records, vec![]).to_html().unwrap();
    let pictures = html.split("<svg ").skip(1);
    for picture in pictures.map(|rest| rest.split("</svg>").next().unwrap()) {
        assert!(
            picture.chars().all(|c| c == '\n' || !c.is_control()),
            "{picture:?}"
        );
    }
}

fn any_record() -> impl Strategy<Value = Record> {
    let value = || prop_oneof![prop::num::f64::ANY, 0.0..100.0_f64];
    let text = || prop_oneof!["", "[ab]", ".*"];
    let unit = prop_oneof!["s", "bit/s", "bytes", "share", "", ".*"];
    let optional = || prop::option::of(value());
    (
        (text(), text(), unit),
        value(),
        (optional(), optional(), optional()),
        (prop::option::of(any::<bool>()), prop::option::of(text())),
    )
        .prop_map(
            |((item, case, unit), value, (low, high, paper), (ok, note))| Record {
                item,
                case,
                quantity: "quantity".to_owned(),
                unit,
                by: By::Lab,
                value,
                paper,
                low,
                high,
                ok,
                note,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_record_and_no_point_breaks_anything(
        records in prop::collection::vec(any_record(), 0..12),
        points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..40),
        width in prop::option::of(any::<u16>()),
    ) {
        let records = Records { records };
        let text = pivot("quantity", &records.records).to_text(width);
        prop_assert!(text.ends_with('\n'));
        let html = report("quantity", records, points).to_html().unwrap();
        assert_pictures_are_sound(&html);
    }

    #[test]
    fn no_text_breaks_the_page(text in ".*") {
        let mut records = Records::default();
        records.push(Record::new(&text, &text, &text, &text, By::Analysis, 1.0));
        let html = report(&text, records, vec![(0.0, 1.0)]).to_html().unwrap();
        assert_pictures_are_sound(&html);
    }

    #[test]
    fn no_word_is_broken_in_a_table(
        cases in prop::collection::vec("[a-z]{1,12}( [a-z]{1,12}){0,4}", 1..5),
        width in 40_u16..160,
    ) {
        let records: Vec<Record> = cases
            .iter()
            .flat_map(|case| {
                let record = |quantity| Record::new("", case, quantity, "s", By::Lab, 1.5);
                ["completion time", "retransmissions", "share of the link"].map(record)
            })
            .collect();
        let text = pivot("", &records).to_text(Some(width));
        for word in cases.iter().flat_map(|case| case.split(' ')) {
            prop_assert!(text.contains(word), "{} in\n{}", word, text);
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        prop_assert!(widest <= Some(usize::from(width)), "{}", text);
    }
}
