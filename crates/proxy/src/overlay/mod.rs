//! Exchanges with the other nodes of an overlay, warm connections to them, and the pages about them.

mod exchange;
mod exchanges;
mod report;
mod warming;

pub(crate) use exchanges::start;
pub(crate) use report::RoutesQuery;
pub use report::{
    CandidateRow, ExitRow, LegRow, NodeRow, OverlayReport, ReportRow, RoutesReport, SessionsRow,
    WarmRow,
};
