//! Table II: one proxy, on each of the three routers between four networks.

use midspan_model::papers::maki::{Network, TABLE_2, TABLE_2_RECEIVE_BUFFER, table_2_networks};
use midspan_records::Record;

use super::CHOICES;
use super::measure::{Measured, Runs, measure};
use super::scenario::{Case, UNBOUNDED};
use crate::run::simulated;
use crate::{Effort, Error, Simulated};

const ITEM: &str = "table 2";
/// Seconds of a run.
const SECONDS: u64 = 300;

pub(super) fn simulate(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let mut out = Simulated::default();
    if !effort.wants(ITEM) {
        return Ok(out);
    }
    for (network, paper) in TABLE_2 {
        let name = format!("{network:?}").to_lowercase();
        let case = Case::new(&table_2_networks(network))
            .with_buffers(TABLE_2_RECEIVE_BUFFER.bytes(), UNBOUNDED);
        let cases = [1, 2, 3].map(|router| case.clone().split_at(&[router]));
        let measured = measure(&cases, Runs::of(effort, SECONDS), |case| {
            progress(&format!("{ITEM}, {name}, R{}", case + 1));
        })?;
        for (router, (measured, paper)) in (1..).zip(measured.iter().zip(paper)) {
            let case = format!("{name}, R{router}, simulated");
            let mut record = measured.record(ITEM, &case, "throughput", "bit/s");
            record.paper = Some(paper * 1e6);
            let note = format!("{CHOICES}; send buffer without bound, receive buffers of 2 MB");
            out.records.push(record.with_note(note));
        }
        let means: Vec<f64> = measured.iter().map(Measured::mean).collect();
        out.records.extend(orders(network, &name, &means));
    }
    Ok(out)
}

/// Compares the places of the proxy.
fn orders(network: Network, name: &str, means: &[f64]) -> Vec<Record> {
    // The better and the worse place, according to the paper.
    let pairs = match network {
        Network::Homogeneous => [(2, 1), (2, 3)],
        Network::Heterogeneous => [(2, 1), (3, 2)],
    };
    let [r1, r2, r3] = means else {
        return Vec::new();
    };
    let mean = |router| match router {
        1 => r1,
        2 => r2,
        _ => r3,
    };
    pairs
        .map(|(better, worse)| {
            let ratio = mean(better) / mean(worse);
            let case = format!("{name}, R{better} over R{worse}, simulated");
            simulated(ITEM, &case, "ratio of throughputs", "", ratio).with_ok(ratio > 1.0)
        })
        .to_vec()
}
