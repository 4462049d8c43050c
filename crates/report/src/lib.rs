//! Tables, plots and the HTML report.
//!
//! Numbers come from [`Records`](midspan_records::Records). Callers add data that a record cannot
//! hold, such as the lines of a plot ([`Series`]) and the picture of the path ([`PathPicture`]). This
//! crate does not depend on how the numbers were obtained.
//!
//! - [`units`]: a number and its unit, formatted for people.
//! - [`Table`]: as text, as Markdown or in the report. [`pivot()`] makes one with a row for each case
//!   and a column for each quantity; [`beside_printed()`] makes one with a row for each record, next
//!   to the number that a paper prints.
//! - [`TextBars`]: bars made of characters, for a terminal.
//! - [`BarPlot`], [`LinePlot`], [`IntervalPlot`], [`PanelPlot`], [`HeatPlot`], [`PathPicture`]: SVG.
//! - [`Report`]: tables and pictures in one HTML file without external references.
//!
//! Every input text is untrusted: control characters never reach a terminal, and markup never
//! reaches the HTML or SVG as markup. No number causes a panic. The same input gives the same
//! output bytes.
//!
//! ```
//! use midspan_records::{By, Record, Records};
//! use midspan_report::{Content, Report, Section, pivot};
//!
//! let mut records = Records::default();
//! records.push(
//!     Record::new("geo", "1 MB direct", "completion time", "s", By::Lab, 6.02)
//!         .with_spread(5.78, 6.26),
//! );
//! let table = pivot("Downloads", &records.records);
//! print!("{}", table.to_text(midspan_report::stdout_width()));
//!
//! let report = Report {
//!     title: "Downloads over a satellite link".to_owned(),
//!     sections: vec![Section {
//!         heading: "Each download".to_owned(),
//!         content: vec![Content::Table(table)],
//!         ..Section::default()
//!     }],
//!     records,
//!     ..Report::default()
//! };
//! assert!(report.to_html()?.contains("5.78–6.26"));
//! # Ok::<(), midspan_report::Error>(())
//! ```

mod beside_printed;
mod error;
mod markdown;
mod path_picture;
mod pivot;
mod plot;
mod report;
mod table;
mod text;
mod text_bars;
pub mod units;

pub use beside_printed::{Extra, beside_printed};
pub use error::Error;
pub use path_picture::{DirectionPicture, LinkPicture, NodeKind, NodePicture, PathPicture};
pub use pivot::{pivot, pivot_of};
pub use plot::{
    Axis, Bar, BarPlot, BarSeries, Categories, HeatPlot, Interval, IntervalPlot, LinePlot, Panel,
    PanelPlot, Series,
};
pub use report::{Content, Download, Fact, Method, Report, Section, Validity};
pub use table::{Alignment, Cell, Column, Table, stdout_width};
pub use text_bars::{TextBar, TextBars};
