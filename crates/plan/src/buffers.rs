//! Throughput as a function of the proxies' send buffer.

use midspan_model::buffer::{self, Point};
use midspan_model::overlay::Analysis;
use midspan_units::ByteSize;

use crate::PlanError;
use crate::data_path::DataPath;
use crate::proxy_advice::KNEE;

/// The smallest size of the curve in bytes, and the number of sizes: each is √2 times the previous
/// one, up to 64 MiB.
const SMALLEST: f64 = 4096.0;
const POINTS: i32 = 29;

/// A curve and its knee.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferCurve {
    /// Send buffers from 4 KiB to 64 MiB in every proxy, and the throughput with each.
    pub points: Vec<Point>,
    /// The smallest send buffer that gives [`KNEE`] of the throughput with endless ones.
    pub knee: ByteSize,
}

/// The curve of `data_path` with its proxies.
///
/// # Errors
/// The unidirectional path has no proxy.
pub fn buffers(data_path: &DataPath) -> Result<BufferCurve, PlanError> {
    if data_path.proxies.is_empty() {
        return Err(PlanError::NoProxy {
            ends: data_path.name(),
        });
    }
    let legs = data_path.split()?;
    let sizes: Vec<ByteSize> = (0..POINTS)
        .map(|step| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most 64 MiB.
            let bytes = (SMALLEST * libm::pow(2.0, f64::from(step) / 2.0)).round() as u64;
            ByteSize::from_bytes(bytes)
        })
        .collect();
    Ok(BufferCurve {
        points: buffer::curve(&legs, &sizes, &Analysis::default())?,
        knee: buffer::knee(&legs, KNEE, &Analysis::default())?,
    })
}
