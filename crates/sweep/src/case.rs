//! What carries the flows of a run.

use std::fmt;
use std::str::FromStr;

use midspan_path::{ALL_ROUTES, Flow, OverlayRouteError, Path, STATIC_CASE, Workload};
use midspan_sim::{HopStart, OverlayKnowledge, PathScenario, Scenario, ScenarioError, Simulation};
use midspan_units::{ByteSize, TimeSpan};
use thiserror::Error;

/// The size of a small download.
const SMALL: ByteSize = ByteSize::from_bytes(1_000);

/// What carries the flows of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Case {
    /// Plain routing.
    Direct,
    /// The proxies on the path of each flow.
    Midspan,
    /// The overlay nodes of this route, which is written as [`Path::find_overlay_route`] reads it.
    OverlayStatic(String),
    /// Each overlay route with at most three transit nodes, as a case of its own.
    EachOverlayStatic,
    /// The overlay nodes, which choose the route of each flow when it begins.
    Overlay,
    /// Of all overlay routes, for each flow the one on which it got the most, in each run.
    Oracle,
}

/// The text names no case.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "unknown case \"{0}\": there are direct, midspan, overlay, overlay-static=ROUTE (nodes with \"/\" between \
     them, or here), overlay-static=all, oracle"
)]
pub struct UnknownCase(String);

impl Case {
    /// The cases of a comparison by default, for a path with proxies or without.
    #[must_use]
    pub fn by_default(has_proxies: bool) -> Vec<Self> {
        match has_proxies {
            true => vec![Self::Direct, Self::Midspan],
            false => vec![Self::Direct],
        }
    }

    /// The cases that this one stands for on a path.
    ///
    /// # Errors
    /// The path does not have the overlay route for one of its flows.
    pub fn on(&self, path: &Path) -> Result<Vec<Self>, OverlayRouteError> {
        match self {
            Self::Direct | Self::Midspan => {}
            Self::OverlayStatic(route) => {
                let route = path.find_overlay_route(route)?;
                for flow in &path.flows {
                    path.overlay_stops(flow, &route)?;
                }
            }
            Self::Oracle | Self::Overlay => {
                path.static_routes()?;
            }
            Self::EachOverlayStatic => {
                let routes = path.static_routes()?;
                let names = routes.iter().map(|route| path.overlay_route_text(route));
                return Ok(names.map(Self::OverlayStatic).collect());
            }
        }
        Ok(vec![self.clone()])
    }

    /// The cases that are run for this one: of the oracle, one for each route; otherwise itself.
    ///
    /// # Errors
    /// The path has too many overlay routes, or none for one of its flows.
    pub(crate) fn alternatives(&self, path: &Path) -> Result<Vec<Self>, OverlayRouteError> {
        match self {
            Self::Oracle => Self::EachOverlayStatic.on(path),
            _ => self.on(path),
        }
    }

    /// The scenarios of this case, which is one of [`Self::alternatives`].
    ///
    /// # Errors
    /// The path cannot be simulated.
    pub(crate) fn scenarios(&self, path: &Path) -> Result<Vec<PathScenario>, ScenarioError> {
        match self {
            Self::Direct => Scenario::from_path(path, false),
            Self::Midspan => Scenario::from_path(path, true),
            // Hops open their connections, as those of the real proxy do.
            Self::OverlayStatic(route) => {
                let route = path.find_overlay_route(route)?;
                Scenario::over_route(path, &route, HopStart::Cold)
            }
            Self::Overlay => {
                let mut scenarios = Scenario::over_chosen_routes(path, HopStart::Cold)?;
                for made in &mut scenarios {
                    learn(path, made)?;
                }
                Ok(scenarios)
            }
            Self::Oracle | Self::EachOverlayStatic => Ok(Vec::new()),
        }
    }

    /// The text of its overlay route, if it has one.
    pub(crate) fn route(&self) -> Option<&str> {
        match self {
            Self::OverlayStatic(route) => Some(route),
            Self::Direct
            | Self::Midspan
            | Self::Overlay
            | Self::Oracle
            | Self::EachOverlayStatic => None,
        }
    }
}

/// Lets the overlay nodes of a scenario begin with what runs before it have shown: one of its first flow alone,
/// and then small downloads, because routes are compared when sessions begin, and a change needs two
/// comparisons.
fn learn(path: &Path, made: &mut PathScenario) -> Result<(), ScenarioError> {
    let Some(first) = made
        .flows
        .first()
        .and_then(|parts| path.flows.get(parts.flow))
    else {
        return Ok(());
    };
    let small = Workload::Download { size: SMALL };
    let workloads = [first.workload.clone(), small.clone(), small.clone(), small];
    let mut alone = path.clone();
    let mut knowledge: Option<OverlayKnowledge> = None;
    for workload in workloads {
        alone.flows = vec![Flow {
            start: TimeSpan::ZERO,
            workload,
            ..first.clone()
        }];
        for mut before in Scenario::over_chosen_routes(&alone, HopStart::Cold)? {
            if let Some(knowledge) = knowledge.take() {
                before.scenario.begin_with(knowledge);
            }
            let mut simulation = Simulation::new(&before.scenario)?;
            simulation.run();
            knowledge = simulation.overlay_knowledge();
        }
    }
    if let Some(knowledge) = knowledge {
        made.scenario.begin_with(knowledge);
    }
    Ok(())
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Midspan => f.write_str("midspan"),
            Self::OverlayStatic(route) => write!(f, "{STATIC_CASE}{route}"),
            Self::EachOverlayStatic => write!(f, "{STATIC_CASE}{ALL_ROUTES}"),
            Self::Overlay => f.write_str("overlay"),
            Self::Oracle => f.write_str("oracle"),
        }
    }
}

impl FromStr for Case {
    type Err = UnknownCase;

    fn from_str(text: &str) -> Result<Self, UnknownCase> {
        match text {
            "direct" => return Ok(Self::Direct),
            "midspan" => return Ok(Self::Midspan),
            "oracle" => return Ok(Self::Oracle),
            "overlay" => return Ok(Self::Overlay),
            _ => {}
        }
        match text.strip_prefix(STATIC_CASE) {
            Some(ALL_ROUTES) => Ok(Self::EachOverlayStatic),
            Some(route) if !route.is_empty() => Ok(Self::OverlayStatic(route.to_owned())),
            Some(_) | None => Err(UnknownCase(text.escape_debug().to_string())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        for text in [
            "direct",
            "midspan",
            "overlay-static=here",
            "overlay-static=fra/sin",
            "overlay-static=all",
            "overlay",
            "oracle",
        ] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
        for wrong in ["", "haproxy", "overlay-static", "overlay-static="] {
            let error = wrong.parse::<Case>().unwrap_err().to_string();
            assert!(error.contains("overlay-static=ROUTE"), "{error}");
        }
    }

    #[test]
    fn all_static_routes_of_a_path_are_cases_of_their_own() {
        let path = Path::load("triangle").unwrap();
        let names = |case: Case| -> Vec<String> {
            let cases = case.on(&path).unwrap();
            cases.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            names(Case::EachOverlayStatic),
            [
                "overlay-static=here",
                "overlay-static=sin",
                "overlay-static=fra/sin"
            ]
        );
        assert_eq!(names(Case::Oracle), ["oracle"]);
        let wrong = Case::OverlayStatic("fra".to_owned());
        assert!(wrong.on(&path).is_err());
        let geo = Path::load("geo").unwrap();
        assert!(Case::Oracle.on(&geo).is_err());
        assert_eq!(Case::Direct.on(&geo).unwrap(), [Case::Direct]);
    }
}
