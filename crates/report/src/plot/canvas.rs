//! The drawing functions of the plots: a thin layer over plotters' SVG backend, in pixels.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::WIDTH;
use super::palette::{self, Colour};
use crate::Error;
use crate::text::clean;

/// Font size of ordinary text, in pixels.
pub(super) const TEXT: f64 = 13.0;
/// Font size of a plot's title, in pixels.
pub(super) const TITLE: f64 = 16.0;

/// The point of a text that is at its position; vertically, the text is centred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a line is drawn, apart from its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stroke {
    Solid,
    Dashed,
}

/// A text's size and looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lettering {
    pub size: f64,
    pub colour: Colour,
    pub anchor: Anchor,
    pub bold: bool,
}

impl Lettering {
    /// Ordinary text.
    pub fn text(anchor: Anchor) -> Self {
        Self {
            size: TEXT,
            colour: palette::INK,
            anchor,
            bold: false,
        }
    }

    /// Less prominent text.
    pub fn faint(anchor: Anchor) -> Self {
        Self {
            colour: palette::FAINT,
            ..Self::text(anchor)
        }
    }

    /// A plot's title.
    pub fn title() -> Self {
        Self {
            size: TITLE,
            bold: true,
            ..Self::text(Anchor::Start)
        }
    }
}

/// The drawing surface of one plot.
pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    title: &'a str,
}

impl<'a> Canvas<'a> {
    /// A surface of `height` pixels with its own background, written into `svg`.
    pub fn new(svg: &'a mut String, title: &'a str, height: i32) -> Result<Self, Error> {
        let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
        let canvas = Self {
            area: SVGBackend::with_string(svg, size).into_drawing_area(),
            title,
        };
        let ground = [(0, 0), (WIDTH, height)];
        canvas.rectangle(ground, palette::GROUND)?;
        Ok(canvas)
    }

    /// A filled rectangle between two corners.
    pub fn rectangle(&self, corners: [(i32, i32); 2], colour: Colour) -> Result<(), Error> {
        self.draw(&Rectangle::new(corners, rgb(colour).filled()))
    }

    /// A bar of series `index`; when all colours are used, they repeat in a paler shade.
    pub fn bar(&self, corners: [(i32, i32); 2], index: usize) -> Result<(), Error> {
        let opacity = match stroke(index) {
            Stroke::Solid => 1.0,
            Stroke::Dashed => 0.5,
        };
        let style = rgb(palette::series(index)).mix(opacity).filled();
        self.draw(&Rectangle::new(corners, style))
    }

    /// A line through `points`.
    pub fn line(
        &self,
        points: &[(i32, i32)],
        colour: Colour,
        stroke: Stroke,
        width: u32,
    ) -> Result<(), Error> {
        let style = rgb(colour).stroke_width(width);
        match stroke {
            Stroke::Solid => self.draw(&PathElement::new(points.to_vec(), style)),
            Stroke::Dashed => {
                let path = DashedPathElement::new(points.iter().copied(), 8, 5, style);
                self.draw(&path)
            }
        }
    }

    /// The mark of series `index`, so that lines can be distinguished without colour.
    pub fn marker(&self, index: usize, at: (i32, i32)) -> Result<(), Error> {
        let style = rgb(palette::series(index)).filled();
        let (x, y) = at;
        match index % 4 {
            0 => self.draw(&Circle::new(at, 4, style)),
            1 => self.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], style)),
            2 => self.draw(&Polygon::new(
                vec![(x - 5, y + 4), (x + 5, y + 4), (x, y - 5)],
                style,
            )),
            _ => self.draw(&Polygon::new(
                vec![(x - 5, y), (x, y - 5), (x + 5, y), (x, y + 5)],
                style,
            )),
        }
    }

    /// One line of text.
    pub fn text(&self, text: &str, at: (i32, i32), lettering: &Lettering) -> Result<(), Error> {
        let horizontal = match lettering.anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let weight = if lettering.bold {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        let colour = rgb(lettering.colour);
        // The backend divides font sizes by 1.24.
        let style = TextStyle::from(("sans-serif", lettering.size * 1.24, weight))
            .color(&colour)
            .pos(Pos::new(horizontal, VPos::Center));
        self.draw(&Text::new(clean(text), at, style))
    }

    /// Writes the end of the SVG.
    pub fn finish(self) -> Result<(), Error> {
        self.area.present().map_err(|error| self.error(&error))
    }

    fn draw<E>(&self, element: &E) -> Result<(), Error>
    where
        for<'b> &'b E: plotters::element::PointCollection<'b, (i32, i32)>,
        E: plotters::element::Drawable<SVGBackend<'a>>,
    {
        self.area.draw(element).map_err(|error| self.error(&error))
    }

    fn error(&self, reason: &dyn std::fmt::Display) -> Error {
        Error::Drawing {
            plot: clean(self.title),
            reason: reason.to_string(),
        }
    }
}

/// The stroke of series `index`: when all colours are used, they repeat dashed.
pub(super) fn stroke(index: usize) -> Stroke {
    if (index / palette::SERIES.len()).is_multiple_of(2) {
        Stroke::Solid
    } else {
        Stroke::Dashed
    }
}

/// The nearest pixel; a value that is not a number is 0, and no pixel is further out than 10⁶.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn to_pixels(value: f64) -> i32 {
    value.clamp(-1e6, 1e6).round() as i32
}

fn rgb(colour: Colour) -> RGBColor {
    let (red, green, blue) = colour.light;
    RGBColor(red, green, blue)
}
