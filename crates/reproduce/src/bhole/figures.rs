//! Figs 3 to 9 as plots.

use midspan_report::{Axis, LinePlot, Series};

use super::scenario::Case;
use crate::{Error, FigurePlot};

/// cwnd of TCP and of the two connections of PTS against time (Figs 3 to 5).
#[derive(Debug, Default)]
pub(super) struct CwndFigure(Vec<Series>);

impl CwndFigure {
    /// Adds the connections of a case.
    pub(super) fn add(&mut self, case: &Case) -> Result<(), Error> {
        let (_, connections) = case.watch()?;
        let single = connections.len() == 1;
        for (number, points) in (1..).zip(connections) {
            let name = if single {
                "TCP".to_owned()
            } else {
                format!("PTS connection-{number}")
            };
            self.0.push(Series { name, points });
        }
        Ok(())
    }

    pub(super) fn plot(self, item: &str, title: &str) -> FigurePlot {
        let plot = LinePlot {
            title: format!("cwnd {title}"),
            x: Axis::new("time", "s"),
            y: Axis::new("cwnd", "packets"),
            series: self.0,
        };
        FigurePlot::new(item, plot)
    }
}

pub(super) fn named(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series {
        name: name.to_owned(),
        points,
    }
}

/// Delivered packets against the value that a table varies.
pub(super) fn throughput_figure(
    item: &str,
    title: &str,
    x: Axis,
    series: Vec<Series>,
) -> FigurePlot {
    let plot = LinePlot {
        title: title.to_owned(),
        x,
        y: Axis::new("packets delivered", "packets"),
        series,
    };
    FigurePlot::new(item, plot)
}
