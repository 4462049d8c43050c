//! Tam: Figs 3 to 7 and 9, and the other results of §2.4, §4.3 and §5.2, by simulation; Fig. 9 and
//! §5.2 on the lab.

mod cable;
mod estimate;
mod figure_9;
mod hosts;
mod lab;
mod measure;
mod network;
mod safety;
mod scenarios;
mod scheme;
mod testbed;
#[cfg(test)]
mod tests;
mod three_terminals;

use midspan_model::papers::tam as printed;

use crate::figure::Figure;

/// The figures of the paper, and further measurements.
pub(crate) const FIGURES: &[Figure] = &[
    Figure::new(&["equations"]).by_analysis(|| {
        Ok(crate::printed([
            printed::section_1_3().as_slice(),
            &printed::testbed_k(),
        ]))
    }),
    Figure::new(&["figure 3"]).by_simulation(|run| run.make(scenarios::figure_3)),
    Figure::new(&["figure 4"]).by_simulation(|run| run.make(scenarios::figure_4)),
    Figure::new(&["section 4.3"]).by_simulation(|run| run.make(scenarios::section_4_3)),
    Figure::new(&["figure 5"]).by_simulation(|run| run.make(estimate::figure_5)),
    Figure::new(&["figure 6"]).by_simulation(|run| run.make(scenarios::figure_6)),
    Figure::new(&["figure 7"]).by_simulation(|run| run.make(scenarios::figure_7)),
    Figure::new(&["figure 9"])
        .by_simulation(|run| run.make(figure_9::figure_9))
        .by_lab(lab::figure_9),
    Figure::new(&["figure 9, Linux hosts"]).by_simulation(|run| run.make(hosts::figure_9)),
    Figure::new(&["no limit"]).by_lab(lab::no_limit),
    Figure::new(&["beside oversized segments"]).by_lab(lab::beside),
    Figure::new(&["three terminals"])
        .by_simulation(|run| run.make(three_terminals::three_terminals))
        .by_lab(lab::three_terminals),
    Figure::new(&["up- and download"])
        .by_simulation(|run| run.make(figure_9::both_ways))
        .by_lab(lab::both_ways),
    Figure::new(&["section 2.4"]).by_simulation(|run| run.make(figure_9::header_compression)),
    Figure::new(&["loss both ways"])
        .by_simulation(|run| run.make(safety::safety))
        .by_lab(lab::loss_both_ways),
];
