//! The papers' tables and figures, beside the papers' own numbers.
//!
//! Each paper has a module; [`analysis`] gives what its equations say, [`simulation`] what the
//! packet-level simulator measures in the paper's scenarios, [`laboratory`] what real kernels do on
//! them. `docs/papers/` tells what was chosen
//! where a paper leaves something open, and what does not follow from it.

pub mod agreement;
mod bhole;
mod curves;
mod error;
mod hasegawa;
pub mod laboratory;
mod maki;
mod paper;
mod run;
mod shikama;
mod simulated;
mod tam;

pub use curves::{Curves, curves};
pub use error::Error;
pub use paper::Paper;
pub use simulated::{Effort, FigurePlot, Simulated};

use midspan_model::ModelError;
use midspan_model::papers::{self, Figure, hasegawa as asymmetry, tam as printed};
use midspan_records::{By, Record};

/// What a paper's equations give, each figure beside the printed one; nothing where
/// [`Paper::has_analysis`] is false.
///
/// # Errors
/// None for the papers' own settings; whatever the model says of settings it cannot take.
pub fn analysis(paper: Paper) -> Result<Vec<Record>, ModelError> {
    Ok(match paper {
        Paper::Maki => maki::records()?,
        Paper::Hasegawa => records([
            asymmetry::upstream().as_slice(),
            &asymmetry::throughput_from_acks(),
            &asymmetry::section_6_4(),
            &asymmetry::segments_in_window(),
        ]),
        Paper::Tam => records([printed::section_1_3().as_slice(), &printed::testbed_k()]),
        Paper::Shikama => records([papers::shikama::largest_bursts().as_slice()]),
        Paper::Bhole => Vec::new(),
    })
}

/// What the simulator measures in a paper's scenarios, beside what the paper prints, and for the
/// points of Maki's figures beside what the analysis says; nothing where [`Paper::has_simulation`] is false.
///
/// `effort` says which items, and whether fewer and shorter runs are enough: two of 100 s instead
/// of ten of 1,000 s for Shikama, three of a fifth of the time instead of ten for Maki, a tenth of the downloads, time and transfers for Tam, a tenth of the runs with loss for
/// Hasegawa; Bhole's tables take a moment and are always complete.
/// `progress` is told what is done, in a few words.
///
/// # Errors
/// A scenario cannot be set up, or ended before its time.
pub fn simulation(
    paper: Paper,
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    match paper {
        Paper::Bhole => bhole::simulate(effort, progress),
        Paper::Shikama => shikama::simulate(effort, progress),
        Paper::Maki => maki::simulate(effort, progress),
        Paper::Tam => tam::simulate(effort, progress),
        Paper::Hasegawa => hasegawa::simulate(effort, progress),
    }
}

fn records<const N: usize>(figures: [&[Figure]; N]) -> Vec<Record> {
    figures.concat().iter().map(record).collect()
}

fn record(figure: &Figure) -> Record {
    let mut record = Record::new(
        figure.item,
        figure.case,
        figure.quantity,
        figure.unit,
        By::Analysis,
        figure.value,
    );
    record.paper = Some(figure.paper);
    if !figure.note.is_empty() {
        record.note = Some(figure.note.to_owned());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_stands_beside_the_printed_one() {
        for paper in Paper::ALL {
            let records = analysis(paper).unwrap();
            assert_eq!(paper.has_analysis(), !records.is_empty(), "{paper:?}");
            for record in records {
                assert!(
                    record.value.is_finite() && record.paper.is_some(),
                    "{record:?}"
                );
            }
        }
    }

    #[test]
    fn a_paper_has_a_simulation_where_it_says_so() {
        for paper in Paper::ALL {
            let mut told = 0;
            let effort = Effort::quick();
            let Simulated { records, figures } =
                simulation(paper, &effort, &mut |_| told += 1).unwrap();
            assert_eq!(paper.has_simulation(), !figures.is_empty(), "{paper:?}");
            for figure in figures {
                assert!(
                    figure.plot.to_svg().unwrap().contains("<svg"),
                    "{}",
                    figure.item
                );
            }
            assert_eq!(paper.has_simulation(), !records.is_empty(), "{paper:?}");
            assert_eq!(paper.has_simulation(), told > 0, "{paper:?}");
            for record in records {
                assert!(record.value.is_finite(), "{record:?}");
                assert_ne!(record.ok, Some(false), "{record:?}");
            }
        }
    }
}
