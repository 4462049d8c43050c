//! Charts of lines in a grid, with the same axes in each, so that they can be compared.

use super::axis::{Axis, Range};
use super::canvas::{Anchor, Canvas, Lettering, Stroke, TEXT, stroke, to_pixels};
use super::heading::{Heading, Sample};
use super::lines::{MOST_SERIES, Series, marks, pieces, thinned};
use super::{MARGIN, WIDTH, palette};
use crate::Error;
use crate::text::{clean, estimated_width, fit};

/// Height of the lines' area of a chart, in pixels: of a single column, and of several ones.
const TALL: i32 = 180;
const LOW: i32 = 120;
/// Height of a chart's name, in pixels.
const NAME: i32 = 22;
/// Space between two charts, in pixels.
const GAP: i32 = 14;
/// The largest number of charts; a plot with more prints how many it leaves out.
const MOST_PANELS: usize = 48;
/// The largest number of columns.
const MOST_COLUMNS: usize = 6;

/// A chart of the grid.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Panel {
    /// Its name, such as "direct".
    pub name: String,
    /// Its lines. Lines at the same place in several charts have the same colour.
    pub series: Vec<Series>,
}

/// Charts with the same axes, such as the congestion window over time, direct above a proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct PanelPlot {
    /// The title; may be empty.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The number of charts in a row, 1 to 6; with 1, all are above each other.
    pub columns: usize,
    /// The charts, row by row.
    pub panels: Vec<Panel>,
}

impl PanelPlot {
    /// The charts as SVG, 800 pixels wide. Its size is bounded, whatever the number of points.
    ///
    /// # Errors
    /// If the drawing library fails, which no data should cause.
    pub fn to_svg(&self) -> Result<String, Error> {
        let layout = Layout::new(self);
        let mut svg = String::new();
        let canvas = Canvas::new(&mut svg, &self.title, layout.height())?;
        layout.heading.draw(&canvas, Sample::Line)?;
        let name = fit(layout.y.heading(), TEXT, f64::from(WIDTH - 2 * MARGIN));
        let at = (MARGIN, layout.heading.height + 8);
        canvas.text(&name, at, &Lettering::text(Anchor::Start))?;
        for (index, panel) in self.shown().iter().enumerate() {
            layout.draw_panel(&canvas, index, panel)?;
        }
        layout.draw_footer(&canvas)?;
        canvas.finish()?;
        Ok(svg)
    }

    fn shown(&self) -> &[Panel] {
        self.panels.get(..MOST_PANELS).unwrap_or(&self.panels)
    }

    fn coordinates(&self, pick: fn(&(f64, f64)) -> f64) -> Vec<f64> {
        let series = self.shown().iter();
        series
            .flat_map(|panel| panel.series.iter().take(MOST_SERIES))
            .flat_map(|series| series.points.iter().map(pick))
            .collect()
    }

    /// The names of the lines; of the chart with most of them.
    fn names(&self) -> impl Iterator<Item = &str> {
        let most = self.shown().iter().max_by_key(|panel| panel.series.len());
        let series = most.into_iter().flat_map(|panel| &panel.series);
        series.take(MOST_SERIES).map(|series| series.name.as_str())
    }
}

/// The positions of all parts, in pixels.
struct Layout<'a> {
    plot: &'a PanelPlot,
    heading: Heading,
    x: Range,
    y: Range,
    columns: usize,
    left: i32,
    /// Width of the lines' area of a chart.
    width: i32,
    /// Height of the lines' area of a chart.
    tall: i32,
}

impl<'a> Layout<'a> {
    fn new(plot: &'a PanelPlot) -> Self {
        let heading = Heading::new(&plot.title, plot.names());
        let x = Range::new(&plot.x, &plot.coordinates(|point| point.0));
        let y = Range::new(&plot.y, &plot.coordinates(|point| point.1));
        let labels = y.ticks().iter();
        let widths = labels.map(|tick| estimated_width(&tick.label, TEXT));
        let left = MARGIN + to_pixels(widths.fold(0.0, f64::max).min(160.0)) + 10;
        let columns = plot
            .columns
            .clamp(1, MOST_COLUMNS)
            .min(plot.shown().len().max(1));
        let count = i32::try_from(columns).unwrap_or(1);
        let free = WIDTH - MARGIN - 14 - left - (count - 1) * GAP;
        Self {
            plot,
            heading,
            x,
            y,
            columns,
            left,
            width: free / count,
            tall: if columns == 1 { TALL } else { LOW },
        }
    }

    fn rows(&self) -> i32 {
        i32::try_from(self.plot.shown().len().div_ceil(self.columns)).unwrap_or(0)
    }

    fn height(&self) -> i32 {
        self.heading.height + 18 + self.rows() * (NAME + self.tall + GAP) + 54
    }

    /// The upper left corner of the lines' area of a chart.
    fn corner(&self, index: usize) -> (i32, i32) {
        let number = |value: usize| i32::try_from(value).unwrap_or(0);
        let (row, column) = (number(index / self.columns), number(index % self.columns));
        (
            self.left + column * (self.width + GAP),
            self.heading.height + 18 + row * (NAME + self.tall + GAP) + NAME,
        )
    }

    fn draw_panel(&self, canvas: &Canvas, index: usize, panel: &Panel) -> Result<(), Error> {
        let (left, top) = self.corner(index);
        let (right, bottom) = (left + self.width, top + self.tall);
        let name = fit(&clean(&panel.name), TEXT, f64::from(self.width));
        let lettering = Lettering {
            bold: true,
            ..Lettering::text(Anchor::Start)
        };
        canvas.text(&name, (left, top - 10), &lettering)?;
        self.draw_ticks(canvas, index)?;
        canvas.line(
            &[(left, bottom), (right, bottom)],
            palette::INK,
            Stroke::Solid,
            1,
        )?;
        let pixel = |(x, y): (f64, f64)| {
            (
                left + to_pixels(self.x.place(x) * f64::from(self.width)),
                bottom - to_pixels(self.y.place(y) * f64::from(self.tall)),
            )
        };
        for (number, series) in panel.series.iter().take(MOST_SERIES).enumerate() {
            let mut drawn = Vec::new();
            for piece in pieces(&series.points) {
                let pixels = thinned(piece.into_iter().map(pixel));
                match pixels.as_slice() {
                    [only] => canvas.marker(number, *only)?,
                    path => canvas.line(path, palette::series(number), stroke(number), 2)?,
                }
                drawn.extend(pixels);
            }
            if panel.series.len() > 1 {
                for mark in marks(&drawn, number) {
                    canvas.marker(number, mark)?;
                }
            }
        }
        Ok(())
    }

    /// Lines and labels of the vertical axis at the first chart of a row, lines alone at the others; marks
    /// of the horizontal axis, with labels below the last chart of a column.
    fn draw_ticks(&self, canvas: &Canvas, index: usize) -> Result<(), Error> {
        let (left, top) = self.corner(index);
        let (right, bottom) = (left + self.width, top + self.tall);
        let mut free_above = i32::MAX;
        for tick in self.y.ticks() {
            let y = bottom - to_pixels(tick.at * f64::from(self.tall));
            canvas.line(&[(left, y), (right, y)], palette::GRID, Stroke::Solid, 1)?;
            // In a low chart, not every line has room for its label.
            if index.is_multiple_of(self.columns) && y < free_above {
                canvas.text(&tick.label, (left - 9, y), &Lettering::faint(Anchor::End))?;
                free_above = y - 15;
            }
        }
        let is_last = index + self.columns >= self.plot.shown().len();
        let mut free_from = i32::MIN;
        for tick in self.x.ticks() {
            let x = left + to_pixels(tick.at * f64::from(self.width));
            canvas.line(
                &[(x, bottom), (x, bottom + 4)],
                palette::INK,
                Stroke::Solid,
                1,
            )?;
            let half = to_pixels(estimated_width(&tick.label, TEXT) / 2.0);
            if is_last && x - half > free_from {
                let at = (x, bottom + 15);
                canvas.text(&tick.label, at, &Lettering::faint(Anchor::Middle))?;
                free_from = x + half + 6;
            }
        }
        Ok(())
    }

    fn draw_footer(&self, canvas: &Canvas) -> Result<(), Error> {
        let y = self.height() - 17;
        let name = fit(self.x.heading(), TEXT, f64::from(WIDTH) * 0.6);
        let at = (WIDTH - MARGIN - 14, y);
        canvas.text(&name, at, &Lettering::text(Anchor::End))?;
        let left_out = self.plot.panels.len() - self.plot.shown().len();
        if left_out > 0 {
            let text = format!("not drawn: {left_out} more charts");
            canvas.text(&text, (self.left, y), &Lettering::faint(Anchor::Start))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(columns: usize, panels: Vec<Vec<(f64, f64)>>) -> PanelPlot {
        PanelPlot {
            title: "window".to_owned(),
            x: Axis::new("time", "s"),
            y: Axis::new("cwnd", "bytes"),
            columns,
            panels: panels
                .into_iter()
                .map(|points| Panel {
                    name: "chart".to_owned(),
                    series: vec![Series {
                        name: "leg 1".to_owned(),
                        points,
                    }],
                })
                .collect(),
        }
    }

    /// The ends of the line of each chart, in pixels; without the one of the legend.
    fn lines(plot: &PanelPlot) -> Vec<String> {
        let svg = plot.to_svg().unwrap();
        let own = format!("stroke=\"{}\" stroke-width=\"2\"", palette::series(0).hex());
        let lines = svg.lines().filter(|line| line.contains(&own));
        lines
            .filter_map(|line| Some(line.split_once("points=\"")?.1.to_owned()))
            .collect()
    }

    #[test]
    fn charts_above_each_other_have_the_same_axes() {
        // The second chart ends earlier and lower, and must not be stretched.
        let both = plot(
            1,
            vec![vec![(0.0, 0.0), (10.0, 8e6)], vec![(0.0, 0.0), (5.0, 4e6)]],
        );
        let layout = Layout::new(&both);
        assert_eq!(layout.x.place(5.0), 0.5);
        let lines = lines(&both);
        assert_eq!(lines.len(), 2, "{lines:?}");
        let (left, _) = layout.corner(1);
        let middle = left + to_pixels(f64::from(layout.width) * 0.5);
        assert!(
            lines[1].contains(&format!(" {middle},")),
            "{lines:?} {middle}"
        );
        let ((x1, y1), (x2, y2)) = (layout.corner(0), layout.corner(1));
        assert_eq!((x1, y1 + TALL + NAME + GAP), (x2, y2));
    }

    #[test]
    fn charts_in_rows_fit_into_the_picture() {
        for count in [1, 2, 5, 6, 7] {
            let plot = plot(3, vec![vec![(0.0, 1.0), (1.0, 2.0)]; count]);
            let layout = Layout::new(&plot);
            for index in 0..count {
                let (left, top) = layout.corner(index);
                assert!(left > 0 && left + layout.width <= WIDTH - MARGIN);
                assert!(top + layout.tall < layout.height());
            }
            assert_eq!(lines(&plot).len(), count);
        }
    }

    #[test]
    fn odd_data_makes_a_plot_and_what_is_left_out_is_shown() {
        for panels in [
            vec![],
            vec![vec![]],
            vec![vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)]],
        ] {
            for columns in [0, 1, 99] {
                assert!(
                    plot(columns, panels.clone())
                        .to_svg()
                        .unwrap()
                        .contains("window")
                );
            }
        }
        let many = plot(4, vec![vec![(0.0, 0.0), (1.0, 1.0)]; MOST_PANELS + 3]);
        assert!(many.to_svg().unwrap().contains("not drawn: 3 more charts"));
    }
}
