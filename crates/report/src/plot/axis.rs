//! Axes: the position of a value, and the ticks.

use crate::text::clean;
use crate::units::Scale;

/// Larger values are drawn at the edge.
const FURTHEST: f64 = 1e300;

/// The description of an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The quantity that it shows, such as "time since the request".
    pub label: String,
    /// The unit of the values as in records: "s", "bit/s", "bytes", "share", "" or any other.
    pub unit: String,
    /// Whether equal ratios, instead of equal differences, have equal distances; only if all values
    /// are above zero.
    pub logarithmic: bool,
}

impl Axis {
    /// An axis for `label` in `unit`.
    #[must_use]
    pub fn new(label: &str, unit: &str) -> Self {
        Self {
            label: label.to_owned(),
            unit: unit.to_owned(),
            logarithmic: false,
        }
    }

    /// The same axis with a logarithmic scale.
    #[must_use]
    pub fn on_a_logarithmic_scale(mut self) -> Self {
        self.logarithmic = true;
        self
    }
}

/// A tick of an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Its position: 0 at the beginning of the axis, 1 at its end.
    pub at: f64,
    pub label: String,
}

/// An axis with its range.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Range {
    low: f64,
    high: f64,
    logarithmic: bool,
    heading: String,
    ticks: Vec<Tick>,
}

impl Range {
    /// An axis for all finite `values`, with the requested scale.
    pub fn new(axis: &Axis, values: &[f64]) -> Self {
        let logarithmic = axis.logarithmic.then(|| Self::logarithmic(axis, values));
        logarithmic
            .flatten()
            .unwrap_or_else(|| Self::linear(axis, values))
    }

    /// A linear axis for all finite `values`, from zero unless they are far from it.
    pub fn linear(axis: &Axis, values: &[f64]) -> Self {
        let (least, most) = extent(values).unwrap_or((0.0, 1.0));
        let (least, most) = widened(least, most);
        let step = nice_step((most - least) / 7.0);
        let (low, high) = ((least / step).floor() * step, (most / step).ceil() * step);
        let scale = Scale::of(low.abs().max(high.abs()), &axis.unit);
        let decimals = decimals_of(scale.convert(step));
        // In whole steps: repeated addition would accumulate rounding errors.
        let first = (low / step).round();
        let count = ((high - low) / step).round().clamp(1.0, 20.0);
        let ticks = (0..=20_u32)
            .map(f64::from)
            .take_while(|index| *index <= count)
            .map(|index| Tick {
                at: index / count,
                label: scale.number((first + index) * step, Some(decimals)),
            })
            .collect();
        Self {
            low,
            high,
            logarithmic: false,
            heading: scale.heading(&clean(&axis.label)),
            ticks,
        }
    }

    /// A logarithmic axis for all finite `values`, which must be above zero; `None` if they are
    /// not.
    pub fn logarithmic(axis: &Axis, values: &[f64]) -> Option<Self> {
        let (least, most) = extent(values)?;
        if least < 1e-300 {
            return None;
        }
        // Room below the smallest value: a bar of zero length would look like zero.
        let (first, last) = (libm::log10(least / 1.5).floor(), libm::log10(most).ceil());
        let (low, high) = (libm::pow(10.0, first), libm::pow(10.0, last));
        let decades = (last - first).max(1.0);
        let stride = (decades / 8.0).ceil();
        let ticks = (0..=8_u32)
            .map(|index| f64::from(index) * stride)
            .take_while(|decade| *decade <= decades)
            .map(|decade| {
                let value = libm::pow(10.0, first + decade);
                Tick {
                    at: decade / decades,
                    label: crate::units::format(value, &axis.unit),
                }
            })
            .collect();
        Some(Self {
            low,
            high,
            logarithmic: true,
            heading: format!("{}, logarithmic scale", clean(&axis.label)),
            ticks,
        })
    }

    /// The position of `value`: 0 at the beginning of the axis, 1 at its end, never outside. A
    /// value that is not a number is at the beginning.
    pub fn place(&self, value: f64) -> f64 {
        let value = value.clamp(-FURTHEST, FURTHEST);
        let place = if self.logarithmic {
            let (low, high) = (libm::log10(self.low), libm::log10(self.high));
            (libm::log10(value.max(self.low)) - low) / (high - low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if place.is_nan() {
            0.0
        } else {
            place.clamp(0.0, 1.0)
        }
    }

    /// The axis' label, with its unit unless the ticks contain it.
    pub fn heading(&self) -> &str {
        &self.heading
    }

    /// The ticks, from the beginning to the end.
    pub fn ticks(&self) -> &[Tick] {
        &self.ticks
    }
}

/// The smallest and the largest finite value.
pub(super) fn extent(values: &[f64]) -> Option<(f64, f64)> {
    let finite = || {
        values
            .iter()
            .filter(|value| value.is_finite())
            .map(|value| value.clamp(-FURTHEST, FURTHEST))
    };
    let least = finite().reduce(f64::min)?;
    let most = finite().reduce(f64::max)?;
    Some((least, most))
}

/// The range to show: includes zero unless zero is far away, and is never empty.
fn widened(least: f64, most: f64) -> (f64, f64) {
    let (mut least, mut most) = (least, most);
    let size = least.abs().max(most.abs());
    if size < 1e-300 {
        return (0.0, 1.0);
    }
    if least > 0.0 && least < 0.75 * most {
        least = 0.0;
    }
    if most < 0.0 && most > 0.75 * least {
        most = 0.0;
    }
    if most - least < 1e-6 * size {
        least -= 0.1 * size;
        most += 0.1 * size;
    }
    (least, most)
}

/// The smallest of 1, 2, 5 × 10ⁿ that is at least `step`.
fn nice_step(step: f64) -> f64 {
    let power = libm::pow(10.0, libm::log10(step).floor());
    let nice = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|nice| *nice >= step * (1.0 - 1e-9));
    match nice {
        Some(nice) if nice.is_normal() => nice,
        _ => step.max(f64::MIN_POSITIVE),
    }
}

/// The number of decimals that the multiples of `step` need.
fn decimals_of(step: f64) -> usize {
    let decimals = -(libm::log10(step.abs()) + 1e-9).floor();
    (0..9_usize)
        .zip(0_u32..)
        .find(|(_, count)| f64::from(*count) >= decimals)
        .map_or(9, |(decimals, _)| decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(range: &Range) -> Vec<&str> {
        range.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_in_the_unit_shown() {
        let axis = Axis::new("bytes received", "bytes");
        let range = Range::linear(&axis, &[0.0, 10_000_000.0]);
        assert_eq!(labels(&range), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(range.heading(), "bytes received (MB)");
        let range = Range::linear(&Axis::new("t", "s"), &[0.03, 0.61]);
        assert_eq!(
            labels(&range),
            ["0", "100", "200", "300", "400", "500", "600", "700"]
        );
        assert_eq!(range.heading(), "t (ms)");
        let range = Range::linear(&Axis::new("n", ""), &[1.02, 1.1]);
        assert_eq!(labels(&range), ["1.02", "1.04", "1.06", "1.08", "1.10"]);
    }

    #[test]
    fn a_single_value_has_room_around_it() {
        let range = Range::linear(&Axis::new("n", ""), &[-5.0]);
        assert!((0.2..0.8).contains(&range.place(-5.0)), "{range:?}");
        let range = Range::linear(&Axis::new("n", ""), &[]);
        assert_eq!((range.low, range.high), (0.0, 1.0));
    }

    #[test]
    fn decades_are_evenly_spaced() {
        let axis = Axis::new("delay", "s");
        let range = Range::logarithmic(&axis, &[2e-3, 40.0]).unwrap();
        assert_eq!(
            labels(&range),
            ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"]
        );
        assert!((range.place(0.01) - 0.2).abs() < 1e-9);
        assert!(range.place(2e-3) > 0.0);
        assert_eq!(Range::logarithmic(&axis, &[0.0, 1.0]), None);
        assert_eq!(Range::logarithmic(&axis, &[f64::NAN]), None);
    }

    #[test]
    fn extremes_stay_inside() {
        let axis = Axis::new("n", "s");
        let odd = [
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            5e-324,
            f64::NAN,
            f64::INFINITY,
            0.0,
            -0.0,
            1e15,
        ];
        for a in odd {
            for b in odd {
                let linear = Range::linear(&axis, &[a, b]);
                let ranges = [Some(linear), Range::logarithmic(&axis, &[a, b])];
                for range in ranges.into_iter().flatten() {
                    assert!((2..=21).contains(&range.ticks.len()), "{a} {b} {range:?}");
                    for value in odd {
                        assert!((0.0..=1.0).contains(&range.place(value)));
                    }
                }
            }
        }
    }
}
