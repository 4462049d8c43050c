//! The cases with one overlay route, by name.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use midspan_path::{
    ALL_ROUTES, Flow, NodeIndex, OverlayRoute, OverlayRouteError, Path, STATIC_CASE,
};

/// The whole names of all cases with one route in this program: they are few, and stay.
static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The overlay route of a case, written as [`Path::find_overlay_route`] reads it; or all routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StaticRoute(&'static str);

impl StaticRoute {
    /// All routes.
    #[must_use]
    pub fn all() -> Self {
        Self::of(ALL_ROUTES)
    }

    fn of(route: &str) -> Self {
        let name = format!("{STATIC_CASE}{route}");
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name.as_str()) {
            return Self(known);
        }
        let name: &'static str = name.leak();
        names.insert(name);
        Self(name)
    }

    /// The route of a case with this name; `None` for another case.
    #[must_use]
    pub fn of_case(name: &str) -> Option<Self> {
        let route = name
            .strip_prefix(STATIC_CASE)
            .filter(|route| !route.is_empty())?;
        Some(Self::of(route))
    }

    /// The name of the case, such as "overlay-static=fra/sin".
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// The route in a path.
    fn route(self, path: &Path) -> Result<OverlayRoute, OverlayRouteError> {
        path.find_overlay_route(self.0.strip_prefix(STATIC_CASE).unwrap_or_default())
    }

    /// The nodes that a flow passes, the ingress first.
    ///
    /// # Errors
    /// The path does not have the route for this flow.
    pub(crate) fn stops(
        self,
        path: &Path,
        flow: &Flow,
    ) -> Result<Vec<NodeIndex>, OverlayRouteError> {
        path.overlay_stops(flow, &self.route(path)?)
    }

    /// The routes that this one stands for in a path: itself, or all that all flows can take, with at most
    /// three transit nodes.
    ///
    /// # Errors
    /// The path does not have the route for one of its flows, or has too many.
    pub(crate) fn on(self, path: &Path) -> Result<Vec<Self>, OverlayRouteError> {
        if self != Self::all() {
            for flow in &path.flows {
                self.stops(path, flow)?;
            }
            return Ok(vec![self]);
        }
        let routes = path.static_routes()?;
        let texts = routes.iter().map(|route| path.overlay_route_text(route));
        Ok(texts.map(|text| Self::of(&text)).collect())
    }
}
