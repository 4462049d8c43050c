//! Plots as SVG text that stands alone or inside a page.

mod axis;
mod bars;
mod canvas;
mod heading;
mod lines;
pub(crate) mod palette;

pub use axis::Axis;
pub use bars::{Bar, BarPlot, BarSeries};
pub use lines::{LinePlot, Series};

/// Width of every picture in pixels; it scales, being SVG.
pub(crate) const WIDTH: i32 = 800;
/// Room left free at the edges, in pixels.
pub(crate) const MARGIN: i32 = 16;
