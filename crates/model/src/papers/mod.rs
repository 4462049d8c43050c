//! Computes the papers' printed figures.
//!
//! The functions return a paper's printed figures together with the results of the paper's own
//! equations. Tests in `tests/`, in a file for each paper, keep both fixed. `docs/papers/` describes what
//! was chosen where a paper leaves something open, and which figures do not follow from the paper.

pub mod hasegawa;
pub mod maki;
pub mod maki_figures;
pub mod shikama;
pub mod tam;

/// A printed figure, and the computed one.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its place in the paper, such as `table 2`.
    pub item: &'static str,
    /// The row or setting.
    pub case: &'static str,
    /// The quantity that it measures.
    pub quantity: &'static str,
    /// Its unit; empty for a plain number.
    pub unit: &'static str,
    /// As printed, in `unit`.
    pub paper: f64,
    /// As computed, in `unit`.
    pub value: f64,
    /// The reading of the computed value, or why it differs; empty if there is nothing to note.
    pub note: &'static str,
}
