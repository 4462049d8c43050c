//! Hasegawa: Figs 8 to 12, and the ways in which a session begins oversized segments (§6.2), by
//! simulation; Figs 8, 10 and 11 on the lab.

mod figure_12;
mod figures;
mod lab;
mod network;
mod starts;
mod testbed;
#[cfg(test)]
mod tests;

use midspan_model::papers::hasegawa as printed;

use crate::figure::Figure;

/// The figures of the paper, and further measurements.
pub(crate) const FIGURES: &[Figure] = &[
    Figure::new(&["equations"]).by_analysis(|| {
        Ok(crate::printed([
            printed::upstream().as_slice(),
            &printed::throughput_from_acks(),
            &printed::section_6_4(),
            &printed::segments_in_window(),
        ]))
    }),
    Figure::new(&["figure 8", "figure 11"])
        .by_simulation(|run| run.make(figures::without_delay))
        .by_lab(lab::figure_8),
    Figure::new(&["figure 9", "figure 10"])
        .by_simulation(|run| run.make(figures::with_delay))
        .by_lab(lab::figures_9_and_10),
    Figure::new(&["figure 12"]).by_simulation(|run| run.make(figure_12::figure_12)),
    Figure::new(&[starts::ITEM]).by_simulation(|run| run.make(starts::starts)),
    Figure::new(&["geo-ahead"]).by_lab(lab::geo),
    Figure::new(&["fair"]).by_lab(lab::fair),
];
