//! Analysis of TCP on a path and across proxies: the formulas behind planning.
//!
//! | question | module | source |
//! | --- | --- | --- |
//! | which rate, round trip, loss and queue does a section between proxies have | [`path`] | Maki §III B |
//! | how much throughput does loss leave to a connection | [`pftk`], [`response`] | Padhye et al.; RFC 9438; BBR |
//! | how does the congestion window of Reno and NewReno vary from loss to loss | [`window`] | Padhye et al.; RFC 5681, RFC 6582 |
//! | what throughput does a leg have, and what limits it | [`leg`] | Maki §III B |
//! | how do split legs affect each other | [`overlay`] | Maki §III, Eqs (2)–(6) |
//! | where to put proxies | [`placement`] | Maki §IV, Table II |
//! | which nodes of a network to choose | [`node_choice`] | |
//! | how large must their buffers be | [`buffer`] | Maki §IV, Fig. 11 |
//! | what does a narrow upstream cost | [`asymmetry`] | Hasegawa Eqs (1)–(7); Tam §1.3 |
//! | how large are a proxy's bursts | [`burst`] | Shikama §5.1 |
//! | how long does a transfer take | [`completion`] | Cardwell et al. 2000 |
//!
//! [`papers`] computes the papers' printed figures.
//!
//! This crate is pure: no clock, no I/O, no random source. Logarithms and powers come from `libm`,
//! so results are the same on every machine. No function returns an infinity or something that is
//! not a number; a quantity that may have no limit is an `Option`.

pub mod asymmetry;
pub mod buffer;
pub mod burst;
pub mod completion;
mod error;
pub mod leg;
pub mod node_choice;
pub mod overlay;
pub mod papers;
pub mod path;
pub mod pftk;
pub mod placement;
mod rate;
pub mod response;
pub mod window;

pub use error::ModelError;
pub use rate::{PacketRate, Throughput};
