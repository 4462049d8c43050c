//! The papers' tables and figures, compared with the papers' own numbers.
//!
//! Each paper has a folder with its network as path files, the conditions of its figures, and the list
//! `FIGURES`. [`analysis()`] computes the paper's equations, [`simulation()`] runs the paper's scenarios
//! in the packet-level simulator, and [`laboratory`] runs them on real kernels. [`comparison`] shows the
//! three side by side for any path, and [`agreement`] measures how well the analysis agrees with the
//! simulator.
//! `docs/papers/` describes the choices that were made where a paper leaves something open, and the
//! results that could not be reproduced.

pub mod agreement;
mod bhole;
pub mod comparison;
mod curves;
mod error;
mod figure;
mod hasegawa;
pub mod laboratory;
mod maki;
mod network;
mod paper;
mod presentation;
mod run;
mod shikama;
mod simulated;
mod tam;

pub use curves::{Curves, curves};
pub use error::Error;
pub use paper::Paper;
pub use presentation::{curve_figures, report, table};
pub use simulated::{Effort, FigurePlot, Simulated};

use midspan_model::papers::Figure as Printed;
use midspan_records::{By, Record};

/// The results of a paper's equations, each figure next to the printed one; empty if
/// [`Paper::has_analysis`] is false.
///
/// # Errors
/// None for the papers' own settings; errors of the model for settings that it cannot use.
pub fn analysis(paper: Paper) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    for analysis in paper.figures().iter().filter_map(|figure| figure.analysis) {
        records.extend(analysis()?);
    }
    Ok(records)
}

/// The simulator's results for a paper's scenarios, next to the paper's numbers, and for the points of
/// Maki's figures next to the analysis; empty if [`Paper::has_simulation`] is false.
///
/// `effort` selects the items, and whether fewer and shorter runs are enough (`quick`):
///
/// | paper | quick | otherwise |
/// | --- | --- | --- |
/// | Shikama | 2 runs of 100 s | 10 runs of 1,000 s |
/// | Maki | 3 runs of a fifth of the time | 10 runs |
/// | Tam, downloads; Linux hosts | 12; 6 runs | 100; 24 runs |
/// | Tam, figure 9; transfers with loss both ways | 100 s; 200 | 1,000 s; 1,000 |
/// | Hasegawa, lost fragments | 5 runs | 50 runs |
///
/// Bhole's tables take a moment and are always complete. `progress` is called with a short text about
/// each finished part.
///
/// # Errors
/// A scenario cannot be set up, or ended before its time.
pub fn simulation(
    paper: Paper,
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    simulation_by_figure(paper, effort, progress, &mut |_| ())
}

/// Like [`simulation`]. `made` is called each time when figures that are made together are there, with
/// their items, so that the caller can measure the time.
///
/// # Errors
/// Those of [`simulation`].
pub fn simulation_by_figure(
    paper: Paper,
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
    made: &mut dyn FnMut(&'static [&'static str]),
) -> Result<Simulated, Error> {
    figure::simulate_each(paper.figures(), effort, progress, made)
}

/// What a paper prints as records, each with the number that its equations give.
pub(crate) fn printed<const N: usize>(figures: [&[Printed]; N]) -> Vec<Record> {
    figures.concat().iter().map(record).collect()
}

fn record(figure: &Printed) -> Record {
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
    use std::collections::BTreeSet;

    use super::*;

    /// Fails if two records have the same name.
    fn differ(records: &[Record]) {
        let mut names = BTreeSet::new();
        for record in records {
            let Record {
                item,
                case,
                quantity,
                by,
                ..
            } = record;
            let name = format!("{item}, {case}, {quantity}, by {}", by.name());
            assert!(names.insert(name.clone()), "two records: {name}");
        }
    }

    #[test]
    fn every_figure_stands_beside_the_printed_one() {
        for paper in Paper::ALL {
            let records = analysis(paper).unwrap();
            assert_eq!(paper.has_analysis(), !records.is_empty(), "{paper:?}");
            for record in records {
                // A figure beyond the paper has no printed number.
                let is_printed = ["figure ", "table ", "section "]
                    .iter()
                    .any(|kind| record.item.starts_with(kind));
                assert!(
                    record.value.is_finite() && (record.paper.is_some() || !is_printed),
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
            let analysed = analysis(paper).unwrap();
            differ(&[analysed, records.clone()].concat());
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
                // The test of Tam's items names the bounds that they miss.
                let has_own_test = paper == Paper::Tam;
                assert!(has_own_test || record.ok != Some(false), "{record:?}");
            }
        }
    }
}
