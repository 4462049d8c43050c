//! All downloads of a stack.

use std::path::Path;

use midspan_units::BitRate;

use crate::Failure;
use crate::download::{Download, download};
use crate::midspan::Midspan;
use crate::network::{Family, Network};
use crate::server::serve;

/// Part of the data of a download that must come in fragments where a stack takes oversized
/// segments: all but what is sent before the first is full, and the last.
const OVERSIZED_SHARE: f64 = 0.8;

/// How much to download.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bytes of each download.
    pub bytes: usize,
    /// Rate of the link downstream, which Midspan's profile knows.
    pub rate: BitRate,
    /// Oversized segments to try, in bytes, the smallest first.
    pub sizes: Vec<usize>,
}

impl Plan {
    /// How many downloads a stack makes with one version of IP.
    #[must_use]
    pub const fn downloads(&self) -> usize {
        1 + 2 * self.sizes.len() + 2
    }
}

/// Two downloads with oversized segments: one that probes, and one after it.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Size that Midspan is told to send, in bytes.
    pub size: usize,
    /// Both.
    pub downloads: [Download; 2],
    /// Probes that Midspan has logged.
    pub probes: u64,
    /// Times that it went back to normal segments.
    pub fallbacks: u64,
}

impl Pair {
    /// Whether the stack took them: the second download came in them, and none was given up.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.fallbacks == 0 && self.downloads[1].traffic.oversized_share() >= OVERSIZED_SHARE
    }
}

/// A stack with one version of IP.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// With normal segments.
    pub normal: Download,
    /// With oversized segments, of each size.
    pub pairs: Vec<Pair>,
    /// With oversized segments of the smallest size where no fragment arrives.
    pub dropped: Pair,
}

/// Measures a stack; `program` is its client, or there is none for the kernel's. `finished` hears
/// of each download.
///
/// # Errors
/// A download does not finish, or a byte differs: that is a fault of Midspan.
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
