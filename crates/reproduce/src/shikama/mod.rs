//! Shikama: Figs 7 and 8 and 10 to 13, by simulation.

mod bursts;
mod scenario;
#[cfg(test)]
mod tests;

use midspan_records::Record;
use midspan_units::TimeSpan;

use crate::Error;
use crate::run::{number, simulated};
use bursts::Bursts;
use scenario::{AMPLE, NARROW, Scheme, Setting};

const SCHEMES: [Scheme; 3] = [Scheme::A, Scheme::B, Scheme::C];
/// P_L.
const LOSSES: [&str; 7] = ["0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1"];
/// The P_L of at most 0.0002, where B is to be below C with a B_L of 20 packets.
const RARE: [&str; 1] = ["0.0001"];
/// Two throughputs are the same within this share.
const SAME: f64 = 0.005;
/// Most loss over the wired section where there is none in the paper.
const NO_LOSS: f64 = 1e-5;

const NO_OVERFLOW: &str = "the paper sees losses of B here; a burst of 43 packets cannot overflow \
    a queue of 50, so they do not follow from its model";
const SLOW_START: &str = "all in the first slow start";
const TOO_SHORT: &str = "too short a run for the bound of 10⁻⁵ with the first slow start in it";

/// How long and how often.
#[derive(Debug, Clone, Copy)]
struct Effort {
    duration: TimeSpan,
    runs: u64,
}

impl Effort {
    const PAPER: Self = Self {
        duration: TimeSpan::from_seconds(1000),
        runs: 10,
    };
    const QUICK: Self = Self {
        duration: TimeSpan::from_seconds(100),
        runs: 1,
    };
}

/// All figures; `quick` takes one run of 100 s instead of ten of 1,000 s.
pub(crate) fn records(quick: bool, progress: &mut dyn FnMut(&str)) -> Result<Vec<Record>, Error> {
    let effort = if quick { Effort::QUICK } else { Effort::PAPER };
    let mut records = section_5_1(effort, progress)?;
    let mut short = points(20, effort, progress)?;
    let mut long = points(50, effort, progress)?;
    for point in short.iter_mut().chain(&mut long) {
        records.extend(point.records());
    }
    for (short, long) in short.iter().zip(&long) {
        records.extend(short.against());
        records.extend(long.against());
        let ratio = long.measured[0].mean / short.measured[0].mean;
        let case = format!("A, P_L = {}", short.loss);
        let quantity = "throughput at B_L 50 against B_L 20";
        let record = simulated("section 5.3", &case, quantity, "", ratio);
        records.push(record.with_ok((ratio - 1.0).abs() <= SAME));
    }
    Ok(records)
}

/// A point of the figures: the three schemes at one P_L and B_L.
#[derive(Debug)]
struct Point {
    loss: &'static str,
    queue: u32,
    /// Of A, B and C.
    measured: [Measured; 3],
}

/// All runs of a setting.
#[derive(Debug, Default)]
struct Measured {
    /// Throughput in bit/s: the mean of the runs, the least and the most.
    mean: f64,
    least: f64,
    most: f64,
    /// Packets that came to the queue of n2, and that found it full.
    handled: u64,
    drops: u64,
    /// Whether the runs are as long as the paper's.
    runs_are_full: bool,
    bursts: Bursts,
}

fn points(queue: u32, effort: Effort, progress: &mut dyn FnMut(&str)) -> Result<Vec<Point>, Error> {
    let mut points = Vec::new();
    for loss in LOSSES {
        let mut measured = <[Measured; 3]>::default();
        for (measured, scheme) in measured.iter_mut().zip(SCHEMES) {
            *measured = measure(scheme, loss, queue, effort)?;
        }
        progress(&format!("B_L = {queue}, P_L = {loss}"));
        points.push(Point {
            loss,
            queue,
            measured,
        });
    }
    Ok(points)
}

fn measure(scheme: Scheme, loss: &str, queue: u32, effort: Effort) -> Result<Measured, Error> {
    let setting = Setting {
        scheme,
        loss: loss.parse()?,
        queue,
        duration: effort.duration,
    };
    let mut measured = Measured {
        least: f64::INFINITY,
        runs_are_full: effort.duration >= Effort::PAPER.duration,
        ..Measured::default()
    };
    for seed in 1..=effort.runs {
        let (results, bursts) = setting.run(seed)?;
        let throughput = number(results.flows[0].delivered * 8) / effort.duration.as_seconds();
        measured.mean += throughput / number(effort.runs);
        measured.least = measured.least.min(throughput);
        measured.most = measured.most.max(throughput);
        let narrow = &results.links[NARROW.0].up;
        measured.handled += narrow.handled.packets;
        measured.drops += narrow.queue_full.packets;
        measured.bursts.add(bursts);
    }
    Ok(measured)
}

/// Figs 7 and 8: forward data and bursts where node n2 has room for all.
fn section_5_1(effort: Effort, progress: &mut dyn FnMut(&str)) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    for (item, scheme, paper) in [("figure 7", Scheme::B, 43.0), ("figure 8", Scheme::A, 2.0)] {
        for loss in ["0.001", "0.01"] {
            let mut measured = measure(scheme, loss, AMPLE, effort)?;
            let case = format!("{scheme:?}, P_L = {loss}");
            let forward = number(measured.bursts.largest_forward_data);
            let mut forward = simulated(item, &case, "largest forward data", "segments", forward)
                .with_ok(forward <= 43.0);
            forward.paper = Some(43.0);
            records.push(forward);
            let mut bursts = bursts(item, &case, scheme, &mut measured.bursts);
            if let [longest, ..] = bursts.as_mut_slice() {
                longest.paper = Some(paper);
            }
            records.append(&mut bursts);
        }
        progress(item);
    }
    Ok(records)
}

/// The longest burst and p99.9; paced, the latter is to be at most 2.
fn bursts(item: &str, case: &str, scheme: Scheme, bursts: &mut Bursts) -> Vec<Record> {
    let Some(summary) = bursts.summary() else {
        return Vec::new();
    };
    let longest = number(summary.longest);
    let longest = simulated(item, case, "largest burst", "packets", longest);
    let mut most = simulated(item, case, "p99.9 burst", "packets", number(summary.most));
    if scheme == Scheme::A {
        most.ok = Some(summary.most <= 2);
    }
    vec![longest, most]
}

impl Point {
    fn case(&self, scheme: Scheme) -> String {
        format!("{scheme:?}, B_L = {}, P_L = {}", self.queue, self.loss)
    }

    /// Which figures show throughput and loss.
    const fn figures(&self) -> [&'static str; 2] {
        if self.queue == 20 {
            ["figure 10", "figure 11"]
        } else {
            ["figure 12", "figure 13"]
        }
    }

    /// What was measured, for each scheme.
    fn records(&mut self) -> Vec<Record> {
        let [throughput, loss] = self.figures();
        let mut records = Vec::new();
        for (index, scheme) in SCHEMES.into_iter().enumerate() {
            let case = self.case(scheme);
            let measured = &mut self.measured[index];
            let record = simulated(throughput, &case, "throughput", "bit/s", measured.mean);
            records.push(record.with_spread(measured.least, measured.most));
            let mut bursts = bursts("section 5.1", &case, scheme, &mut measured.bursts);
            records.append(&mut bursts);
            records.extend(measured.drops(loss, &case, scheme, self.queue));
        }
        records
    }

    /// What the text says of the schemes' throughput against each other.
    fn against(&self) -> Vec<Record> {
        let [a, b, c] = [0, 1, 2].map(|index| self.measured[index].mean);
        let item = self.figures()[0];
        let ratio = |over: &str, value| {
            let case = format!("B_L = {}, P_L = {}", self.queue, self.loss);
            simulated(item, &case, &format!("throughput of {over}"), "", value)
        };
        let mut records = vec![
            ratio("A against B", a / b).with_ok(a >= b * (1.0 - SAME)),
            ratio("A against C", a / c).with_ok(a >= c * (1.0 - SAME)),
        ];
        let mut record = ratio("B against C", b / c);
        if self.queue == 20 && RARE.contains(&self.loss) {
            record.ok = Some(b < c);
        }
        records.push(record);
        records
    }
}

impl Measured {
    /// What was dropped at node n2, of all runs. The paper sees nothing dropped of A and C.
    fn drops(&self, item: &str, case: &str, scheme: Scheme, queue: u32) -> [Record; 3] {
        let late = self.bursts.late_drops;
        let mut drops = simulated(item, case, "wired drops", "packets", number(self.drops));
        let quantity = "wired drops after the first slow start";
        let mut after = simulated(item, case, quantity, "packets", number(late));
        let share = number(self.drops) / number(self.handled.max(1));
        let mut loss = simulated(item, case, "wired loss", "share", share);
        if scheme == Scheme::B {
            if queue == 50 {
                loss.note = Some(NO_OVERFLOW.to_owned());
            }
            return [drops, after, loss];
        }
        drops.paper = Some(0.0);
        if self.drops > 0 && late == 0 {
            drops.note = Some(SLOW_START.to_owned());
        }
        let bound = NO_LOSS * number(self.handled);
        after.ok = Some(number(late) < bound);
        // However short a run is, its slow start may drop two packets.
        if self.runs_are_full {
            loss.ok = Some(share < NO_LOSS);
        } else {
            loss.note = Some(TOO_SHORT.to_owned());
        }
        [drops, after, loss]
    }
}
