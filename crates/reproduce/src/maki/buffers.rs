//! Fig. 11: the share of the expected throughput against the proxies' send buffers, for each
//! receive buffer, with three equal networks.

use midspan_model::papers::maki::figure_10_network;
use midspan_model::papers::maki_figures::{
    FIGURE_11_RECEIVE_BUFFERS, FIGURE_11_SEND_BUFFERS, figure_11,
};
use midspan_report::{Axis, LinePlot, Series};

use super::CHOICES;
use super::measure::{Measured, Runs, dispersion, measure};
use super::points::{Analysed, PROXIES};
use super::scenario::Case;
use crate::run::simulated;
use crate::{Effort, Error, FigurePlot, Simulated};

const ITEM: &str = "figure 11";
/// Seconds of a run: buffers of hundreds of packets fill and empty slowly.
const SECONDS: u64 = 4000;
/// The send buffer that the text names, in KB.
const PAPER: u32 = 512;
/// Further send buffers, larger than the figure's, in KB.
const BEYOND: [u32; 2] = [2048, 4096];
/// Seconds in which packets are counted, as a measure of how unsteady a leg is.
const WINDOW: u64 = 40;
/// A send buffer restores the throughput if at most this share is missing.
const RESTORED: f64 = 0.1;

pub(super) fn simulate(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let mut out = Simulated::default();
    if !effort.wants(ITEM) {
        return Ok(out);
    }
    let networks = [figure_10_network(); 3];
    let bytes = |kilobytes: u32| u64::from(kilobytes) * 1000;
    let mut cases = Vec::new();
    for receive in FIGURE_11_RECEIVE_BUFFERS {
        let case = |send| Case::new(&networks).with_buffers(bytes(receive), bytes(send));
        cases.push(case(PAPER).alone(0));
        let sends = FIGURE_11_SEND_BUFFERS.into_iter().chain(BEYOND);
        cases.extend(sends.map(|send| case(send).split_at(&PROXIES)));
    }
    let step = 1 + FIGURE_11_SEND_BUFFERS.len() + BEYOND.len();
    let runs = Runs::of(effort, SECONDS);
    let measured = measure(&cases, runs, |case| {
        let receive = FIGURE_11_RECEIVE_BUFFERS[case / step];
        progress(&format!("{ITEM}, receive buffer {receive} KB"));
    })?;
    let analysed = Analysed::new(figure_11)?;
    let mut series = Vec::new();
    for (row, (receive, measured)) in FIGURE_11_RECEIVE_BUFFERS
        .into_iter()
        .zip(measured.chunks(step))
        .enumerate()
    {
        let alone = measured.first().map_or(0.0, Measured::mean);
        let case = format!("receive buffer {receive} KB");
        let record = simulated(
            ITEM,
            &format!("{case}, a leg alone"),
            "throughput",
            "bit/s",
            alone,
        );
        out.records.push(record.with_note(CHOICES));
        let unsteady = dispersion(&cases[row * step], runs, WINDOW)?;
        let name = format!("{case}, a leg alone");
        let quantity = format!("variance over mean of its packets in {WINDOW} s");
        out.records
            .push(unsteady.record(ITEM, &name, &quantity, ""));
        let mut points = Vec::new();
        for (column, (send, split)) in FIGURE_11_SEND_BUFFERS
            .into_iter()
            .chain(BEYOND)
            .zip(&measured[1..])
            .enumerate()
        {
            let share = split.over_fixed(alone);
            let case = format!("{case}, send buffer {send} KB");
            let quantity = "share of the slowest leg's own throughput";
            let mut record = share.record(ITEM, &case, quantity, "share");
            if send == PAPER {
                record.paper = Some(1.0);
                record = record
                    .with_ok(share.mean() >= 1.0 - RESTORED)
                    .with_note("the paper: \"more than about 512 Kbytes\"");
            }
            if column < FIGURE_11_SEND_BUFFERS.len() {
                let place = row * FIGURE_11_SEND_BUFFERS.len() + column;
                out.records.extend(analysed.beside(record, place));
            } else {
                out.records.push(record);
            }
            points.push((f64::from(send) * 1000.0, share.mean()));
        }
        series.push(Series { name: case, points });
    }
    let plot = LinePlot {
        title: "Share of the slowest leg's own throughput for each receive buffer".to_owned(),
        x: Axis::new("send buffer", "bytes").on_a_logarithmic_scale(),
        y: Axis::new("share", "share"),
        series,
    };
    out.figures.push(FigurePlot::new(ITEM, plot));
    Ok(out)
}
