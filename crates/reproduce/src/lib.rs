//! The papers' tables and figures, beside the papers' own numbers.
//!
//! Each paper has a module; [`analysis`] gives what its equations say. `docs/papers/` tells what
//! was chosen where a paper leaves something open, and what does not follow from it.

mod maki;

use midspan_model::ModelError;
use midspan_model::papers::{Figure, hasegawa, shikama, tam};
use midspan_records::{By, Record};

/// A paper by its short name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// A TCP overlay: splitting at several proxies, buffers, placement.
    Maki,
    /// Oversized segments and sending ahead for narrow upstreams.
    Hasegawa,
    /// ACE thinning and its rivals.
    Tam,
    /// Bursts of a split proxy, and pacing.
    Shikama,
}

impl Paper {
    /// All that analysis covers.
    pub const ALL: [Self; 4] = [Self::Maki, Self::Hasegawa, Self::Tam, Self::Shikama];

    /// Its short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Maki => "maki",
            Self::Hasegawa => "hasegawa",
            Self::Tam => "tam",
            Self::Shikama => "shikama",
        }
    }
}

/// What a paper's equations give, each figure beside the printed one.
///
/// # Errors
/// None for the papers' own settings; whatever the model says of settings it cannot take.
pub fn analysis(paper: Paper) -> Result<Vec<Record>, ModelError> {
    Ok(match paper {
        Paper::Maki => maki::records()?,
        Paper::Hasegawa => records([
            hasegawa::upstream().as_slice(),
            &hasegawa::throughput_from_acks(),
            &hasegawa::section_6_4(),
            &hasegawa::segments_in_window(),
        ]),
        Paper::Tam => records([tam::section_1_3().as_slice(), &tam::testbed_k()]),
        Paper::Shikama => records([shikama::largest_bursts().as_slice()]),
    })
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
            assert!(!records.is_empty(), "{}", paper.name());
            for record in records {
                assert!(
                    record.value.is_finite() && record.paper.is_some(),
                    "{record:?}"
                );
            }
        }
    }
}
