//! Maki: Tables I and II and Figs 8 to 11, by analysis; Table II and Figs 8 to 11 by simulation.

mod analysis;
mod buffers;
mod figure_8;
mod measure;
mod networks;
mod placement;
mod scenario;
mod splitting;
#[cfg(test)]
mod tests;

pub(crate) use analysis::records;

use crate::{Effort, Error, Simulated};

/// Stands at the first record of each figure: what the paper leaves open.
const CHOICES: &str = "Reno, 1,000-byte packets, an ACK for each, T_o at least 1 s, 10 Gbit/s, \
    loss at random and none of ACKs; a send buffer also holds what is under way";

/// The figures that are asked for.
pub(crate) fn simulate(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    let parts = [
        placement::simulate,
        figure_8::simulate,
        splitting::simulate,
        buffers::simulate,
    ];
    let mut out = Simulated::default();
    for part in parts {
        let mut part: Simulated = part(effort, progress)?;
        out.records.append(&mut part.records);
        out.figures.append(&mut part.figures);
    }
    Ok(out)
}
