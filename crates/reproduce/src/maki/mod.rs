//! Maki: Tables I and II and Figs 8 to 11, by analysis; Table II and Figs 8 to 11 by simulation;
//! Fig. 11 on the lab.

mod analysis;
mod buffers;
mod figure_8;
mod lab;
mod measure;
mod networks;
mod placement;
mod points;
mod scenario;
mod splitting;
#[cfg(test)]
mod tests;

use crate::figure::Figure;

/// A note at the first record of each figure: the values that the paper leaves open.
const CHOICES: &str = "Reno, 1,000-byte packets, an ACK for each, T_o at least 1 s, 10 Gbit/s, \
    loss at random and none of ACKs; a send buffer also holds the data in flight";

/// The tables and figures of the paper. The analysis of Figs 9 to 11 is in one part, because it is
/// reported reading by reading.
pub(crate) const FIGURES: &[Figure] = &[
    Figure::new(&["table 1"]).by_analysis(|| Ok(analysis::table_1())),
    Figure::new(&["table 2"])
        .by_analysis(|| Ok(analysis::table_2()?))
        .by_simulation(|run| run.make(placement::simulate)),
    Figure::new(&["section 4"]).by_analysis(|| Ok(analysis::section_4())),
    Figure::new(&["figure 8"])
        .by_analysis(|| Ok(analysis::figure_8()?))
        .by_simulation(|run| run.make(figure_8::simulate)),
    Figure::new(&["figure 9", "figure 10"])
        .by_analysis(|| Ok(analysis::figures_9_to_11()?))
        .by_simulation(|run| run.make(splitting::simulate)),
    Figure::new(&["figure 11"])
        .by_simulation(|run| run.make(buffers::simulate))
        .by_lab(lab::figure_11),
];
