//! Random streams of nodes and sources, and draws that give the same results on every machine.

pub(crate) use midspan_link::uniform;
use midspan_link::{Direction, Stream, stream};
use midspan_units::TimeSpan;

/// The distribution of a random value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Constant(f64),
    /// Exponential, with this mean.
    Exponential {
        /// The mean.
        mean: f64,
    },
    /// Pareto: with a shape below 2, its variance is infinite, and the sum of many sources with
    /// such on and off times is self-similar (Willinger et al. 1997).
    Pareto {
        /// The mean.
        mean: f64,
        /// The shape, above 1.
        shape: f64,
    },
}

/// The stream of one purpose at one place, such as the service times of a session at a proxy.
///
/// Built on the link crate's [`stream`]: `purpose/place` replaces the link's name, so the stream
/// never equals that of a link (names of links contain no slash).
pub(crate) fn stream_for(seed: u64, purpose: &str, place: &str) -> Stream {
    stream(seed, &format!("{purpose}/{place}"), Direction::Up)
}

/// A whole number below `limit`, which is above zero; all are equally likely.
pub(crate) fn below(stream: &mut Stream, limit: u32) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Below the limit.
    let drawn = (uniform(stream) * f64::from(limit)) as u32;
    drawn.min(limit - 1)
}

/// A draw from the exponential distribution with this mean, rounded to a nanosecond.
pub(crate) fn exponential(stream: &mut Stream, mean: TimeSpan) -> TimeSpan {
    #[allow(clippy::cast_precision_loss)]
    let nanoseconds = -libm::log(uniform(stream)) * mean.nanoseconds() as f64;
    // The logarithm is below 38, so only a mean of decades saturates.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    TimeSpan::from_nanoseconds(libm::round(nanoseconds) as u64)
}

/// A draw from the Pareto distribution with this mean and a shape above 1.
fn pareto(stream: &mut Stream, mean: f64, shape: f64) -> f64 {
    let least = mean * (shape - 1.0) / shape;
    least * libm::pow(uniform(stream), -1.0 / shape)
}

/// A draw from a distribution; never negative.
pub(crate) fn draw(stream: &mut Stream, distribution: Distribution) -> f64 {
    match distribution {
        Distribution::Constant(value) => value,
        Distribution::Exponential { mean } => -libm::log(uniform(stream)) * mean,
        Distribution::Pareto { mean, shape } => pareto(stream, mean, shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pareto_draws_never_change() {
        let mut stream = stream_for(1, "traffic", "cross/0");
        let draws = [(); 4].map(|()| pareto(&mut stream, 1000.0, 1.5).to_bits());
        assert_eq!(draws, KNOWN_PARETO);
    }

    // 470.48…, 746.91…, 444.37…, 652.64…, computed by an independent program.
    const KNOWN_PARETO: [u64; 4] = [
        0x407d_67b5_0cd8_f770,
        0x4087_5748_a247_8add,
        0x407b_c5dc_0793_f8a9,
        0x4084_6521_9997_0d6d,
    ];

    #[test]
    fn the_first_draws_never_change() {
        let mut stream = stream_for(1, "service", "relay");
        let draws: Vec<u64> = (0..4)
            .map(|_| exponential(&mut stream, TimeSpan::from_milliseconds(1)).nanoseconds())
            .collect();
        assert_eq!(draws, KNOWN);
    }

    // Computed by an independent program from the description of `stream`.
    const KNOWN: [u64; 4] = [1_363_276, 914_793, 449_676, 1_185_794];

    #[test]
    fn the_mean_is_the_mean() {
        let mut stream = stream_for(7, "service", "relay");
        let sum: u64 = (0..100_000)
            .map(|_| exponential(&mut stream, TimeSpan::from_milliseconds(1)).nanoseconds())
            .sum();
        // Standard error: 1 ms / √100,000 = 0.32 %; the seed is fixed.
        assert!(
            (990_000..1_010_000).contains(&(sum / 100_000)),
            "{}",
            sum / 100_000
        );
    }
}
