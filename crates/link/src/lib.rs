//! Pure link stages: queue, rate, loss, delay and other effects; generic over the packet type.
//!
//! [`build`] makes one direction of a link from its [`Configuration`]: the entrance, where packets
//! are fragmented, and the [`Body`] behind it, queue → transmitter → loss → delay with further
//! effects. The simulator and the lab's emulator use the same function. Each effect is a
//! [`Stage`]; the caller passes the time in, virtual or real, and takes out what is due:
//!
//! | kind | calls |
//! | --- | --- |
//! | input | [`handle`](Stage::handle): a packet arrives |
//! | output | [`poll`](Stage::poll): a packet that was delivered or dropped; [`poll_timeout`](Stage::poll_timeout): when to poll again |
//! | getters | [`held`](Stage::held), [`waiting`](Stage::waiting), [`counters`](Stage::counters) |
//!
//! | file | what it does |
//! | --- | --- |
//! | `pipeline` | the configuration of a link, the row of its stages, jitter and reordering; a link as one stage |
//! | `fragments` | MTU: fragments at the entrance of a link, and reassembly at the end of a path |
//! | `queue`, `ack_queue` | which packets wait: first in, first out; ACKs filtered, preferred or marked |
//! | `codel`, `fq_codel` | queues that are managed actively (`queue_management`) |
//! | `discipline` | any of these queues, behind one type |
//! | `recorded_trace` | recorded traces, as texts; `pipeline/replay` sends packets by one |
//! | `transmitter` | sends packets at a rate; `work` is its exact arithmetic |
//! | `loss`, `loss_process` | which packets are lost |
//! | `delay` | propagation |
//! | `link` | queue, transmitter, loss and delay, changed by a `schedule` |
//! | `fixed` | the same for a link that never changes, without timers: the fast path |
//! | `pipeline/compressed_link` | a link with [`header_compression`] (RFC 1144) |
//! | `polled_medium` | one upstream channel that several modems share |
//! | `chain` | two stages in a row |
//! | `stage`, `packet`, `counters`, `drop_reason`, `seed` | what all stages have in common |
//!
//! A [`FixedLink`] decides the fate of a packet when it arrives, so there is no timer and nothing to
//! poll. A property test compares it with [`Link`], which can also have a schedule.
//!
//! [`Bursts`] and [`Histogram`] measure how packets are grouped in time, [`RateMeter`] their rate.
//!
//! `docs/link-model.md` describes the model in one page.
//!
//! This crate is pure: no clock, no I/O; random numbers come from the [`stream`] of a seed.

mod ack_queue;
mod bursts;
mod chain;
mod codel;
mod counters;
mod delay;
mod discipline;
mod drop_reason;
mod fixed;
mod fq_codel;
mod fragments;
pub mod header_compression;
mod link;
mod loss;
mod loss_process;
mod packet;
mod pipeline;
mod polled_medium;
mod queue;
mod queue_management;
mod rate_meter;
mod recorded_trace;
mod schedule;
mod seed;
mod stage;
mod transmitter;
mod work;

pub use ack_queue::QueueDiscipline;
pub use bursts::{Bursts, Histogram};
pub use chain::Chain;
pub use counters::{Count, Counters};
pub use delay::Delay;
pub use discipline::Discipline;
pub use drop_reason::DropReason;
pub use fixed::{FixedLink, Verdict};
pub use fragments::{Entering, Entrance, LEAST_MTU, Reassemble, Reassembly, fragments};
pub use link::Link;
pub use loss::{Bernoulli, Loss, LossModel};
pub use loss_process::{LossPattern, LossProcess};
pub use packet::{FRAGMENT_HEADER, Headers, Packet, Piece, PureAck, flow_identity};
pub use pipeline::{
    Body, CompressedLink, Configuration, LinkError, NotFixed, Parts, Pipeline, Reordering, Shift,
    build, entrance, station,
};
pub use polled_medium::{PolledConfiguration, PolledCounters, PolledMedium, Station};
pub use queue::{DropTail, Queue, QueueLimit};
pub use queue_management::{Management, QueueManagement};
pub use rate_meter::{RateMeter, RateSample};
pub use recorded_trace::{Opportunities, RecordedTrace, Trace, TraceError};
pub use schedule::{Schedule, ScheduleError, State, Step};
pub use seed::{Direction, Stream, Streams, stream, uniform};
pub use stage::{Output, Outputs, Stage, Waiting};
pub use transmitter::Transmitter;
