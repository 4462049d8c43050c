//! All downloads of a stack.

use std::path::Path;

use midspan_units::BitRate;

use crate::Failure;
use crate::download::{Download, download};
use crate::midspan::Midspan;
use crate::network::{Family, Network};
use crate::server::serve;

/// If a stack accepts oversized segments, at least this share of a download's data must arrive in
/// fragments. The rest is data that is sent before the first oversized segment, and the last
/// segment.
const OVERSIZED_SHARE: f64 = 0.8;

/// Options of the measurement.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bytes of each download.
    pub bytes: usize,
    /// Rate of the link downstream, also in Midspan's profile.
    pub rate: BitRate,
    /// Sizes of oversized segments to measure, in bytes, the smallest first.
    pub sizes: Vec<usize>,
}

impl Plan {
    /// Number of downloads of a stack with one version of IP.
    #[must_use]
    pub const fn downloads(&self) -> usize {
        1 + 2 * self.sizes.len() + 2
    }
}

/// Two downloads with oversized segments: the first one probes, the second follows it.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The size in Midspan's profile, in bytes.
    pub size: usize,
    /// Both downloads.
    pub downloads: [Download; 2],
    /// Number of probes in Midspan's log.
    pub probes: u64,
    /// How often Midspan fell back to normal segments.
    pub fallbacks: u64,
}

impl Pair {
    /// Whether the stack accepted the segments: the second download used them, and Midspan did not
    /// fall back.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.fallbacks == 0 && self.downloads[1].traffic.oversized_share() >= OVERSIZED_SHARE
    }
}

/// The downloads of a stack with one version of IP.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The download with normal segments.
    pub normal: Download,
    /// The downloads with oversized segments, for each size.
    pub pairs: Vec<Pair>,
    /// The downloads with oversized segments of the smallest size on a path that drops fragments.
    pub dropped: Pair,
}

/// Measures a stack. `program` is the stack's client, or `None` for the kernel's stack. Calls
/// `finished` after each download.
///
/// # Errors
/// A download does not finish, or a byte differs: this is a fault of Midspan.
pub fn measure(
    program: Option<&Path>,
    family: Family,
    plan: &Plan,
    finished: &dyn Fn(),
) -> Result<Outcome, Failure> {
    let network = Network::build(program.is_none(), plan.rate)?;
    serve(&network.server, plan.bytes)?;
    let one = |what: &str| -> Result<Download, Failure> {
        let done = download(&network, program, family, plan.bytes);
        finished();
        done.map_err(|failure| format!("{what}: {failure}").into())
    };
    let pair = |size: usize, what: &str| -> Result<Pair, Failure> {
        let what = format!("{size} B{what}");
        let midspan = Midspan::start(&network.gateway, Some(size), plan.rate)?;
        let with_log =
            |failure: Failure| -> Failure { format!("{failure}\n{}", midspan.log()).into() };
        let downloads = [one(&what).map_err(with_log)?, one(&what).map_err(with_log)?];
        let sessions = midspan.sessions(downloads.len())?;
        let sum = |name: &str| sessions.iter().filter_map(|one| one.get(name)).sum();
        let pair = Pair {
            size,
            downloads,
            probes: sum("oversized_probes"),
            fallbacks: sum("oversized_fallbacks"),
        };
        midspan.end()?;
        Ok(pair)
    };

    let midspan = Midspan::start(&network.gateway, None, plan.rate)?;
    let normal = one("normal segments")?;
    midspan.end()?;
    let mut pairs = Vec::new();
    for size in &plan.sizes {
        pairs.push(pair(*size, "")?);
    }
    network.drop_fragments()?;
    let smallest = plan.sizes.first().ok_or("no size to try")?;
    let dropped = pair(*smallest, " without fragments")?;
    Ok(Outcome {
        normal,
        pairs,
        dropped,
    })
}
