//! A whole path: the analysis of all its ways, without proxies, as configured, and as recommended.

use midspan_path::Path;

use crate::PlanError;
use crate::answer::Answer;
use crate::proxy_advice::{ProxyAdvice, advise};
use crate::way::Way;

/// The analysis of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The path's name.
    pub name: String,
    /// The ways of all its flows.
    pub ways: Vec<WayPlan>,
}

/// The analysis of one way.
#[derive(Debug, Clone, PartialEq)]
pub struct WayPlan {
    /// The way.
    pub way: Way,
    /// Without proxies.
    pub direct: Answer,
    /// With its proxies as configured; `None` if it has none.
    pub split: Option<Answer>,
    /// The recommended settings for each proxy.
    pub advice: Vec<ProxyAdvice>,
    /// With these settings; `None` if there is no proxy, or if nothing would change.
    pub advised: Option<Answer>,
}

impl Plan {
    /// Analyses `path`.
    ///
    /// # Errors
    /// The path has fewer than two hosts.
    pub fn new(path: &Path) -> Result<Self, PlanError> {
        Ok(Self {
            name: path.name.clone(),
            ways: Way::of_path(path)?
                .into_iter()
                .map(WayPlan::new)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl WayPlan {
    /// Analyses `way`.
    ///
    /// # Errors
    /// None for a way that [`Way::of_path`] made.
    pub fn new(way: Way) -> Result<Self, PlanError> {
        let direct = Answer::new(&way, &[])?;
        if way.proxies.is_empty() {
            return Ok(Self {
                way,
                direct,
                split: None,
                advice: Vec::new(),
                advised: None,
            });
        }
        let split = Answer::new(&way, &way.proxies)?;
        let advice = advise(&way, &split)?;
        let settings: Vec<_> = advice
            .iter()
            .map(|advice| advice.settings.clone())
            .collect();
        let advised = (settings != way.proxies)
            .then(|| Answer::new(&way, &settings))
            .transpose()?;
        Ok(Self {
            way,
            direct,
            split: Some(split),
            advice,
            advised,
        })
    }

    /// The best result with proxies.
    #[must_use]
    pub fn best(&self) -> Option<&Answer> {
        let split = self.split.as_ref()?;
        Some(match &self.advised {
            Some(advised) if advised.throughput() >= split.throughput() => advised,
            _ => split,
        })
    }
}
