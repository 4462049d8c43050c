//! What is simulated of a paper, and what comes out.

use midspan_records::Record;
use midspan_report::LinePlot;

/// How much is simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effort {
    /// Fewer and shorter runs than the paper's.
    pub quick: bool,
    /// Only this item, such as "figure 10"; everything where there is none.
    pub item: Option<String>,
    /// Threads; the result does not depend on them.
    pub threads: usize,
}

impl Effort {
    /// Everything, in fewer and shorter runs.
    #[must_use]
    pub const fn quick() -> Self {
        Self {
            quick: true,
            item: None,
            threads: 2,
        }
    }

    /// Whether an item is asked for.
    #[must_use]
    pub fn wants(&self, item: &str) -> bool {
        self.item.as_ref().is_none_or(|wanted| wanted == item)
    }
}

/// What comes out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Simulated {
    /// Every number.
    pub records: Vec<Record>,
    /// The paper's figures, as they come out here.
    pub figures: Vec<FigurePlot>,
}

/// A figure of a paper.
#[derive(Debug, Clone, PartialEq)]
pub struct FigurePlot {
    /// Which, such as "figure 10".
    pub item: String,
    /// The plot.
    pub plot: LinePlot,
}

impl FigurePlot {
    /// A figure whose item its plot names as well.
    pub(crate) fn new(item: &str, plot: LinePlot) -> Self {
        Self {
            item: item.to_owned(),
            plot,
        }
    }
}
