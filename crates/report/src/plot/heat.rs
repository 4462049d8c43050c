//! Values over two quantities, as a field of coloured cells with their numbers.

use super::axis::extent;
use super::canvas::{Anchor, Canvas, Lettering, TEXT, to_pixels};
use super::{MARGIN, WIDTH, palette};
use crate::Error;
use crate::plot::heading::Heading;
use crate::text::{clean, estimated_width, fit};
use crate::units;

/// Height of a cell, in pixels.
const CELL_HEIGHT: i32 = 26;
/// Largest width of a cell, in pixels.
const WIDEST_CELL: i32 = 96;
/// The largest numbers of columns and of rows; a plot with more prints how many it leaves out.
const MOST_COLUMNS: usize = 24;
const MOST_ROWS: usize = 40;
/// If the ratio of the largest to the smallest value is at least this, equal ratios have equal steps of
/// colour.
const LOGARITHMIC_FROM: f64 = 20.0;

/// A heat map, such as goodput by loss and delay.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeatPlot {
    /// The title; may be empty.
    pub title: String,
    /// What differs from column to column, and the columns' names.
    pub x: Categories,
    /// What differs from row to row, and the rows' names, from the top.
    pub y: Categories,
    /// The unit of the values as in records: "s", "bit/s", "bytes", "share", "" or any other.
    pub unit: String,
    /// The values by row and column; `None` for a cell without one.
    pub values: Vec<Vec<Option<f64>>>,
}

/// A quantity with named values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Categories {
    /// The quantity, such as "link.satellite.loss".
    pub label: String,
    /// Its values, such as "1 %".
    pub names: Vec<String>,
}

impl HeatPlot {
    /// The chart as SVG, 800 pixels wide.
    ///
    /// # Errors
    /// If the drawing library fails, which no data should cause.
    pub fn to_svg(&self) -> Result<String, Error> {
        let layout = Layout::new(self);
        let mut svg = String::new();
        let canvas = Canvas::new(&mut svg, &self.title, layout.height)?;
        layout.draw(&canvas)?;
        canvas.finish()?;
        Ok(svg)
    }

    fn shown(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let rows = self.values.iter().take(self.shown_rows()).enumerate();
        rows.flat_map(move |(row, values)| {
            let values = values.iter().take(self.shown_columns()).enumerate();
            values.filter_map(move |(column, value)| Some((row, column, (*value)?)))
        })
    }

    fn shown_columns(&self) -> usize {
        self.x.names.len().min(MOST_COLUMNS)
    }

    fn shown_rows(&self) -> usize {
        self.y.names.len().min(MOST_ROWS)
    }
}

/// The colours of the values.
struct Shades {
    least: f64,
    most: f64,
    is_logarithmic: bool,
}

impl Shades {
    fn new(values: &[f64]) -> Self {
        let (least, most) = extent(values).unwrap_or((0.0, 0.0));
        Self {
            least,
            most,
            is_logarithmic: least > 0.0 && most / least >= LOGARITHMIC_FROM,
        }
    }

    /// The colour's number, from 0; a value that is not finite has none.
    fn step(&self, value: f64) -> Option<usize> {
        let count = palette::SHADES.len();
        let place = if self.is_logarithmic {
            libm::log(value / self.least) / libm::log(self.most / self.least)
        } else {
            (value - self.least) / (self.most - self.least)
        };
        if !value.is_finite() {
            return None;
        }
        // Without a difference between the values, each has the middle colour.
        if !place.is_finite() {
            return Some(count / 2);
        }
        (0..count)
            .zip(1_u32..)
            .find(|(_, number)| place * palette::SHADES.len() as f64 <= f64::from(*number))
            .map(|(step, _)| step)
            .or(Some(count - 1))
    }
}

/// The positions of all parts, in pixels.
struct Layout<'a> {
    plot: &'a HeatPlot,
    heading: Heading,
    left: i32,
    cell_width: i32,
    bottom: i32,
    height: i32,
}

impl<'a> Layout<'a> {
    fn new(plot: &'a HeatPlot) -> Self {
        let heading = Heading::new(&plot.title, std::iter::empty());
        let widths = plot.y.names.iter().take(MOST_ROWS);
        let widths = widths.map(|name| estimated_width(&clean(name), TEXT));
        let left = MARGIN + to_pixels(widths.fold(0.0, f64::max).min(180.0)) + 10;
        let columns = i32::try_from(plot.shown_columns()).unwrap_or(0).max(1);
        let rows = i32::try_from(plot.shown_rows()).unwrap_or(0);
        let bottom = heading.height + 26 + rows * CELL_HEIGHT;
        Self {
            plot,
            heading,
            left,
            cell_width: ((WIDTH - MARGIN - left) / columns).min(WIDEST_CELL),
            bottom,
            height: bottom + 84,
        }
    }

    fn draw(&self, canvas: &Canvas) -> Result<(), Error> {
        self.heading.draw_title(canvas)?;
        self.draw_names(canvas)?;
        let values: Vec<f64> = self.plot.shown().map(|(_, _, value)| value).collect();
        let shades = Shades::new(&values);
        for (row, column, value) in self.plot.shown() {
            let corner = self.corner(row, column);
            let Some(step) = shades.step(value) else {
                continue;
            };
            let end = (corner.0 + self.cell_width - 1, corner.1 + CELL_HEIGHT - 1);
            canvas.rectangle([corner, end], palette::SHADES[step])?;
            let text = units::format(value, &self.plot.unit);
            if estimated_width(&text, TEXT) + 4.0 <= f64::from(self.cell_width) {
                let at = (corner.0 + self.cell_width / 2, corner.1 + CELL_HEIGHT / 2);
                canvas.text(&text, at, &Lettering::text(Anchor::Middle))?;
            }
        }
        self.draw_legend(canvas, &shades)
    }

    /// The upper left corner of a cell.
    fn corner(&self, row: usize, column: usize) -> (i32, i32) {
        let at = |index: usize| i32::try_from(index).unwrap_or(0);
        (
            self.left + at(column) * self.cell_width,
            self.heading.height + 26 + at(row) * CELL_HEIGHT,
        )
    }

    fn draw_names(&self, canvas: &Canvas) -> Result<(), Error> {
        let plot = self.plot;
        let all = f64::from(WIDTH - 2 * MARGIN);
        let label = fit(&clean(&plot.y.label), TEXT, all);
        let at = (MARGIN, self.heading.height + 12);
        canvas.text(&label, at, &Lettering::text(Anchor::Start))?;
        for (row, name) in plot.y.names.iter().take(MOST_ROWS).enumerate() {
            let name = fit(&clean(name), TEXT, 180.0);
            let at = (self.left - 8, self.corner(row, 0).1 + CELL_HEIGHT / 2);
            canvas.text(&name, at, &Lettering::faint(Anchor::End))?;
        }
        let mut free_from = i32::MIN;
        for (column, name) in plot.x.names.iter().take(MOST_COLUMNS).enumerate() {
            let name = fit(&clean(name), TEXT, 120.0);
            let middle = self.corner(0, column).0 + self.cell_width / 2;
            let half = to_pixels(estimated_width(&name, TEXT) / 2.0);
            if middle - half > free_from {
                let at = (middle, self.bottom + 14);
                canvas.text(&name, at, &Lettering::faint(Anchor::Middle))?;
                free_from = middle + half + 6;
            }
        }
        let label = fit(&clean(&plot.x.label), TEXT, all);
        let at = (self.left, self.bottom + 34);
        canvas.text(&label, at, &Lettering::text(Anchor::Start))
    }

    /// The colours with the least and the largest value, and what is not drawn.
    fn draw_legend(&self, canvas: &Canvas, shades: &Shades) -> Result<(), Error> {
        let y = self.bottom + 60;
        let least = units::format(shades.least, &self.plot.unit);
        canvas.text(&least, (MARGIN, y), &Lettering::faint(Anchor::Start))?;
        let mut x = MARGIN + to_pixels(estimated_width(&least, TEXT)) + 8;
        for shade in palette::SHADES {
            canvas.rectangle([(x, y - 8), (x + 24, y + 8)], shade)?;
            x += 25;
        }
        let mut most = units::format(shades.most, &self.plot.unit);
        if shades.is_logarithmic {
            most.push_str(", logarithmic scale");
        }
        canvas.text(&most, (x + 8, y), &Lettering::faint(Anchor::Start))?;
        let columns = self.plot.x.names.len() - self.plot.shown_columns();
        let rows = self.plot.y.names.len() - self.plot.shown_rows();
        if columns + rows > 0 {
            let text = format!("not drawn: {columns} more columns, {rows} more rows");
            let at = (WIDTH - MARGIN, y);
            canvas.text(&text, at, &Lettering::faint(Anchor::End))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: Vec<Vec<Option<f64>>>) -> HeatPlot {
        let names = |count: usize| (0..count).map(|index| format!("{index} %")).collect();
        HeatPlot {
            title: "goodput".to_owned(),
            x: Categories {
                label: "loss".to_owned(),
                names: names(values.first().map_or(0, Vec::len)),
            },
            y: Categories {
                label: "delay".to_owned(),
                names: names(values.len()),
            },
            unit: "s".to_owned(),
            values,
        }
    }

    #[test]
    fn the_least_and_the_largest_value_have_the_outer_colours() {
        let shades = Shades::new(&[1.0, 4.0, 8.0]);
        let last = palette::SHADES.len() - 1;
        assert_eq!([shades.step(1.0), shades.step(8.0)], [Some(0), Some(last)]);
        assert!(!shades.is_logarithmic);
        let shades = Shades::new(&[1.0, 10.0, 100.0]);
        assert!(shades.is_logarithmic);
        assert_eq!(shades.step(10.0), Some(last / 2));
        assert_eq!(shades.step(f64::NAN), None);
        assert_eq!(
            Shades::new(&[3.0]).step(3.0),
            Some(palette::SHADES.len() / 2)
        );
    }

    #[test]
    fn each_value_has_a_cell_with_its_number() {
        let svg = plot(vec![vec![Some(1.0), None], vec![Some(2.5), Some(4.0)]])
            .to_svg()
            .unwrap();
        for text in ["\n1 s\n", "\n2.5 s\n", "\n4 s\n", "\nloss\n", "\ndelay\n"] {
            assert!(svg.contains(text), "{text} {svg}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let svg = plot(vec![vec![Some(1.0); 30]; 50]).to_svg().unwrap();
        assert!(svg.contains("not drawn: 6 more columns, 10 more rows"));
        assert!(plot(vec![]).to_svg().is_ok());
        assert!(
            plot(vec![vec![Some(f64::INFINITY), Some(-1e308)]])
                .to_svg()
                .is_ok()
        );
    }
}
