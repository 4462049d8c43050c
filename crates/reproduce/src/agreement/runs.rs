//! The simulations of many drawn paths, kept in a file, and their predictions.

use std::ops::RangeInclusive;
use std::path::Path;

use midspan_model::ModelError;
use midspan_records::{RunKey, RunKind, Store, StoreError};
use midspan_sim::tcp::Variant;
use midspan_sweep::in_parallel_each;
use serde::{Deserialize, Serialize};

use super::draw::Draw;
use super::summary::Compared;
use crate::Error;

/// The stored simulations. Increase the version if the simulator's results change.
const RUNS: RunKind = RunKind {
    name: "agreement",
    version: 1,
    before: Some("# midspan plan agreement"),
};

/// Why there are no simulations to compare with.
#[derive(Debug, thiserror::Error)]
pub enum AgreementError {
    /// A simulation fails.
    #[error(transparent)]
    Simulation(#[from] Error),
    /// The analysis fails.
    #[error(transparent)]
    Analysis(#[from] ModelError),
    /// The file of finished simulations cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The row of a finished simulation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// End-to-end throughput in bit/s of user data.
    #[serde(rename = "throughput")]
    pub throughput: f64,
}

/// Drawn paths with their simulations, in a file or in memory.
#[derive(Debug)]
pub struct Simulations(Store<Simulated>);

impl Simulations {
    /// The finished simulations of a file, which new ones are added to; none without a file.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(file: Option<&Path>) -> Result<Self, AgreementError> {
        Ok(Self(match file {
            Some(file) => Store::open(file, RUNS)?,
            None => Store::in_memory(RUNS),
        }))
    }

    /// A sentence on the lines of the file that are not used; `None` if all are.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.0.note()
    }

    /// The seeds whose paths have not been simulated.
    #[must_use]
    pub fn missing(&self, seeds: RangeInclusive<u64>) -> Vec<u64> {
        seeds
            .filter(|seed| self.0.get(&Draw::new(*seed).key()).is_none())
            .collect()
    }

    /// Simulates the paths of `seeds` on this many threads. Each result is stored at once; then
    /// `done` gets its seed.
    ///
    /// # Errors
    /// A simulation fails, or a result cannot be stored.
    pub fn run(
        &mut self,
        seeds: &[u64],
        threads: usize,
        mut done: impl FnMut(u64),
    ) -> Result<(), AgreementError> {
        in_parallel_each(
            seeds.len(),
            threads,
            |index| {
                let throughput = Draw::new(seeds[index]).simulate()?;
                Ok(Simulated { throughput })
            },
            |index, simulated| {
                self.0.put(&Draw::new(seeds[index]).key(), *simulated)?;
                done(seeds[index]);
                Ok::<_, AgreementError>(())
            },
        )?;
        Ok(())
    }

    /// The simulated paths of `seeds`, in their order, each with the prediction.
    ///
    /// # Errors
    /// The analysis refuses a path.
    pub fn compare(
        &self,
        seeds: RangeInclusive<u64>,
    ) -> Result<Vec<(Draw, Compared)>, AgreementError> {
        let mut all = Vec::new();
        for seed in seeds {
            let draw = Draw::new(seed);
            let Some(simulated) = self.0.get(&draw.key()) else {
                continue;
            };
            let outcome = draw.predict()?;
            let compared = Compared {
                seed,
                predicted: outcome.throughput.bits_per_second(),
                simulated: simulated.throughput,
            };
            all.push((draw, compared));
        }
        Ok(all)
    }
}

impl Draw {
    /// What the result of the simulation depends on.
    fn key(&self) -> RunKey {
        let legs: Vec<String> = self
            .legs
            .iter()
            .map(|leg| {
                format!(
                    "rate {}, round trip {}, loss {}, queue {}, send buffer {}, receive buffer {}",
                    leg.rate,
                    leg.round_trip,
                    leg.loss,
                    leg.queue,
                    leg.send_buffer,
                    leg.receive_buffer
                )
            })
            .collect();
        let variant = match self.variant {
            Variant::Reno => "Reno",
            _ => "NewReno",
        };
        RunKey::new()
            .with("seed", self.seed)
            .with("TCP", variant)
            .with("legs", legs.join("; "))
    }
}
