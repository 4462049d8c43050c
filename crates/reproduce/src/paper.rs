//! The papers.

use crate::figure::Figure;
use crate::laboratory::{self, LabEffort, LaboratoryError, Point};
use crate::{bhole, hasegawa, maki, shikama, tam};

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
    /// A proxy transport service: where to put it, how fast, how much buffer.
    Bhole,
}

impl Paper {
    /// All papers.
    pub const ALL: [Self; 5] = [
        Self::Maki,
        Self::Hasegawa,
        Self::Tam,
        Self::Shikama,
        Self::Bhole,
    ];

    /// The short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Maki => "maki",
            Self::Hasegawa => "hasegawa",
            Self::Tam => "tam",
            Self::Shikama => "shikama",
            Self::Bhole => "bhole",
        }
    }

    /// The figures of this paper, in the order in which they are made.
    pub(crate) const fn figures(self) -> &'static [Figure] {
        match self {
            Self::Maki => maki::FIGURES,
            Self::Hasegawa => hasegawa::FIGURES,
            Self::Tam => tam::FIGURES,
            Self::Shikama => shikama::FIGURES,
            Self::Bhole => bhole::FIGURES,
        }
    }

    /// Whether [`analysis`](crate::analysis) has figures of this paper.
    #[must_use]
    pub fn has_analysis(self) -> bool {
        self.figures()
            .iter()
            .any(|figure| figure.analysis.is_some())
    }

    /// Whether [`simulation`](crate::simulation) has figures of this paper.
    #[must_use]
    pub fn has_simulation(self) -> bool {
        self.figures()
            .iter()
            .any(|figure| figure.simulation.is_some())
    }

    /// The lab's points of this paper that `effort` selects.
    ///
    /// # Errors
    /// The lab does not have the item.
    pub fn lab_points(self, effort: &LabEffort) -> Result<Vec<Point>, LaboratoryError> {
        let mut points = Vec::new();
        for lab in self.figures().iter().filter_map(|figure| figure.lab) {
            points.extend(lab(effort.extent)?);
        }
        laboratory::wanted(points, self.name(), effort)
    }
}
