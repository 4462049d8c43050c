//! Predictions compared with simulations.

use midspan_records::statistics::quantile;

/// A path, predicted and simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// The seed of the path.
    pub seed: u64,
    /// By analysis, in bit/s.
    pub predicted: f64,
    /// By simulation, in bit/s.
    pub simulated: f64,
}

impl Compared {
    /// The share by which the prediction is too high (above zero) or too low.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted / self.simulated.max(1.0) - 1.0
    }
}

/// How far predictions are from simulations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    /// Median of the absolute errors.
    pub median: f64,
    /// Their 90th percentile.
    pub percentile_90: f64,
    /// Median of the errors with their signs.
    pub bias: f64,
}

impl Agreement {
    /// The agreement for these paths; `None` without any.
    #[must_use]
    pub fn of(paths: &[Compared]) -> Option<Self> {
        let errors: Vec<f64> = paths.iter().map(Compared::error).collect();
        let absolute: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        Some(Self {
            median: quantile(&absolute, 0.5)?,
            percentile_90: quantile(&absolute, 0.9)?,
            bias: quantile(&errors, 0.5)?,
        })
    }
}
