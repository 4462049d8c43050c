//! The papers' figures as lines of plots.

use midspan_model::ModelError;
use midspan_model::overlay::Reading;
use midspan_model::papers::maki_figures::{self, Line};

use crate::Paper;

/// A figure of a paper, computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// Its name, such as "figure 8".
    pub item: &'static str,
    /// The content of the figure, and how it was computed.
    pub title: String,
    /// The horizontal axis and its unit.
    pub x: (&'static str, &'static str),
    /// The vertical axis and its unit.
    pub y: (&'static str, &'static str),
    /// The lines.
    pub lines: Vec<Line>,
}

/// The figures of `paper` that its analysis can draw: Figs 8–11 of Maki, as printed and with packets
/// conserved. Empty for the other papers.
///
/// # Errors
/// None for the paper's own settings.
pub fn curves(paper: Paper) -> Result<Vec<Curves>, ModelError> {
    if paper != Paper::Maki {
        return Ok(Vec::new());
    }
    type Figure = fn(Reading) -> Result<Vec<Line>, ModelError>;
    type Drawn = (
        &'static str,
        &'static str,
        (&'static str, &'static str),
        Figure,
    );
    let figures: [Drawn; 4] = [
        (
            "figure 8",
            "throughput for each delay of the WAN",
            ("throughput", "bit/s"),
            maki_figures::figure_8,
        ),
        (
            "figure 9",
            "gain of splitting for each delay of LAN2",
            ("gain", ""),
            maki_figures::figure_9,
        ),
        (
            "figure 10",
            "share of the expected throughput for each delay of LAN2",
            ("share", "share"),
            maki_figures::figure_10,
        ),
        (
            "figure 11",
            "share of the expected throughput for each receive buffer",
            ("share", "share"),
            maki_figures::figure_11,
        ),
    ];
    let mut drawn = Vec::new();
    for (item, title, y, figure) in figures {
        for (reading, name) in [
            (Reading::Printed, "as printed"),
            (Reading::Conserving, "packets conserved"),
        ] {
            let mut lines = figure(reading)?;
            let loss = item != "figure 11";
            if loss {
                for (x, _) in lines.iter_mut().flat_map(|line| &mut line.points) {
                    *x = libm::log10(*x);
                }
            }
            drawn.push(Curves {
                item,
                title: format!("{item}: {title}, {name}"),
                x: if loss {
                    ("loss, as a power of ten", "")
                } else {
                    ("send buffer", "bytes")
                },
                y,
                lines,
            });
        }
    }
    Ok(drawn)
}
