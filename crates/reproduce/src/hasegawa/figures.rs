//! Figs 8 to 11: throughput and ACKs, with segments of 1 and of 3 fragments.

use midspan_policy::oversized_segments::OversizedStart;
use midspan_records::Record;
use midspan_report::{Axis, LinePlot, Series};
use midspan_sweep::in_parallel;

use super::testbed::{Client, Measured, Testbed, Windows};
use crate::run::{number, simulated};
use crate::{Effort, Error, FigurePlot, Simulated};

/// Upstream rates in bit/s.
const UP: [u64; 3] = [32_000, 64_000, 128_000];
/// The throughput of Fig. 8 at 32 kbit/s with normal segments that the text prints, in bit/s
/// (§6.1), by client.
const PRINTED: [f64; 3] = [1.2e6, 1.6e6, 2.2e6];
/// Bytes of ACKs at 32 kbit/s with normal segments (§6.1).
const PRINTED_ACK_BYTES: [f64; 3] = [266_188.0, 200_928.0, 143_800.0];
/// The ratio of the number of ACKs with oversized segments to that with normal ones (Fig. 11).
const PRINTED_ACKS: [f64; 3] = [0.5, 1.0 / 3.0, 1.0 / 3.0];
/// The paper's "approximately" and "about" mean: within this share.
const ABOUT: f64 = 0.1;
/// TGW is 5–9 % faster than WSO for client 2 (§6.1).
const TGW_GAIN: (f64, f64) = (1.05, 1.09);

const FEWER_WINDOW_UPDATES: &str = "one ACK for 1.5 segments here; the paper's client sent one \
    for 1.35, as a BSD does whose application reads several segments at a time";

/// A client at one upstream rate: with normal segments, and with oversized ones.
struct Pair {
    client: Client,
    up: u64,
    normal: Measured,
    oversized: Measured,
}

impl Pair {
    fn gain(&self) -> f64 {
        self.oversized.throughput(SIZE) / self.normal.throughput(SIZE)
    }

    fn acks(&self) -> f64 {
        number(self.oversized.acks) / number(self.normal.acks)
    }

    fn case(&self, segments: &str) -> String {
        let rate = self.up / 1000;
        format!("{}, {rate} kbit/s up, {segments}", self.client.name())
    }
}

const SIZE: u64 = 10_000_000;

fn pairs(windows: Windows, effort: &Effort) -> Result<Vec<Pair>, Error> {
    let mut beds = Vec::new();
    for client in Client::ALL {
        for up in UP {
            let bed = Testbed::new(client, up, windows);
            beds.push(bed);
            beds.push(bed.oversized(OversizedStart::SynAck));
        }
    }
    let measured = in_parallel(beds.len(), effort.threads, |run| beds[run].run(), |_| ())?;
    let pairs = beds.chunks(2).zip(measured.chunks(2));
    Ok(pairs
        .filter_map(|(beds, measured)| {
            let [normal, oversized] = *measured else {
                return None;
            };
            Some(Pair {
                client: beds[0].client,
                up: beds[0].up,
                normal,
                oversized,
            })
        })
        .collect())
}

fn throughputs(item: &str, pairs: &[Pair]) -> Vec<Record> {
    let mut records = Vec::new();
    for pair in pairs {
        for (segments, measured) in [("normal", pair.normal), ("oversized", pair.oversized)] {
            let value = measured.throughput(SIZE);
            let case = pair.case(segments);
            records.push(simulated(item, &case, "throughput", "bit/s", value));
        }
    }
    records
}

fn plot(item: &str, title: &str, pairs: &[Pair]) -> FigurePlot {
    let mut series = Vec::new();
    for client in Client::ALL {
        for oversized in [false, true] {
            let of = |pair: &Pair| {
                let measured = if oversized {
                    pair.oversized
                } else {
                    pair.normal
                };
                (number(pair.up), measured.throughput(SIZE))
            };
            let of_client = pairs.iter().filter(|pair| pair.client == client);
            series.push(Series {
                name: format!(
                    "{}, {} bytes",
                    client.name(),
                    client.segment(if oversized { 3 } else { 1 })
                ),
                points: of_client.map(of).collect(),
            });
        }
    }
    let plot = LinePlot {
        title: title.to_owned(),
        x: Axis::new("rate upstream", "bit/s").on_a_logarithmic_scale(),
        y: Axis::new("throughput", "bit/s"),
        series,
    };
    FigurePlot::new(item, plot)
}

/// Figs 8 and 11: no delay.
pub(super) fn without_delay(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    progress("figure 8, figure 11");
    let pairs = pairs(Windows::Default, effort)?;
    let mut out = Simulated::default();
    if effort.wants("figure 8") {
        let item = "figure 8";
        let mut records = throughputs(item, &pairs);
        for (client, printed) in Client::ALL.into_iter().zip(PRINTED) {
            let case = format!("{}, 32 kbit/s up, normal", client.name());
            if let Some(record) = records.iter_mut().find(|record| record.case == case) {
                record.paper = Some(printed);
            }
        }
        for pair in &pairs {
            let case = pair.case("oversized against normal");
            let mut gain = simulated(item, &case, "ratio of throughputs", "", pair.gain());
            if pair.client == Client::Two && pair.up == UP[0] {
                gain.paper = Some(3.0);
                gain.ok = Some((pair.gain() / 3.0 - 1.0).abs() <= ABOUT);
            } else {
                // "All the clients can obtain higher throughput in any upstream bandwidth case."
                gain.ok = Some(pair.gain() > 1.0);
            }
            records.push(gain);
        }
        out.records.append(&mut records);
        out.figures.push(plot(item, "no delay", &pairs));
    }
    if effort.wants("figure 11") {
        let made = figure_11(&pairs);
        out.records.extend(made.records);
        out.figures.extend(made.figures);
    }
    Ok(out)
}

fn figure_11(pairs: &[Pair]) -> Simulated {
    let item = "figure 11";
    let mut records = Vec::new();
    let narrowest = || pairs.iter().filter(|pair| pair.up == UP[0]);
    for (index, pair) in narrowest().enumerate() {
        for (segments, measured) in [("normal", pair.normal), ("oversized", pair.oversized)] {
            let case = pair.case(segments);
            let value = number(measured.acks);
            records.push(simulated(item, &case, "ACKs", "", value));
        }
        let bytes = number(pair.normal.ack_bytes);
        let case = pair.case("normal");
        let mut record = simulated(item, &case, "bytes of ACKs", "bytes", bytes);
        record.paper = Some(PRINTED_ACK_BYTES[index]);
        if pair.client == Client::One {
            record.note = Some(FEWER_WINDOW_UPDATES.to_owned());
        }
        records.push(record);
        let case = pair.case("oversized against normal");
        let mut record = simulated(item, &case, "ratio of ACKs", "", pair.acks());
        record.paper = Some(PRINTED_ACKS[index]);
        record.ok = Some((pair.acks() / PRINTED_ACKS[index] - 1.0).abs() <= ABOUT);
        records.push(record);
    }
    let series = |name: &str, acks: fn(&Pair) -> u64| Series {
        name: name.to_owned(),
        points: (1_u8..)
            .zip(narrowest())
            .map(|(client, pair)| (f64::from(client), number(acks(pair))))
            .collect(),
    };
    let plot = LinePlot {
        title: "ACKs at 32 kbit/s up".to_owned(),
        x: Axis::new("client", ""),
        y: Axis::new("ACKs", ""),
        series: vec![
            series("normal segments", |pair| pair.normal.acks),
            series("oversized segments", |pair| pair.oversized.acks),
        ],
    };
    Simulated {
        records,
        figures: vec![FigurePlot::new(item, plot)],
    }
}

/// Figs 9 and 10: 500 ms, with large windows and with sending ahead.
pub(super) fn with_delay(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    progress("figure 9, figure 10");
    let wso = pairs(Windows::Wso, effort)?;
    let tgw = pairs(Windows::Tgw, effort)?;
    let mut out = Simulated::default();
    if effort.wants("figure 9") {
        out.records.extend(throughputs("figure 9", &wso));
        out.figures.push(plot("figure 9", "500 ms, WSO", &wso));
    }
    if effort.wants("figure 10") {
        let item = "figure 10";
        out.records.extend(throughputs(item, &tgw));
        for (wso, tgw) in wso.iter().zip(&tgw) {
            let gain = tgw.oversized.throughput(SIZE) / wso.oversized.throughput(SIZE);
            let case = tgw.case("oversized, TGW against WSO");
            let mut record = simulated(item, &case, "ratio of throughputs", "", gain);
            if tgw.client == Client::Two {
                record.paper = Some(f64::midpoint(TGW_GAIN.0, TGW_GAIN.1));
                record.note = Some("the paper: 5–9 % faster".to_owned());
                record.ok = Some((TGW_GAIN.0..=TGW_GAIN.1).contains(&gain));
            }
            out.records.push(record);
        }
        out.figures.push(plot(item, "500 ms, TGW", &tgw));
    }
    Ok(out)
}
