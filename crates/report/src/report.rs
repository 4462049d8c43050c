//! The report: one HTML file without external references.

use askama::Template;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use midspan_records::Records;

use crate::Error;
use crate::path_picture::PathPicture;
use crate::plot::{BarPlot, HeatPlot, IntervalPlot, LinePlot, PanelPlot, palette};
use crate::table::{Alignment, Cell, Column, Table};
use crate::text::clean;

/// The content of a report. All texts are plain text, not markup.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The title, such as "A download over a satellite link".
    pub title: String,
    /// The result in one sentence.
    pub summary: String,
    /// The command that made it, as typed.
    pub command: String,
    /// The path that was measured.
    pub picture: Option<PathPicture>,
    /// Tables and plots under headings.
    pub sections: Vec<Section>,
    /// How the numbers were measured.
    pub method: Method,
    /// All numbers, printed as JSON at the end.
    pub records: Records,
    /// Files that the reader can save, in addition to the records.
    pub downloads: Vec<Download>,
}

/// A file inside the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// The file's name, such as "runs.csv".
    pub name: String,
    /// Its type, such as "text/csv".
    pub media_type: &'static str,
    /// Its content.
    pub content: String,
}

impl Download {
    /// A path file.
    #[must_use]
    pub fn path_file(content: String) -> Self {
        Self {
            name: "path.toml".to_owned(),
            media_type: "application/toml",
            content,
        }
    }

    /// The content as an address that needs no server (RFC 2397).
    fn address(&self) -> String {
        format!(
            "data:{};base64,{}",
            self.media_type,
            BASE64_STANDARD.encode(&self.content)
        )
    }
}

/// A part of the report under a heading.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// An explanation for the reader; may be empty.
    pub text: String,
    /// Its tables and plots, from top to bottom.
    pub content: Vec<Content>,
}

/// A part of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A table.
    Table(Table),
    /// A chart of bars.
    Bars(BarPlot),
    /// A chart of lines.
    Lines(LinePlot),
    /// A chart of lines with intervals.
    Intervals(IntervalPlot),
    /// Charts of lines with the same axes.
    Panels(PanelPlot),
    /// A heat map.
    Heat(HeatPlot),
}

/// How the numbers were measured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Method {
    /// Whether the numbers may be used.
    pub validity: Validity,
    /// Names and values: kernel, seed, repetitions, programs and their versions.
    pub facts: Vec<Fact>,
    /// Further information for the reader, one paragraph each.
    pub notes: Vec<String>,
}

/// A name and a value, such as "kernel" and "Linux 6.1.0".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

impl Fact {
    /// A name and a value.
    #[must_use]
    pub fn new(name: &str, value: impl std::fmt::Display) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_string(),
        }
    }
}

/// Whether a run's numbers may be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Validity {
    /// Nothing was run, or nothing was checked.
    #[default]
    NotChecked,
    /// The run kept up with the emulation.
    Valid,
    /// The run did not keep up; its numbers mean nothing. The reasons, in one sentence each.
    Void(Vec<String>),
}

impl Report {
    /// The whole page. It has no external references and no script.
    ///
    /// # Errors
    /// If a plot or the page cannot be made, which no data should cause.
    pub fn to_html(&self) -> Result<String, Error> {
        let picture = self.picture.as_ref().map(Figure::of_path).transpose()?;
        let sections = self.sections.iter().map(SectionView::new);
        let page = Page {
            report: self,
            style: style(),
            picture,
            sections: sections.collect::<Result<_, _>>()?,
            records: self.records.to_json(),
            downloads: self.downloads(),
        };
        Ok(page.render()?)
    }

    /// The records and the other files.
    fn downloads(&self) -> Vec<Download> {
        let records = Download {
            name: "records.json".to_owned(),
            media_type: "application/json",
            content: self.records.to_json(),
        };
        std::iter::once(records)
            .chain(self.downloads.iter().cloned())
            .collect()
    }
}

fn style() -> String {
    let dark = palette::dark_rules();
    format!(
        "{}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n",
        include_str!("../templates/report.css"),
    )
}

/// The template's data.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    /// Made here from constants, so it needs no escaping.
    style: String,
    picture: Option<Figure>,
    sections: Vec<SectionView<'a>>,
    records: String,
    downloads: Vec<Download>,
}

struct SectionView<'a> {
    section: &'a Section,
    blocks: Vec<Block<'a>>,
}

enum Block<'a> {
    Table(&'a Table),
    Figure(Figure),
}

/// A picture with its texts.
struct Figure {
    /// Made here with every text in it escaped, so it needs no further escaping.
    svg: String,
    label: String,
    caption: String,
}

impl Figure {
    fn of_path(picture: &PathPicture) -> Result<Self, Error> {
        Ok(Self {
            svg: picture.to_svg()?,
            label: picture.in_words(),
            caption: clean(&picture.caption),
        })
    }

    fn of_plot(title: &str, svg: String) -> Self {
        Self {
            svg,
            label: clean(title),
            caption: String::new(),
        }
    }
}

impl<'a> SectionView<'a> {
    fn new(section: &'a Section) -> Result<Self, Error> {
        let blocks = section.content.iter().map(|content| {
            Ok(match content {
                Content::Table(table) => Block::Table(table),
                Content::Bars(plot) => Block::Figure(Figure::of_plot(&plot.title, plot.to_svg()?)),
                Content::Lines(plot) => Block::Figure(Figure::of_plot(&plot.title, plot.to_svg()?)),
                Content::Intervals(plot) => {
                    Block::Figure(Figure::of_plot(&plot.lines.title, plot.to_svg()?))
                }
                Content::Panels(plot) => {
                    Block::Figure(Figure::of_plot(&plot.title, plot.to_svg()?))
                }
                Content::Heat(plot) => Block::Figure(Figure::of_plot(&plot.title, plot.to_svg()?)),
            })
        });
        Ok(Self {
            section,
            blocks: blocks.collect::<Result<_, Error>>()?,
        })
    }
}

impl Table {
    /// The cells of a row with their columns.
    fn cells_of<'a>(&'a self, row: &'a [Cell]) -> impl Iterator<Item = (&'a Cell, &'a Column)> {
        row.iter().zip(&self.columns)
    }
}

impl Column {
    /// The alignment as the name of a class in the style rules.
    fn class(&self) -> &'static str {
        match self.alignment {
            Alignment::Left => "words",
            Alignment::Right => "number",
        }
    }
}
