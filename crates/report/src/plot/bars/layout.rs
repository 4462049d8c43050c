//! The layout and drawing of a bar chart.

use super::{Bar, BarPlot};
use crate::Error;
use crate::plot::axis::{Range, extent};
use crate::plot::canvas::{Anchor, Canvas, Lettering, Stroke, TEXT, to_pixels};
use crate::plot::heading::{Heading, Sample};
use crate::plot::{MARGIN, WIDTH, palette};
use crate::text::{clean, estimated_width, fit};
use crate::units;

const BAR: i32 = 18;
const GAP: i32 = 4;
const GROUP_GAP: i32 = 16;
/// The largest number of groups; a plot with more prints how many it leaves out.
const MOST_GROUPS: usize = 60;
/// The largest number of series; a plot with more prints how many it leaves out.
const MOST_SERIES: usize = 14;
/// If the ratio of the largest to the smallest value is at least this, the scale is logarithmic.
const LOGARITHMIC_FROM: f64 = 50.0;

/// The positions of all parts, in pixels.
pub(super) struct Layout<'a> {
    plot: &'a BarPlot,
    heading: Heading,
    range: Range,
    /// The beginning of the axis.
    left: i32,
    /// The end of the axis.
    right: i32,
    /// The vertical position of the axis.
    bottom: i32,
    height: i32,
}

impl<'a> Layout<'a> {
    pub fn new(plot: &'a BarPlot) -> Self {
        let names = plot.series.iter().map(|series| series.name.as_str());
        let heading = Heading::new(&plot.title, names.take(MOST_SERIES));
        let widest = |texts: &mut dyn Iterator<Item = String>, limit: f64| {
            let widths = texts.map(|text| estimated_width(&clean(&text), TEXT));
            to_pixels(widths.fold(0.0, f64::max).min(limit))
        };
        let bars = plot.series.iter().flat_map(|series| series.bars.iter());
        let mut labels = bars.flatten().map(|bar| plot.label(bar));
        let mut groups = plot.groups.iter().cloned();
        let shown = i32::try_from(plot.groups.len().min(MOST_GROUPS)).unwrap_or(0);
        let bottom = heading.height + shown * (plot.group_height() + GROUP_GAP) + GROUP_GAP / 2;
        let left_out = plot.left_out().is_some();
        Self {
            plot,
            range: plot.range(),
            left: MARGIN + widest(&mut groups, 190.0) + 12,
            right: WIDTH - MARGIN - widest(&mut labels, 150.0) - 12,
            bottom,
            height: bottom + 56 + if left_out { 22 } else { 0 },
            heading,
        }
    }

    /// The total height, in pixels.
    pub fn height(&self) -> i32 {
        self.height
    }

    /// Draws the whole chart.
    pub fn draw(&self, canvas: &Canvas) -> Result<(), Error> {
        self.heading.draw(canvas, Sample::Bar)?;
        self.draw_axis(canvas)?;
        self.draw_groups(canvas)
    }

    fn x(&self, value: f64) -> i32 {
        let length = f64::from(self.right - self.left);
        self.left + to_pixels(self.range.place(value) * length)
    }

    fn draw_axis(&self, canvas: &Canvas) -> Result<(), Error> {
        let length = f64::from(self.right - self.left);
        let mut free_from = i32::MIN;
        for tick in self.range.ticks() {
            let x = self.left + to_pixels(tick.at * length);
            let grid = [(x, self.heading.height), (x, self.bottom + 4)];
            canvas.line(&grid, palette::GRID, Stroke::Solid, 1)?;
            let half = to_pixels(estimated_width(&tick.label, TEXT) / 2.0);
            if x - half > free_from {
                let at = (x, self.bottom + 14);
                canvas.text(&tick.label, at, &Lettering::faint(Anchor::Middle))?;
                free_from = x + half + 6;
            }
        }
        let heading = fit(
            self.range.heading(),
            TEXT,
            f64::from(WIDTH - self.left - MARGIN),
        );
        let at = (self.left, self.bottom + 36);
        canvas.text(&heading, at, &Lettering::text(Anchor::Start))?;
        if let Some(left_out) = self.plot.left_out() {
            let at = (self.left, self.bottom + 58);
            canvas.text(&left_out, at, &Lettering::faint(Anchor::Start))?;
        }
        Ok(())
    }

    fn draw_groups(&self, canvas: &Canvas) -> Result<(), Error> {
        let group_height = self.plot.group_height();
        let mut top = self.heading.height + GROUP_GAP / 2;
        for (index, group) in self.plot.groups.iter().take(MOST_GROUPS).enumerate() {
            let name = fit(&clean(group), TEXT, 190.0);
            let at = (self.left - 10, top + group_height / 2);
            canvas.text(&name, at, &Lettering::text(Anchor::End))?;
            let mut y = top;
            for (number, series) in self.plot.series.iter().take(MOST_SERIES).enumerate() {
                let bar = series.bars.get(index).copied().flatten();
                self.draw_bar(canvas, bar, number, y)?;
                y += BAR + GAP;
            }
            top += group_height + GROUP_GAP;
        }
        let zero = [self.x(0.0); 2];
        let upright = [(zero[0], self.heading.height), (zero[1], self.bottom)];
        canvas.line(&upright, palette::INK, Stroke::Solid, 1)
    }

    fn draw_bar(
        &self,
        canvas: &Canvas,
        bar: Option<Bar>,
        series: usize,
        top: i32,
    ) -> Result<(), Error> {
        let middle = top + BAR / 2;
        let zero = self.x(0.0);
        let Some(bar) = bar else {
            return canvas.text("–", (zero + 7, middle), &Lettering::faint(Anchor::Start));
        };
        let mut end = zero;
        if !bar.value.is_nan() {
            let x = self.x(bar.value);
            let corners = [(zero.min(x), top), (zero.max(x), top + BAR)];
            canvas.bar(corners, series)?;
            end = end.max(x);
        }
        if let (Some(low), Some(high)) = (bar.low, bar.high) {
            let (low, high) = (self.x(low), self.x(high));
            canvas.line(
                &[(low, middle), (high, middle)],
                palette::INK,
                Stroke::Solid,
                2,
            )?;
            for x in [low, high] {
                let end = [(x, middle - 5), (x, middle + 5)];
                canvas.line(&end, palette::INK, Stroke::Solid, 2)?;
            }
            end = end.max(high);
        }
        let label = fit(&self.plot.label(&bar), TEXT, 150.0);
        canvas.text(&label, (end + 7, middle), &Lettering::text(Anchor::Start))
    }
}

impl BarPlot {
    fn label(&self, bar: &Bar) -> String {
        units::format(bar.value, &self.axis.unit)
    }

    /// Linear from zero, or logarithmic if the values are far apart.
    fn range(&self) -> Range {
        let mut values = self.values();
        let far_apart = extent(&values)
            .is_some_and(|(least, most)| least > 0.0 && most / least >= LOGARITHMIC_FROM);
        if far_apart && let Some(range) = Range::logarithmic(&self.axis, &values) {
            return range;
        }
        values.push(0.0);
        Range::linear(&self.axis, &values)
    }

    fn group_height(&self) -> i32 {
        let series = i32::try_from(self.series.len().clamp(1, MOST_SERIES)).unwrap_or(1);
        series * (BAR + GAP) - GAP
    }

    /// The text for a reader if not everything is drawn.
    fn left_out(&self) -> Option<String> {
        let groups = self.groups.len().saturating_sub(MOST_GROUPS);
        let series = self.series.len().saturating_sub(MOST_SERIES);
        (groups > 0 || series > 0)
            .then(|| format!("not drawn: {groups} more groups, {series} more series"))
    }

    fn values(&self) -> Vec<f64> {
        let bars = self.series.iter().flat_map(|series| series.bars.iter());
        bars.flatten()
            .flat_map(|bar| [Some(bar.value), bar.low, bar.high])
            .flatten()
            .collect()
    }
}
