//! Exchanges with the other nodes of an overlay, and the pages about them.

mod exchange;
mod exchanges;
mod report;

pub(crate) use exchanges::start;
pub(crate) use report::RoutesQuery;
pub use report::{CandidateRow, ExitRow, LegRow, NodeRow, OverlayReport, ReportRow, RoutesReport};
