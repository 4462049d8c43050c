//! When a better estimate is a reason to change the route.

use super::times::{BROKEN, SLICES_OF_HOUR, Times};

/// One hour of the data.
#[derive(Debug, Clone, Copy)]
pub struct Hour(usize);

/// A condition for changes.
#[derive(Clone, Copy)]
pub struct Rule {
    /// The share by which the estimate of another route has to be less.
    margin: f64,
    /// What each change of the hour multiplies the margin by.
    growth: f64,
    /// Slices between two changes.
    gap: usize,
    /// The share of the margin that counts for a return to the straight route.
    back: f64,
    /// Changes in an hour. The route with which the hour begins is free.
    most_changes: u32,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            margin,
            growth,
            gap,
            back,
            ..
        } = self;
        write!(
            formatter,
            "margin {margin}, times {growth} for each change, {gap} slices apart, back at {back} of it"
        )
    }
}

impl Hour {
    /// The hours of the data.
    pub const ALL: [Self; 3] = [Self(0), Self(1), Self(2)];

    /// Counted from 0, and from 1.
    pub const fn place(self) -> usize {
        self.0
    }

    /// See [`place`](Self::place).
    pub const fn number(self) -> usize {
        self.0 + 1
    }

    /// Its slices.
    fn slices(self) -> std::ops::Range<usize> {
        self.0 * SLICES_OF_HOUR..(self.0 + 1) * SLICES_OF_HOUR
    }

    /// The seconds of all pairs by the straight routes, and by the best fixed ones. Only slices count in which the straight route
    /// works.
    pub fn fixed(self, pairs: &[Times]) -> (f64, f64) {
        let (mut straight, mut best) = (0.0, 0.0);
        for times in pairs {
            let rows = &times.0[self.slices()];
            let working = rows.iter().filter(|row| row[0] < BROKEN);
            let mut sums = vec![0.0; rows[0].len()];
            for row in working {
                let routes = sums.iter_mut().zip(row);
                routes.for_each(|(sum, time)| *sum += f64::from(*time));
            }
            straight += sums[0];
            best += sums.into_iter().fold(f64::INFINITY, f64::min);
        }
        (straight, best)
    }
}

impl Rule {
    /// All conditions that are tried.
    pub fn family(most_changes: u32) -> impl Iterator<Item = Self> {
        let margins = [0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5];
        let growths = [1.0, 1.5, 2.0];
        // None, 5 minutes, 15 minutes.
        let gaps = [0, 19, 57];
        let of_margin = move |margin: f64| {
            growths.into_iter().flat_map(move |growth| {
                gaps.into_iter().flat_map(move |gap| {
                    [1.0, 0.3].map(|back| Self {
                        margin,
                        growth,
                        gap,
                        back,
                        most_changes,
                    })
                })
            })
        };
        margins.into_iter().flat_map(of_margin)
    }

    /// The seconds that this rule saves in an hour, compared with the straight route. The route of a slice is chosen by the
    /// estimates of the slice before. A route that does not work is left at no cost.
    pub fn saves(&self, times: &Times, estimates: &[Best], hour: Hour) -> f64 {
        let (mut route, mut changes, mut newest) = (0, 0, None);
        let mut saved = 0.0;
        for slice in hour.slices() {
            let is_first = slice == hour.slices().start;
            let is_late = newest.is_none_or(|newest| slice - newest >= self.gap);
            if slice > 0 && (is_first || (changes < self.most_changes && is_late)) {
                let next = self.next(route, changes, &estimates[slice - 1]);
                if next != route && !is_first {
                    (changes, newest) = (changes + 1, Some(slice));
                }
                route = next;
            }
            let row = &times.0[slice];
            if row[0] < BROKEN && row[route] < BROKEN {
                saved += f64::from(row[0] - row[route]);
            }
        }
        saved
    }

    /// The route after the present one.
    fn next(&self, route: usize, changes: u32, estimates: &Best) -> usize {
        let growth = self.growth.powi(changes.min(64) as i32);
        let margin = (self.margin * growth).min(0.95);
        let present = f64::from(estimates.row[route]);
        let is_less =
            |other: usize, margin: f64| f64::from(estimates.row[other]) < present * (1.0 - margin);
        match (is_less(estimates.best, margin), route) {
            (true, _) => estimates.best,
            (false, 0) => 0,
            (false, _) if is_less(0, margin * self.back) => 0,
            (false, _) => route,
        }
    }
}

/// The estimates of all routes at one slice.
#[derive(Debug)]
pub struct Best {
    row: Vec<f32>,
    best: usize,
}

impl Best {
    /// Of these estimates.
    pub fn of(rows: Vec<Vec<f32>>) -> Vec<Self> {
        let of_row = |row: Vec<f32>| {
            let routes = row.iter().enumerate();
            let best = routes.min_by(|(_, one), (_, other)| one.total_cmp(other));
            let best = best.map_or(0, |(route, _)| route);
            Self { row, best }
        };
        rows.into_iter().map(of_row).collect()
    }
}
