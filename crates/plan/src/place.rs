//! Where to put proxies on a unidirectional path.

use midspan_model::ModelError;
use midspan_model::overlay::{self, Analysis};
use midspan_model::path::{Hop, Path as Hops};
use midspan_model::placement::{Ranking, rank_by};
use midspan_units::{Probability, TimeSpan};

use crate::PlanError;
use crate::answer::Answer;
use crate::data_path::{DataPath, ProxyOnPath};

/// Number of parts into which [`along`] divides a link.
const PARTS: u32 = 10;

/// The `keep` best placements of `proxies` proxies at the nodes of `data_path`. Its own proxies do
/// not count; every new proxy has the settings of the first of them, or those of Linux if there is
/// none.
///
/// # Errors
/// The path has fewer nodes between its two hosts.
pub fn place(data_path: &DataPath, proxies: usize, keep: usize) -> Result<Ranking, PlanError> {
    let places = data_path.nodes.len().saturating_sub(2);
    if proxies > places {
        return Err(ModelError::Proxies { proxies, places }.into());
    }
    // Spread evenly, for a search that cannot try all placements.
    let start = (0..proxies)
        .map(|index| (index + 1) * (places + 1) / (proxies + 1))
        .collect();
    rank_by(places, start, keep, |positions| {
        let legs = data_path.legs(&at(data_path, positions))?;
        Ok(overlay::analyse(&legs, &Analysis::default())?)
    })
}

/// Proxies at `positions`, with the settings of the unidirectional path's first proxy.
#[must_use]
pub fn at(data_path: &DataPath, positions: &[usize]) -> Vec<ProxyOnPath> {
    let settings = data_path.proxies.first().cloned().unwrap_or(ProxyOnPath {
        position: 0,
        inbound: midspan_policy::LegSettings::default(),
        outbound: midspan_policy::LegSettings::default(),
    });
    positions
        .iter()
        .map(|&position| ProxyOnPath {
            position,
            ..settings.clone()
        })
        .collect()
}

/// A proxy at some point along a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Along {
    /// The link.
    pub link: String,
    /// Its position on the link, as a share of the link's delay, in the direction of the data.
    pub share: f64,
    /// The analysis with a proxy there and no other one.
    pub answer: Answer,
}

/// A proxy at every tenth of the link with the longest delay, from 0.1 to 0.9, each alone: for a link that
/// is really a route with several places. Delay and loss are assumed to be even along the link. Empty if no
/// link has a delay.
///
/// # Errors
/// None for a path that [`DataPath::of_path`] made.
pub fn along(data_path: &DataPath) -> Result<Vec<Along>, PlanError> {
    let hops = data_path.hops.hops().iter().enumerate();
    let Some((index, longest)) = hops.max_by_key(|(_, hop)| hop.round_trip) else {
        return Ok(Vec::new());
    };
    if longest.round_trip == TimeSpan::ZERO {
        return Ok(Vec::new());
    }
    (1..PARTS)
        .map(|part| {
            let share = f64::from(part) / f64::from(PARTS);
            let cut = data_path.cut(index, share)?;
            Ok(Along {
                link: data_path.links[index].clone(),
                share,
                answer: Answer::new(&cut, &at(data_path, &[index + 1]))?,
            })
        })
        .collect()
}

impl DataPath {
    /// The unidirectional path without proxies, with link `index` divided at `share` of its delay, 0…1.
    ///
    /// # Errors
    /// None for a link of the unidirectional path.
    fn cut(&self, index: usize, share: f64) -> Result<Self, PlanError> {
        let mut hops = self.hops.hops().to_vec();
        let whole = hops[index];
        let part = |share: f64| Hop {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss
            )] // A part of the whole, so it fits.
            round_trip: TimeSpan::from_nanoseconds(
                (whole.round_trip.nanoseconds() as f64 * share) as u64,
            ),
            // 1 − (1 − p)^share.
            loss: Probability::from_f64(
                (1.0 - libm::pow(1.0 - whole.loss.as_f64(), share)).clamp(0.0, 1.0),
            )
            .unwrap_or(whole.loss),
            ..whole
        };
        hops.splice(index..=index, [part(share), part(1.0 - share)]);
        let mut cut = self.clone();
        cut.hops = Hops::new(hops)?;
        cut.proxies.clear();
        let name = self.links[index].clone();
        let node = format!("{:.0} % of {name}", share * 100.0);
        cut.nodes.insert(index + 1, node);
        cut.links.insert(index, name);
        cut.overheads.insert(index, self.overheads[index]);
        cut.queues.insert(index, self.queues[index]);
        Ok(cut)
    }
}
