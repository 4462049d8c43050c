//! How much of a paper is simulated, and the results.

use midspan_records::Record;
use midspan_report::LinePlot;

/// How much to simulate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effort {
    /// Fewer and shorter runs than the paper's.
    pub quick: bool,
    /// Only this item, such as "figure 10"; `None` for everything.
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

    /// Whether to simulate an item.
    #[must_use]
    pub fn wants(&self, item: &str) -> bool {
        self.item.as_ref().is_none_or(|wanted| wanted == item)
    }
}

/// The results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Simulated {
    /// All numbers.
    pub records: Vec<Record>,
    /// The paper's figures, with the simulated lines.
    pub figures: Vec<FigurePlot>,
}

/// A figure of a paper.
#[derive(Debug, Clone, PartialEq)]
pub struct FigurePlot {
    /// The item, such as "figure 10".
    pub item: String,
    /// The plot.
    pub plot: LinePlot,
}

impl FigurePlot {
    /// A figure with this item and plot.
    pub(crate) fn new(item: &str, plot: LinePlot) -> Self {
        Self {
            item: item.to_owned(),
            plot,
        }
    }
}
