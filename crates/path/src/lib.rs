//! The path file: nodes, links, and the flows over them.
//!
//! One TOML text describes hosts, routers, proxies, links (each direction separately), cables, flows and
//! traffic without TCP. When read, it becomes a [`Path`]: plain data with names resolved to indices and every
//! value checked, so that the analysis, the simulator and the lab need no checks of their own. An error
//! contains the file, line and column and, for a mistyped name, the nearest valid name.
//!
//! The format is described in `docs/path-file.md`. Paths that are part of Midspan are [`built_in`];
//! [`Path::load`] takes the name of one, or a file.

mod acknowledge;
mod built_in;
mod capacity;
#[cfg(test)]
mod documentation;
mod file;
mod link_table;
mod load;
mod overlay;
mod path;
mod resolve;
mod route;
mod written;

/// A value of a path file that may be left out, with its place.
type Given<T> = Option<midspan_document::Spanned<T>>;

pub use acknowledge::Acknowledge;
pub use built_in::{BuiltIn, built_in};
pub use capacity::{Rates, mean_rate};
pub use load::{Error, source};
pub use midspan_link::Direction;
pub use overlay::{
    ALL_ROUTES, HERE, MOST_TRANSIT, OVERLAY_ROUTE_LIMIT, OverlayRoute, OverlayRouteError,
    STATIC_CASE,
};
pub use path::{
    Cable, Family, Flow, HostSettings, Link, LinkIndex, Node, NodeIndex, NodeKind, OnOff, Order,
    OverlayRole, Path, ProxySettings, Traffic, Window, Workload,
};
pub use resolve::{
    DELAY_LIMIT, DURATION_LIMIT, FLOW_LIMIT, LINK_LIMIT, NODE_LIMIT, SCHEDULE_LIMIT, SIZE_LIMIT,
};
pub use route::{Hop, first_hops};
