//! The programs behind a result, with their versions.

use std::collections::BTreeSet;

use midspan_path::{Path, Workload};
use midspan_report::Fact;

use crate::case::CaseKind;
use crate::programs::Program;

/// The programs that runs of these kinds start on these paths, with their versions. `None` if they
/// start none that is installed.
#[must_use]
pub fn versions<'a>(runs: impl IntoIterator<Item = (CaseKind, &'a Path)>) -> Option<Fact> {
    let mut programs = BTreeSet::new();
    for (kind, path) in runs {
        programs.extend(proxy(kind));
        let workloads = path.flows.iter().map(|flow| &flow.workload);
        programs.extend(workloads.flat_map(of).copied());
    }
    let versions: Vec<String> = programs.into_iter().filter_map(Program::version).collect();
    (!versions.is_empty()).then(|| Fact::new("programs", versions.join(", ")))
}

/// The program of others that a case runs as its proxy.
const fn proxy(kind: CaseKind) -> Option<Program> {
    match kind {
        CaseKind::Haproxy => Some(Program::Haproxy),
        CaseKind::Pepsal => Some(Program::Pepsal),
        CaseKind::Direct
        | CaseKind::DirectBbr
        | CaseKind::Midspan
        | CaseKind::MidspanEarly
        | CaseKind::MidspanForward
        | CaseKind::Thin
        | CaseKind::Overlay
        | CaseKind::OverlayStatic(_)
        | CaseKind::Oracle => None,
    }
}

/// Client and server of a workload.
const fn of(workload: &Workload) -> &'static [Program] {
    match workload {
        Workload::BulkDownload { .. } | Workload::BulkUpload { .. } => &[Program::Iperf3],
        // The command itself is in the path file.
        Workload::Command { .. } => &[Program::Nginx],
        Workload::Download { .. }
        | Workload::Upload { .. }
        | Workload::RequestResponse { .. }
        | Workload::Page { .. } => &[Program::Curl, Program::Nginx],
    }
}
