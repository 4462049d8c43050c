//! Lines with an interval at each point, such as means with their 95 % intervals.

use super::lines::{Interval, LinePlot, to_svg};
use crate::Error;

/// A chart of lines with intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct IntervalPlot {
    /// The lines.
    pub lines: LinePlot,
    /// The intervals of each line, in the order of the lines.
    pub intervals: Vec<Vec<Interval>>,
}

impl IntervalPlot {
    /// The chart as SVG, 800 pixels wide.
    ///
    /// # Errors
    /// If the drawing library fails, which no data should cause.
    pub fn to_svg(&self) -> Result<String, Error> {
        to_svg(&self.lines, &self.intervals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::palette;
    use crate::{Axis, Series};

    #[test]
    fn an_interval_is_drawn_and_fits_into_the_plot() {
        let lines = LinePlot {
            title: String::new(),
            x: Axis::new("loss", "share"),
            y: Axis::new("goodput", "bit/s"),
            series: vec![Series {
                name: "direct".to_owned(),
                points: vec![(0.1, 1e6), (0.2, 2e6)],
            }],
        };
        let without = lines.to_svg().unwrap();
        let high = [0.1, 0.2, f64::NAN].map(|x| Interval {
            x,
            low: 0.5e6,
            high: 9e6,
        });
        let with = IntervalPlot {
            lines,
            intervals: vec![high.to_vec()],
        };
        let with = with.to_svg().unwrap();
        let count = |svg: &str, text: &str| svg.matches(text).count();
        // A vertical line with two ends for each of both intervals.
        let colour = palette::series(0).hex();
        assert_eq!(count(&with, &colour), count(&without, &colour) + 6);
        assert!(
            with.contains("\n8\n") && !without.contains("\n8\n"),
            "{with}"
        );
    }
}
