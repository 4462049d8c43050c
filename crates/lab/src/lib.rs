//! Real kernel TCP, the real proxy and real programs over emulated links, on one machine.
//!
//! [`run`] measures [`Case`]s. [`topology`] makes a network namespace for each node of a path, and
//! the [`emulator`] joins the namespaces by the path's links. The lab starts [`proxies`] in the
//! namespaces and runs [`workload`]s between them. The results are [`Measurement`]s, each with its
//! [`Validity`]; [`trace`] has time series and captures of a run. [`shell`] runs a program inside a
//! host of a path. [`verify`] compares the emulator with clocks that are not its own.
//!
//! The lab changes nothing in the host's network: the caller first moves the process into
//! namespaces of its own ([`midspan_linux::namespace::isolate`]).

mod awake;
pub mod capture;
mod carried;
mod case;
mod contained;
pub mod emulator;
mod error;
mod headline;
mod load;
mod measurement;
mod network;
mod oracle;
mod presentation;
pub mod programs;
pub mod proxies;
mod receive_buffer;
pub mod results;
mod run;
pub mod shell;
mod static_route;
mod stored;
mod supported;
pub mod tcp_counters;
pub mod topology;
pub mod trace;
pub mod validity;
pub mod verify;
mod versions;
pub mod workload;

pub use case::{Case, CaseKind};
pub use error::LabError;
pub use headline::headline;
pub use load::other_load;
pub use measurement::{FlowMeasurement, FlowResult, Measurement};
pub use oracle::oracle;
pub use presentation::Presentation;
pub use proxies::thin::ThinOptions;
pub use results::{comparison_records, flow_records};
pub use run::{Progress, run, run_with_traces};
pub use static_route::StaticRoute;
pub use stored::{RUNS, StoredRun};
pub use supported::check;
pub use validity::{Purpose, Validity};
pub use versions::versions;
