//! The papers' printed figures, computed.
//!
//! Each function returns what a paper prints beside what its own equations give here; the tests
//! of the same names in `tests/` pin them. What was chosen where a paper leaves something open,
//! and what does not follow from it, is in `docs/papers/`.

pub mod hasegawa;
pub mod maki;
pub mod maki_figures;
pub mod shikama;
pub mod tam;

/// A printed figure and ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Where it stands, such as `table 2`.
    pub item: &'static str,
    /// Which row or setting.
    pub case: &'static str,
    /// What it measures.
    pub quantity: &'static str,
    /// Its unit, empty for a plain number.
    pub unit: &'static str,
    /// As printed, in `unit`.
    pub paper: f64,
    /// As computed, in `unit`.
    pub value: f64,
    /// Which reading the computed value is, or why it differs; empty where there is nothing to
    /// say.
    pub note: &'static str,
}
