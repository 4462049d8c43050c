//! The papers.

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

    /// Whether [`analysis`](crate::analysis) has figures of this paper.
    #[must_use]
    pub const fn has_analysis(self) -> bool {
        !matches!(self, Self::Bhole)
    }

    /// Whether [`simulation`](crate::simulation) has figures of this paper.
    #[must_use]
    pub const fn has_simulation(self) -> bool {
        true
    }
}
