//! The analysis of a whole path: all its unidirectional paths, without proxies, as configured, and as
//! recommended.

use midspan_path::Path;

use crate::PlanError;
use crate::answer::Answer;
use crate::data_path::DataPath;
use crate::proxy_advice::{ProxyAdvice, advise};

/// The analysis of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The path's name.
    pub name: String,
    /// The unidirectional paths of all its flows.
    pub data_paths: Vec<DataPathPlan>,
}

/// The analysis of one unidirectional path.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPathPlan {
    /// The unidirectional path.
    pub data_path: DataPath,
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
            data_paths: DataPath::of_path(path)?
                .into_iter()
                .map(DataPathPlan::new)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl DataPathPlan {
    /// Analyses `data_path`.
    ///
    /// # Errors
    /// None for a unidirectional path that [`DataPath::of_path`] made.
    pub fn new(data_path: DataPath) -> Result<Self, PlanError> {
        let direct = Answer::new(&data_path, &[])?;
        if data_path.proxies.is_empty() {
            return Ok(Self {
                data_path,
                direct,
                split: None,
                advice: Vec::new(),
                advised: None,
            });
        }
        let split = Answer::new(&data_path, &data_path.proxies)?;
        let advice = advise(&data_path, &split)?;
        let settings: Vec<_> = advice
            .iter()
            .map(|advice| advice.settings.clone())
            .collect();
        let advised = (settings != data_path.proxies)
            .then(|| Answer::new(&data_path, &settings))
            .transpose()?;
        Ok(Self {
            data_path,
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
