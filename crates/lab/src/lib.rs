//! Real kernel TCP, the real proxy and real programs over emulated links, on one machine.
//!
//! [`run`] takes a path to its numbers: [`topology`] turns it into network namespaces joined by
//! the [`emulator`], [`proxies`] are started on it, [`workload`]s flow over it, and what was
//! measured becomes [`Measurement`]s with a word on their [`Validity`]. [`verify`] measures the
//! emulator itself against clocks that are not its own.
//!
//! Nothing of it touches the host's network: the caller first moves the process into namespaces
//! of its own ([`midspan_linux::namespace::isolate`]).

mod awake;
pub mod capture;
mod carried;
pub mod emulator;
mod error;
mod load;
mod measurement;
pub mod programs;
pub mod proxies;
mod receive_buffer;
pub mod results;
mod run;
mod supported;
pub mod tcp_counters;
pub mod topology;
mod validity;
pub mod verify;
pub mod workload;

pub use error::LabError;
pub use measurement::{FlowMeasurement, FlowResult, Measurement};
pub use proxies::Case;
pub use proxies::thin::ThinOptions;
pub use results::{comparison_records, flow_records};
pub use run::{Plan, Progress, run};
pub use validity::Validity;
