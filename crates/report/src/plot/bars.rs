//! Grouped horizontal bars, so that there is room for the labels of any number of them.

mod layout;

use midspan_records::Record;

use super::axis::Axis;
use super::canvas::Canvas;
use crate::Error;
use layout::Layout;

/// One bar.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bar {
    /// Its value in the axis' unit.
    pub value: f64,
    /// Lower end of the spread.
    pub low: Option<f64>,
    /// Upper end of the spread.
    pub high: Option<f64>,
}

/// The bars of one colour: one for each group, in the groups' order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BarSeries {
    /// The text of the legend, such as "through midspan".
    pub name: String,
    /// The bars; `None` for a group without one.
    pub bars: Vec<Option<Bar>>,
}

/// A chart of grouped bars, such as completion times by file size.
#[derive(Debug, Clone, PartialEq)]
pub struct BarPlot {
    /// The title; may be empty.
    pub title: String,
    /// The axis of the bars' values.
    pub axis: Axis,
    /// The groups' names, such as file sizes.
    pub groups: Vec<String>,
    /// The series, in the order of the legend.
    pub series: Vec<BarSeries>,
}

impl BarPlot {
    /// A chart of all records of `quantity`. `place` returns a record's group and series, such as
    /// ("1 MB", "through midspan"), or `None` to leave it out. Both are in the order in which they
    /// first appear; if several records have the same place, the last one counts. All records of a
    /// quantity must have the same unit.
    pub fn from_records(
        title: &str,
        quantity: &str,
        records: &[Record],
        place: impl Fn(&Record) -> Option<(String, String)>,
    ) -> Self {
        let mut plot = Self {
            title: title.to_owned(),
            axis: Axis::new(quantity, ""),
            groups: Vec::new(),
            series: Vec::new(),
        };
        for record in records.iter().filter(|record| record.quantity == quantity) {
            let Some((group, series)) = place(record) else {
                continue;
            };
            plot.axis.unit.clone_from(&record.unit);
            let bar = Bar {
                value: record.value,
                low: record.low,
                high: record.high,
            };
            plot.put(&group, &series, bar);
        }
        plot
    }

    fn put(&mut self, group: &str, series: &str, bar: Bar) {
        let is_group = |known: &String| known == group;
        let group_at = position_or_push(&mut self.groups, is_group, || group.to_owned());
        let series_at = position_or_push(
            &mut self.series,
            |known| known.name == series,
            || BarSeries {
                name: series.to_owned(),
                bars: Vec::new(),
            },
        );
        let bars = &mut self.series[series_at].bars;
        if bars.len() <= group_at {
            bars.resize(group_at + 1, None);
        }
        bars[group_at] = Some(bar);
    }

    /// The chart as SVG, 800 pixels wide.
    ///
    /// # Errors
    /// If the drawing library fails, which no data should cause.
    pub fn to_svg(&self) -> Result<String, Error> {
        let layout = Layout::new(self);
        let mut svg = String::new();
        let canvas = Canvas::new(&mut svg, &self.title, layout.height())?;
        layout.draw(&canvas)?;
        canvas.finish()?;
        Ok(svg)
    }
}

fn position_or_push<T>(
    list: &mut Vec<T>,
    is_it: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> usize {
    list.iter().position(is_it).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use midspan_records::By;

    use super::*;

    fn plot(values: &[f64]) -> BarPlot {
        let bars = values.iter().map(|&value| {
            Some(Bar {
                value,
                ..Bar::default()
            })
        });
        BarPlot {
            title: "completion time".to_owned(),
            axis: Axis::new("completion time", "s"),
            groups: values.iter().map(|value| format!("{value}")).collect(),
            series: vec![BarSeries {
                name: "direct".to_owned(),
                bars: bars.collect(),
            }],
        }
    }

    #[test]
    fn records_find_their_place() {
        let record = |case: &str, value| Record::new("geo", case, "time", "s", By::Lab, value);
        let records = [
            record("1 MB direct", 6.0).with_spread(5.0, 7.0),
            record("1 MB midspan", 3.0),
            record("10 MB midspan", 8.0),
            record("other", 1.0),
        ];
        let plot = BarPlot::from_records("", "time", &records, |record| {
            let (group, series) = record.case.rsplit_once(' ')?;
            Some((group.to_owned(), series.to_owned()))
        });
        assert_eq!(plot.axis, Axis::new("time", "s"));
        assert_eq!(plot.groups, ["1 MB", "10 MB"]);
        let value = |series: usize, group: usize| {
            let bar: Option<&Option<Bar>> = plot.series[series].bars.get(group);
            bar.copied().flatten().map(|bar| bar.value)
        };
        assert_eq!([value(0, 0), value(0, 1)], [Some(6.0), None]);
        assert_eq!([value(1, 0), value(1, 1)], [Some(3.0), Some(8.0)]);
    }

    #[test]
    fn values_far_apart_get_a_logarithmic_scale() {
        let scale = |values: &[f64]| plot(values).to_svg().unwrap().contains("logarithmic");
        assert!(!scale(&[1.0, 40.0]));
        assert!(scale(&[0.1, 40.0]));
        assert!(!scale(&[0.0, 40.0]));
    }

    #[test]
    fn every_bar_has_its_value() {
        let svg = plot(&[1.81, f64::NAN, 0.56]).to_svg().unwrap();
        for label in ["1.81 s", "n/a", "560 ms"] {
            assert!(svg.contains(&format!("\n{label}\n")), "{svg}");
        }
    }

    #[test]
    fn the_number_of_omitted_series_is_shown() {
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        let svg = plot(&many).to_svg().unwrap();
        assert!(svg.contains("not drawn: 40 more groups, 0 more series"));
    }
}
