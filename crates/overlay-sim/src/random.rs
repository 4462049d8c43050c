//! Random draws that are the same on every machine.

use midspan_link::{Direction, Stream, stream, uniform};

/// The numbers of one purpose.
#[derive(Debug, Clone)]
pub struct Random(Stream);

impl Random {
    /// The numbers of this seed and purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self(stream(seed, &format!("overlay/{purpose}"), Direction::Up))
    }

    /// A draw from the open interval (0, 1).
    pub fn uniform(&mut self) -> f64 {
        uniform(&mut self.0)
    }

    /// A whole number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Below the limit.
        let drawn = (self.uniform() * limit as f64) as usize;
        drawn.min(limit.saturating_sub(1))
    }

    /// A draw from the exponential distribution.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -libm::log(self.uniform()) * mean
    }

    /// A draw from the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.uniform()));
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// A draw from the log-normal distribution with this median, and this deviation of the logarithm.
    pub fn log_normal(&mut self, median: f64, deviation: f64) -> f64 {
        median * libm::exp(deviation * self.normal())
    }

    /// A draw from the Poisson distribution: the number of losses of many segments.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 50.0 {
            let drawn = mean + self.normal() * libm::sqrt(mean);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            return libm::round(drawn.max(0.0)) as u64;
        }
        let (limit, mut product, mut count) = (libm::exp(-mean), self.uniform(), 0);
        while product > limit && count < 1_000 {
            product *= self.uniform();
            count += 1;
        }
        count
    }
}
