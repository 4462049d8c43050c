//! Figs 3, 4, 6 and 7, and the estimation of the round trip of §4.3: the throughput of a download
//! over the cable network.

use midspan_policy::RoundTripSource;
use midspan_records::Record;
use midspan_report::{Axis, LinePlot, Series};

use super::cable::Download;
use super::measure::{mean, mean_record, throughputs};
use super::scheme::Scheme;
use crate::run::{number, simulated};
use crate::{Effort, Error, FigurePlot, Simulated};

/// In figure 3, ECWA may be slower than ACE thinning by at most this share and still counts as equal. In the
/// paper, ACE thinning is about a tenth slower than ECWA. The share is needed because the means of the
/// simulation have confidence intervals of a few per cent.
const EQUAL: f64 = 0.02;
/// `max_packets_per_ack` = 2 performs like Reno.
const LIKE_RENO: f64 = 0.1;

const CHOSEN: &str = "the paper does not print the users' times, the modems' queues, the poll \
    and the slots: compare the order";
const NO_RULE: &str = "the paper prints no rule by which the queue marks ACKs";

/// Schemes, each with the value in the paper's text, in bit/s.
type Lines = [(Scheme, Option<f64>)];

const SCENARIO_1: &Lines = &[
    (Scheme::Reno, None),
    (Scheme::Fda, None),
    (Scheme::ICMP, Some(294e3)),
    (Scheme::Ecwa, None),
    (Scheme::Filter, Some(550e3)),
    (Scheme::FilterAndRegeneration, None),
    (Scheme::Prediction, None),
    (Scheme::Acc, None),
    (Scheme::AdaptiveAce(RoundTripSource::IcmpEcho), None),
];

const SCENARIO_2: &Lines = &[
    (Scheme::Reno, None),
    (Scheme::Fda, None),
    (Scheme::ICMP, None),
    (Scheme::Ecwa, None),
    (Scheme::Filter, None),
];

const FIGURE_7: &Lines = &[
    (Scheme::Reno, None),
    (Scheme::ICMP, None),
    (Scheme::Ecwa, None),
];

/// Measures the lines of a figure. Returns the records, and the means in the order of the lines.
fn measured(
    item: &str,
    lines: &Lines,
    make: fn(Scheme) -> Download,
    effort: &Effort,
) -> Result<(Vec<Record>, Vec<f64>), Error> {
    let downloads: Vec<Download> = lines.iter().map(|(scheme, _)| make(*scheme)).collect();
    let throughputs = throughputs(&downloads, effort)?;
    let mut records = Vec::new();
    for ((scheme, paper), values) in lines.iter().zip(&throughputs) {
        let mut record = mean_record(item, &scheme.name(), values);
        record.paper = *paper;
        if paper.is_some() {
            record.note = Some(CHOSEN.to_owned());
        } else if *scheme == Scheme::Acc {
            record.note = Some(NO_RULE.to_owned());
        }
        records.push(record);
    }
    let means = throughputs.iter().map(|values| mean(values)).collect();
    Ok((records, means))
}

fn ratio(item: &str, case: &str, value: f64, ok: bool) -> Record {
    simulated(item, case, "ratio of throughputs", "", value).with_ok(ok)
}

/// A line over the schemes' numbers, in the order of the records, in place of bars.
fn bars(item: &str, title: &str, lines: &Lines, means: &[f64]) -> FigurePlot {
    let series = lines
        .iter()
        .zip(means)
        .zip(1..)
        .map(|(((scheme, _), mean), number)| Series {
            name: scheme.name(),
            points: vec![(f64::from(number), 0.0), (f64::from(number), *mean)],
        })
        .collect();
    let plot = LinePlot {
        title: title.to_owned(),
        x: Axis::new("scheme", ""),
        y: Axis::new("throughput", "bit/s"),
        series,
    };
    FigurePlot::new(item, plot)
}

/// Fig. 3.
pub(super) fn figure_3(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let item = "figure 3";
    progress(item);
    let (mut records, means) = measured(item, SCENARIO_1, Download::scenario_1, effort)?;
    if let [reno, fda, ace, ecwa, filter, ..] = *means.as_slice() {
        let at_least = |one: f64, other: f64| one >= other * (1.0 - EQUAL);
        records.extend([
            ratio(
                item,
                "ECWA against ACE thinning",
                ecwa / ace,
                at_least(ecwa, ace),
            ),
            ratio(item, "ACE thinning against FDA(4)", ace / fda, ace > fda),
            ratio(item, "FDA(4) against Reno", fda / reno, fda > reno),
            ratio(
                item,
                "AF against ECWA",
                filter / ecwa,
                filter > ecwa.max(ace),
            ),
        ]);
    }
    let figure = bars(item, "Upstream congestion", SCENARIO_1, &means);
    Ok(Simulated {
        records,
        figures: vec![figure],
    })
}

/// Fig. 4.
pub(super) fn figure_4(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let item = "figure 4";
    progress(item);
    let (mut records, means) = measured(item, SCENARIO_2, Download::scenario_2, effort)?;
    if let [reno, fda, ace, ecwa, ..] = *means.as_slice() {
        let least = reno.min(ace).min(ecwa);
        records.push(ratio(
            item,
            "FDA(4) against the least of the others",
            fda / least,
            fda < least,
        ));
        records.push(ratio(
            item,
            "ACE thinning against ECWA",
            ace / ecwa,
            ace >= 0.9 * ecwa,
        ));
    }
    let figure = bars(item, "Two-way congestion", SCENARIO_2, &means);
    Ok(Simulated {
        records,
        figures: vec![figure],
    })
}

/// Fig. 6.
pub(super) fn figure_6(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let item = "figure 6";
    progress(item);
    let ace = |maximum| (Scheme::Ace(maximum, RoundTripSource::IcmpEcho), None);
    let lines = [(Scheme::Reno, None), ace(2), ace(3), ace(4), ace(5)];
    let (mut records, means) = measured(item, &lines, Download::scenario_1, effort)?;
    if let [reno, two, .., five] = *means.as_slice() {
        let like = (two / reno - 1.0).abs() <= LIKE_RENO;
        records.push(ratio(item, "at most 2 against Reno", two / reno, like));
        records.push(ratio(
            item,
            "at most 5 against at most 2",
            five / two,
            five > two,
        ));
    }
    let points = means
        .iter()
        .skip(1)
        .zip(2_u64..)
        .map(|(mean, maximum)| (number(maximum), *mean));
    let plot = LinePlot {
        title: "ACE thinning by its greatest number of packets for an ACK".to_owned(),
        x: Axis::new("max_packets_per_ack", ""),
        y: Axis::new("throughput", "bit/s"),
        series: vec![Series {
            name: "ACE thinning".to_owned(),
            points: points.collect(),
        }],
    };
    Ok(Simulated {
        records,
        figures: vec![FigurePlot::new(item, plot)],
    })
}

/// Fig. 7.
pub(super) fn figure_7(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let item = "figure 7";
    progress(item);
    let (mut records, means) = measured(item, FIGURE_7, Download::figure_7, effort)?;
    if let [reno, ace, ecwa] = *means.as_slice() {
        records.push(ratio(
            item,
            "ACE thinning against Reno",
            ace / reno,
            ace > 2.0 * reno,
        ));
        records.push(ratio(
            item,
            "ECWA against Reno",
            ecwa / reno,
            ecwa > 2.0 * reno,
        ));
        for record in records.iter_mut().rev().take(2) {
            record.paper = Some(2.0);
        }
    }
    let figure = bars(item, "All users on one TCP", FIGURE_7, &means);
    Ok(Simulated {
        records,
        figures: vec![figure],
    })
}

/// §4.3: the round trip measured by the handshake, compared with that measured by ICMP.
pub(super) fn section_4_3(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let item = "section 4.3";
    progress(item);
    let lines = [(Scheme::ICMP, Some(294e3)), (Scheme::SYN, Some(248e3))];
    let (mut records, means) = measured(item, &lines, Download::scenario_1, effort)?;
    if let [icmp, syn] = *means.as_slice() {
        let mut record = ratio(item, "SYN against ICMP", syn / icmp, syn < icmp);
        record.paper = Some(248.0 / 294.0);
        records.push(record);
    }
    Ok(Simulated {
        records,
        figures: Vec::new(),
    })
}
