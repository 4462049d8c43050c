//! Plots as SVG text, for use alone or in a page.

mod axis;
mod bars;
mod canvas;
mod heading;
mod heat;
mod intervals;
mod lines;
pub(crate) mod palette;
mod panels;

pub use axis::Axis;
pub use bars::{Bar, BarPlot, BarSeries};
pub use heat::{Categories, HeatPlot};
pub use intervals::IntervalPlot;
pub use lines::{Interval, LinePlot, Series};
pub use panels::{Panel, PanelPlot};

/// Width of every picture in pixels; SVG can be scaled.
pub(crate) const WIDTH: i32 = 800;
/// Free space at the edges, in pixels.
pub(crate) const MARGIN: i32 = 16;
