//! A plot's title and legend, and their space.

use super::canvas::{Anchor, Canvas, Lettering, TEXT, TITLE, stroke, to_pixels};
use super::{MARGIN, WIDTH, palette};
use crate::Error;
use crate::text::{clean, estimated_width, fit};

/// Height of a line of the legend, in pixels.
const LINE: i32 = 20;
/// Width of the sample before a name, with the space after it, in pixels.
const SAMPLE: i32 = 28;
/// Largest width of a name in pixels; a longer one is cut.
const LONGEST_NAME: f64 = 320.0;

/// Title and legend, laid out at the top of a plot.
#[derive(Debug)]
pub(super) struct Heading {
    title: String,
    names: Vec<Name>,
    /// The height of both, in pixels.
    pub height: i32,
}

/// The sample that the legend shows before a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sample {
    /// A piece of the line, with its mark.
    Line,
    /// A piece of the bar.
    Bar,
}

/// A series' name in the legend.
#[derive(Debug)]
struct Name {
    text: String,
    series: usize,
    at: (i32, i32),
}

impl Heading {
    /// Lays out the title (none if empty) and the names of the series; a single series has no
    /// legend unless it has a name.
    pub fn new<'a>(title: &str, series: impl Iterator<Item = &'a str>) -> Self {
        let title = fit(&clean(title), 1.12 * TITLE, f64::from(WIDTH - 2 * MARGIN));
        let mut y = if title.is_empty() { 10 } else { 40 };
        let mut x = MARGIN;
        let mut names = Vec::new();
        for (index, name) in series.enumerate().filter(|(_, name)| !name.is_empty()) {
            let text = fit(&clean(name), TEXT, LONGEST_NAME);
            let needed = SAMPLE + to_pixels(estimated_width(&text, TEXT));
            if x > MARGIN && x + needed > WIDTH - MARGIN {
                x = MARGIN;
                y += LINE;
            }
            names.push(Name {
                text,
                series: index,
                at: (x, y + LINE / 2),
            });
            x += needed + 14;
        }
        let legend = if names.is_empty() { 0 } else { LINE };
        Self {
            title,
            names,
            height: y + legend + 6,
        }
    }

    /// Draws the title alone.
    pub fn draw_title(&self, canvas: &Canvas) -> Result<(), Error> {
        if self.title.is_empty() {
            return Ok(());
        }
        canvas.text(&self.title, (MARGIN, 22), &Lettering::title())
    }

    /// Draws both, with `sample` before each name.
    pub fn draw(&self, canvas: &Canvas, sample: Sample) -> Result<(), Error> {
        self.draw_title(canvas)?;
        for Name { text, series, at } in &self.names {
            draw_sample(canvas, sample, *series, *at)?;
            let beside = (at.0 + SAMPLE, at.1);
            canvas.text(text, beside, &Lettering::text(Anchor::Start))?;
        }
        Ok(())
    }
}

fn draw_sample(
    canvas: &Canvas,
    sample: Sample,
    series: usize,
    (x, y): (i32, i32),
) -> Result<(), Error> {
    match sample {
        Sample::Bar => canvas.bar([(x + 4, y - 7), (x + 20, y + 7)], series),
        Sample::Line => {
            let colour = palette::series(series);
            canvas.line(&[(x, y), (x + 22, y)], colour, stroke(series), 3)?;
            canvas.marker(series, (x + 11, y))
        }
    }
}
