//! Several series as lines, over time or another quantity.

use super::axis::{Axis, Range};
use super::canvas::{Anchor, Canvas, Lettering, Stroke, TEXT, stroke, to_pixels};
use super::heading::{Heading, Sample};
use super::{MARGIN, WIDTH, palette};
use crate::Error;
use crate::text::{estimated_width, fit};

/// Height of the area with the lines, in pixels.
const PLOT_HEIGHT: i32 = 320;
/// The largest number of series; a plot with more prints how many it leaves out.
pub(super) const MOST_SERIES: usize = 28;
/// Number of marks on each line, if there are several lines.
const MARKS: usize = 6;

/// One line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// The text of the legend, such as "10 MB through midspan".
    pub name: String,
    /// Pairs of x and y in the axes' units, in any order of x. A y that is not finite leaves a gap;
    /// a point with an x that is not finite is left out.
    pub points: Vec<(f64, f64)>,
}

/// The interval at one point of a line, in the axes' units. It is not drawn unless all three numbers
/// are finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The position on the horizontal axis.
    pub x: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A chart of lines, such as bytes received over time.
#[derive(Debug, Clone, PartialEq)]
pub struct LinePlot {
    /// The title; may be empty.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

impl LinePlot {
    /// The chart as SVG, 800 pixels wide. Its size is bounded, whatever the number of points.
    ///
    /// # Errors
    /// If the drawing library fails, which no data should cause.
    pub fn to_svg(&self) -> Result<String, Error> {
        to_svg(self, &[])
    }

    fn coordinates(&self, pick: fn(&(f64, f64)) -> f64) -> Vec<f64> {
        let series = self.series.iter().take(MOST_SERIES);
        series
            .flat_map(|series| series.points.iter().map(pick))
            .collect()
    }
}

/// The chart of `plot`, with the intervals of each of its lines.
pub(super) fn to_svg(plot: &LinePlot, intervals: &[Vec<Interval>]) -> Result<String, Error> {
    let layout = Layout::new(plot, intervals);
    let mut svg = String::new();
    let canvas = Canvas::new(&mut svg, &plot.title, layout.height())?;
    layout.heading.draw(&canvas, Sample::Line)?;
    layout.draw_vertical_axis(&canvas)?;
    layout.draw_horizontal_axis(&canvas)?;
    for (index, own) in intervals.iter().take(MOST_SERIES).enumerate() {
        for interval in own {
            layout.draw_interval(&canvas, index, *interval)?;
        }
    }
    for (index, series) in plot.series.iter().take(MOST_SERIES).enumerate() {
        layout.draw_series(&canvas, index, series)?;
    }
    canvas.finish()?;
    Ok(svg)
}

/// The positions of all parts, in pixels.
struct Layout<'a> {
    plot: &'a LinePlot,
    heading: Heading,
    x: Range,
    y: Range,
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl<'a> Layout<'a> {
    fn new(plot: &'a LinePlot, intervals: &[Vec<Interval>]) -> Self {
        let names = plot.series.iter().map(|series| series.name.as_str());
        let heading = Heading::new(&plot.title, names.take(MOST_SERIES));
        let x = Range::new(&plot.x, &plot.coordinates(|point| point.0));
        let mut heights = plot.coordinates(|point| point.1);
        let ends = intervals.iter().take(MOST_SERIES).flatten();
        heights.extend(ends.flat_map(|interval| [interval.low, interval.high]));
        let y = Range::new(&plot.y, &heights);
        let labels = y.ticks().iter();
        let widths = labels.map(|tick| estimated_width(&tick.label, TEXT));
        let widest = to_pixels(widths.fold(0.0, f64::max).min(160.0));
        // The vertical axis' name is printed above it.
        let top = heading.height + 26;
        Self {
            plot,
            heading,
            x,
            y,
            left: MARGIN + widest + 10,
            right: WIDTH - MARGIN - 14,
            top,
            bottom: top + PLOT_HEIGHT,
        }
    }

    fn height(&self) -> i32 {
        self.bottom + 54
    }

    fn pixel(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let width = f64::from(self.right - self.left);
        let height = f64::from(self.bottom - self.top);
        (
            self.left + to_pixels(self.x.place(x) * width),
            self.bottom - to_pixels(self.y.place(y) * height),
        )
    }

    fn draw_vertical_axis(&self, canvas: &Canvas) -> Result<(), Error> {
        let height = f64::from(self.bottom - self.top);
        for tick in self.y.ticks() {
            let y = self.bottom - to_pixels(tick.at * height);
            let grid = [(self.left - 4, y), (self.right, y)];
            canvas.line(&grid, palette::GRID, Stroke::Solid, 1)?;
            let at = (self.left - 9, y);
            canvas.text(&tick.label, at, &Lettering::faint(Anchor::End))?;
        }
        let name = fit(self.y.heading(), TEXT, f64::from(WIDTH - 2 * MARGIN));
        let at = (MARGIN, self.top - 16);
        canvas.text(&name, at, &Lettering::text(Anchor::Start))
    }

    fn draw_horizontal_axis(&self, canvas: &Canvas) -> Result<(), Error> {
        let width = f64::from(self.right - self.left);
        let mut free_from = i32::MIN;
        for tick in self.x.ticks() {
            let x = self.left + to_pixels(tick.at * width);
            let mark = [(x, self.bottom), (x, self.bottom + 4)];
            canvas.line(&mark, palette::INK, Stroke::Solid, 1)?;
            let half = to_pixels(estimated_width(&tick.label, TEXT) / 2.0);
            if x - half > free_from {
                let at = (x, self.bottom + 15);
                canvas.text(&tick.label, at, &Lettering::faint(Anchor::Middle))?;
                free_from = x + half + 6;
            }
        }
        let axis = [(self.left, self.bottom), (self.right, self.bottom)];
        canvas.line(&axis, palette::INK, Stroke::Solid, 1)?;
        let name = fit(self.x.heading(), TEXT, width * 0.6);
        let at = (self.right, self.bottom + 37);
        canvas.text(&name, at, &Lettering::text(Anchor::End))?;
        let left_out = self.plot.series.len().saturating_sub(MOST_SERIES);
        if left_out > 0 {
            let text = format!("not drawn: {left_out} more series");
            let at = (self.left, self.bottom + 37);
            canvas.text(&text, at, &Lettering::faint(Anchor::Start))?;
        }
        Ok(())
    }

    /// A vertical line with short horizontal ends.
    fn draw_interval(&self, canvas: &Canvas, index: usize, at: Interval) -> Result<(), Error> {
        if ![at.x, at.low, at.high].iter().all(|end| end.is_finite()) {
            return Ok(());
        }
        let colour = palette::series(index);
        let ends = [at.low, at.high].map(|y| self.pixel((at.x, y)));
        canvas.line(&ends, colour, Stroke::Solid, 1)?;
        for (x, y) in ends {
            canvas.line(&[(x - 4, y), (x + 4, y)], colour, Stroke::Solid, 1)?;
        }
        Ok(())
    }

    fn draw_series(&self, canvas: &Canvas, index: usize, series: &Series) -> Result<(), Error> {
        let mut drawn: Vec<(i32, i32)> = Vec::new();
        for piece in pieces(&series.points) {
            let pixels = thinned(piece.into_iter().map(|point| self.pixel(point)));
            match pixels.as_slice() {
                [only] => canvas.marker(index, *only)?,
                path => canvas.line(path, palette::series(index), stroke(index), 2)?,
            }
            drawn.extend(pixels);
        }
        if self.plot.series.len() > 1 {
            for mark in marks(&drawn, index) {
                canvas.marker(index, mark)?;
            }
        }
        Ok(())
    }
}

/// The points in order of x, divided at gaps; no piece is empty.
pub(super) fn pieces(points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
    let mut sorted: Vec<(f64, f64)> = points.to_vec();
    sorted.retain(|point| point.0.is_finite());
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    sorted
        .split(|point| !point.1.is_finite())
        .filter(|piece| !piece.is_empty())
        .map(<[_]>::to_vec)
        .collect()
}

/// At most four points for each column of pixels: the first, the lowest, the highest and the last,
/// which draw the same line as all of them.
pub(super) fn thinned(pixels: impl Iterator<Item = (i32, i32)>) -> Vec<(i32, i32)> {
    let mut kept: Vec<(i32, i32)> = Vec::new();
    let mut column: Option<(i32, [i32; 4])> = None;
    for (x, y) in pixels {
        match &mut column {
            Some((at, [_, lowest, highest, last])) if *at == x => {
                *lowest = y.min(*lowest);
                *highest = y.max(*highest);
                *last = y;
            }
            _ => {
                keep(&mut kept, column);
                column = Some((x, [y; 4]));
            }
        }
    }
    keep(&mut kept, column);
    kept
}

fn keep(kept: &mut Vec<(i32, i32)>, column: Option<(i32, [i32; 4])>) {
    let Some((x, heights)) = column else {
        return;
    };
    for point in heights.map(|y| (x, y)) {
        if kept.last() != Some(&point) {
            kept.push(point);
        }
    }
}

/// The positions of the marks of series `index`: evenly along x, and different from those of its
/// neighbours.
pub(super) fn marks(path: &[(i32, i32)], index: usize) -> Vec<(i32, i32)> {
    let (Some(first), Some(last)) = (path.first(), path.last()) else {
        return Vec::new();
    };
    let length = f64::from(last.0 - first.0);
    let shift = [0.5, 0.8, 0.2, 0.65, 0.35][index % 5];
    let wanted = (0..MARKS).zip(0_u32..).map(|(_, number)| {
        let share = (f64::from(number) + shift) / 6.0;
        first.0 + to_pixels(length * share)
    });
    let mut marks: Vec<(i32, i32)> = wanted
        .filter_map(|x| path.iter().copied().find(|point| point.0 >= x))
        .collect();
    marks.dedup();
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(series: Vec<Vec<(f64, f64)>>) -> LinePlot {
        LinePlot {
            title: "bytes received".to_owned(),
            x: Axis::new("time", "s"),
            y: Axis::new("bytes received", "bytes"),
            series: series
                .into_iter()
                .map(|points| Series {
                    name: "line".to_owned(),
                    points,
                })
                .collect(),
        }
    }

    fn count(plot: &LinePlot, tag: &str) -> usize {
        plot.to_svg().unwrap().matches(tag).count()
    }

    #[test]
    fn a_gap_splits_the_line() {
        let points = vec![
            (2.0, 1.0),
            (0.0, 0.0),
            (3.0, f64::NAN),
            (5.0, 2.0),
            (4.0, 1.0),
        ];
        let pieces = pieces(&points);
        assert_eq!(pieces, [[(0.0, 0.0), (2.0, 1.0)], [(4.0, 1.0), (5.0, 2.0)]]);
        // One polyline for each piece, and one for the legend.
        let with_gap = count(&plot(vec![points]), "<polyline");
        let without = count(&plot(vec![vec![(0.0, 0.0), (2.0, 1.0)]]), "<polyline");
        assert_eq!(with_gap, without + 1);
    }

    #[test]
    fn a_million_points_stay_small_and_keep_their_extremes() {
        let pixels = (0..1_000_000).map(|n| (n / 2_000, if n == 777_777 { -9 } else { n % 7 }));
        let kept = thinned(pixels);
        assert!(kept.len() <= 4 * 500, "{}", kept.len());
        assert!(kept.contains(&(388, -9)));
    }

    #[test]
    fn the_number_of_omitted_series_is_shown() {
        let many = plot(vec![vec![(0.0, 0.0), (1.0, 1.0)]; 30]);
        assert!(many.to_svg().unwrap().contains("not drawn: 2 more series"));
    }

    #[test]
    fn no_data_still_makes_a_plot() {
        for empty in [
            plot(vec![]),
            plot(vec![vec![]]),
            plot(vec![vec![(f64::NAN, 1.0)]]),
        ] {
            assert!(empty.to_svg().unwrap().contains("bytes received"));
        }
    }
}
