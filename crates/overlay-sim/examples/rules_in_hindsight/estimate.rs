//! What a rule expects of each route, by the true times until then.

use super::times::{SLICES_OF_HOUR, Times};

/// Slices in a minute.
const OF_MINUTE: f64 = 60.0 / 15.7;
/// A difference to the straight route counts up to this many seconds in a forecast.
const MOST_DIFFERENCE: f32 = 5.0;
/// Minutes over which means are taken.
const MEANS: [f64; 4] = [1.0, 3.0, 10.0, 30.0];
/// Numbers from which a forecast is made: 1, the present difference, its [means](MEANS), and that of all the time.
const NUMBERS: usize = MEANS.len() + 3;
/// Slices over which a forecast is for the mean.
const FORECASTS: [usize; 5] = [8, 20, 60, 115, SLICES_OF_HOUR];

/// How a route is estimated.
#[derive(Clone)]
pub enum Estimate {
    /// By the present alone.
    Present,
    /// By an exponential mean.
    Mean {
        /// Its time constant.
        minutes: f64,
        /// How much the present counts; the mean counts the rest.
        present: f64,
        /// The mean deviations of a route over transit nodes that are added.
        deviations: f64,
    },
    /// By a linear forecast of the difference to the straight route, fitted to all the data.
    Forecast {
        /// Of the mean of this many slices.
        slices: usize,
        /// The weights of the [numbers](NUMBERS).
        weights: [f64; NUMBERS],
    },
}

impl std::fmt::Debug for Estimate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Present => write!(formatter, "the present"),
            Self::Mean {
                minutes,
                present,
                deviations,
            } => write!(
                formatter,
                "mean of {minutes} min, weight of the present {present}, plus {deviations} deviations"
            ),
            Self::Forecast { slices, .. } => write!(formatter, "forecast of {slices} slices"),
        }
    }
}

impl Estimate {
    /// All that are tried.
    pub fn family(pairs: &[Times]) -> Vec<Self> {
        let mut all = vec![Self::Present];
        for minutes in MEANS {
            for present in [0.0, 0.3] {
                all.extend([0.0, 1.0, 2.5].map(|deviations| Self::Mean {
                    minutes,
                    present,
                    deviations,
                }));
            }
        }
        all.extend(FORECASTS.map(|slices| Self::Forecast {
            slices,
            weights: fit(pairs, slices),
        }));
        all
    }

    /// The estimates at each slice for the next one.
    pub fn of(&self, times: &Times) -> Vec<Vec<f32>> {
        match self {
            Self::Present => times.0.clone(),
            Self::Mean {
                minutes,
                present,
                deviations,
            } => means(times, *minutes, *present, *deviations),
            Self::Forecast { weights, .. } => forecasts(times, weights),
        }
    }
}

/// The share of a new value in the mean over these minutes that has begun with slice 0.
fn share(minutes: f64, slice: usize) -> f64 {
    let steady = 1.0 - (-1.0 / (minutes * OF_MINUTE)).exp();
    steady.max(1.0 / (slice as f64 + 1.0))
}

fn means(times: &Times, minutes: f64, present: f64, deviations: f64) -> Vec<Vec<f32>> {
    let mut state = vec![(0.0, 0.0); times.0.first().map_or(0, Vec::len)];
    let rows = times.0.iter().enumerate();
    let of_row = |(slice, row): (usize, &Vec<f32>)| {
        let share = share(minutes, slice);
        let routes = row.iter().zip(&mut state).enumerate();
        let of_route = |(route, (time, (mean, deviation))): (usize, (&f32, &mut (f64, f64)))| {
            let time = f64::from(*time);
            *mean += share * (time - *mean);
            *deviation += share * ((time - *mean).abs() - *deviation);
            let margin = if route == 0 { 0.0 } else { deviations };
            (present * time + (1.0 - present) * *mean + margin * *deviation) as f32
        };
        routes.map(of_route).collect()
    };
    rows.map(of_row).collect()
}

/// The difference of a route's time to that of the straight route.
fn difference(row: &[f32], route: usize) -> f32 {
    (row[route] - row[0]).clamp(-MOST_DIFFERENCE, MOST_DIFFERENCE)
}

/// The numbers for forecasts of each slice and route.
fn numbers(times: &Times) -> Vec<Vec<[f64; NUMBERS]>> {
    let mut state = vec![[0.0; NUMBERS]; times.0.first().map_or(0, Vec::len)];
    let rows = times.0.iter().enumerate();
    let of_row = |(slice, row): (usize, &Vec<f32>)| {
        for (route, numbers) in state.iter_mut().enumerate() {
            let present = f64::from(difference(row, route));
            (numbers[0], numbers[1]) = (1.0, present);
            let shares = MEANS.map(|minutes| share(minutes, slice));
            let all = 1.0 / (slice as f64 + 1.0);
            let shares = shares.into_iter().chain([all]);
            for (mean, share) in numbers[2..].iter_mut().zip(shares) {
                *mean += share * (present - *mean);
            }
        }
        state.clone()
    };
    rows.map(of_row).collect()
}

/// The weights with the least squares of errors, over all routes that may be better than the straight one.
fn fit(pairs: &[Times], slices: usize) -> [f64; NUMBERS] {
    // The normal equations, with the right side in the last column.
    let mut matrix = [[0.0; NUMBERS + 1]; NUMBERS];
    for times in pairs {
        let numbers = numbers(times);
        let routes = times.0.first().map_or(0, Vec::len);
        for route in 1..routes {
            let mut sums = vec![0.0];
            for row in &times.0 {
                sums.push(sums[sums.len() - 1] + f64::from(difference(row, route)));
            }
            let complete = times.0.len().saturating_sub(slices);
            let of_route = numbers.iter().map(|row| &row[route]);
            for (slice, of_slice) in of_route.enumerate().take(complete) {
                if of_slice[1] > 0.05 && of_slice[3] > 0.05 {
                    continue;
                }
                let mean = (sums[slice + 1 + slices] - sums[slice + 1]) / slices as f64;
                for (row, one) in matrix.iter_mut().zip(of_slice) {
                    let others = of_slice.iter().chain([&mean]);
                    row.iter_mut()
                        .zip(others)
                        .for_each(|(sum, other)| *sum += one * other);
                }
            }
        }
    }
    solve(matrix)
}

/// By Gauss and Jordan. The matrix is symmetric and positive.
fn solve(mut matrix: [[f64; NUMBERS + 1]; NUMBERS]) -> [f64; NUMBERS] {
    for column in 0..NUMBERS {
        let scale = matrix[column][column] + 1e-9;
        let pivot = matrix[column].map(|value| value / scale);
        matrix[column] = pivot;
        for (place, row) in matrix.iter_mut().enumerate() {
            let factor = row[column];
            if place != column {
                row.iter_mut()
                    .zip(pivot)
                    .for_each(|(value, of_pivot)| *value -= factor * of_pivot);
            }
        }
    }
    matrix.map(|row| row[NUMBERS])
}

/// The mean of the straight route, plus the forecast difference.
fn forecasts(times: &Times, weights: &[f64; NUMBERS]) -> Vec<Vec<f32>> {
    let straight = means(times, 10.0, 0.0, 0.0);
    let of_route = |straight: f32, (route, numbers): (usize, &[f64; NUMBERS])| {
        let terms = numbers.iter().zip(weights);
        let difference: f64 = terms.map(|(number, weight)| number * weight).sum();
        let difference = if route == 0 { 0.0 } else { difference as f32 };
        (straight + difference).max(0.001)
    };
    let rows = numbers(times).into_iter().zip(straight);
    rows.map(|(numbers, straight)| {
        let routes = numbers.iter().enumerate();
        routes.map(|it| of_route(straight[0], it)).collect()
    })
    .collect()
}
