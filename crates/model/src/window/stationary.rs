//! The stationary distribution of the windows at which losses occur, and the means over it.

use super::after_loss::AfterLoss;
use super::{Climb, Step, WindowModel, WindowOutcome};

/// Number of passes until the distribution of windows no longer changes: each pass halves the
/// deviation.
const PASSES: u32 = 40;

impl WindowModel {
    /// The stationary distribution over losses, and the means over it.
    pub(super) fn stationary(&self, grid: &[Step]) -> WindowOutcome {
        let last = grid.len() - 1;
        // Where growth begins: after fast recovery, and at the targets of slow start.
        let mut recovered = vec![0.0; grid.len()];
        let mut goals = vec![0.0; grid.len()];
        recovered[last] = 1.0;
        let mut sums = Sums::default();
        for _ in 0..PASSES {
            sums = Sums::default();
            let mut next_recovered = vec![0.0; grid.len()];
            let mut next_goals = vec![0.0; grid.len()];
            let mut remaining: f64 = goals.iter().sum();
            let (mut slow, mut climbing) = (1.0, 0.0);
            let mut total = 0.0;
            for (index, step) in grid.iter().enumerate() {
                // The windows whose slow start ends here.
                let arrived = goals[index] * slow;
                remaining = (remaining - goals[index]).max(0.0);
                climbing += recovered[index] + arrived;
                let mut lost = climbing * (1.0 - step.avoidance.survives);
                sums.add(climbing, &step.avoidance, step.window);
                climbing *= step.avoidance.survives;
                if step.window >= 2.0 || index == last {
                    let starting = remaining * slow;
                    lost += starting * (1.0 - step.slow_start.survives);
                    sums.add(starting, &step.slow_start, step.window);
                    slow *= step.slow_start.survives;
                }
                total += lost;
                let loss = &step.loss;
                sums.add_loss(lost, loss, step.window);
                spread(
                    &mut next_recovered,
                    grid,
                    step.window / 2.0,
                    lost * (1.0 - loss.time_out - loss.time_out_later),
                );
                spread(
                    &mut next_goals,
                    grid,
                    step.window / 2.0,
                    lost * loss.time_out,
                );
                spread(
                    &mut next_goals,
                    grid,
                    step.window / 4.0,
                    lost * loss.time_out_later,
                );
            }
            if total <= 0.0 {
                break;
            }
            for mass in next_recovered.iter_mut().chain(&mut next_goals) {
                *mass /= total;
            }
            (recovered, goals) = (next_recovered, next_goals);
        }
        sums.outcome(self.bandwidth)
    }
}

/// Distributes `mass` between the two grid points around `window`, which counts as at least 2.
fn spread(masses: &mut [f64], grid: &[Step], window: f64, mass: f64) {
    let last = grid.len() - 1;
    let window = window.max(2.0).min(grid[last].window);
    let above = grid.partition_point(|step| step.window < window).min(last);
    let Some(below) = above.checked_sub(1) else {
        masses[above] += mass;
        return;
    };
    let (low, high) = (grid[below].window, grid[above].window);
    let share = if high > low {
        (window - low) / (high - low)
    } else {
        1.0
    };
    masses[below] += mass * (1.0 - share);
    masses[above] += mass * share;
}

/// The sums over one pass.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    packets: f64,
    time: f64,
    losses: f64,
    time_outs: f64,
    stall: f64,
    window_time: f64,
}

impl Sums {
    fn add(&mut self, mass: f64, climb: &Climb, window: f64) {
        self.packets += mass * climb.packets;
        self.time += mass * climb.time;
        self.window_time += mass * climb.time * window;
    }

    fn add_loss(&mut self, mass: f64, loss: &AfterLoss, window: f64) {
        self.packets += mass * loss.packets;
        self.time += mass * loss.time;
        self.window_time += mass * loss.time * window / 2.0;
        self.losses += mass;
        self.time_outs += mass * (loss.time_out + loss.time_out_later);
        self.stall += mass * loss.stall;
    }

    fn outcome(&self, bandwidth: f64) -> WindowOutcome {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        WindowOutcome {
            rate: share(self.packets, self.time).min(bandwidth),
            time_out_probability: share(self.time_outs, self.losses).min(1.0),
            stall: share(self.stall, self.losses),
            losses: share(self.losses, self.time),
            in_flight: share(self.window_time, self.time),
        }
    }
}
