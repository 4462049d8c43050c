//! A Markdown document as a manual page.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::{Edition, Page};

/// A page of section 5 with the content of a Markdown document.
///
/// The document's title is left out. A table becomes a list: the first cell of a row is the term, the
/// second one follows it, and each further cell follows the heading of its column. A link within the
/// documentation keeps its text only; a link to a web page keeps its address as well.
#[must_use]
pub fn from_document(name: &str, about: &str, document: &str, edition: &Edition) -> Page {
    let mut writer = Writer::default();
    writer
        .roff
        .control("TH", [name, "5", &edition.date, &edition.source, "Midspan"]);
    writer.roff.control("SH", ["NAME"]);
    writer.roff.text([roman(format!("{name} - {about}"))]);
    writer.roff.control("SH", ["DESCRIPTION"]);
    writer.continues = true;
    for event in Parser::new_ext(document, Options::ENABLE_TABLES) {
        writer.handle(event);
    }
    Page {
        file: format!("{name}.5"),
        text: writer.roff.to_roff(),
    }
}

/// The state between two events of the parser.
#[derive(Default)]
struct Writer {
    roff: Roff,
    /// The text of the current paragraph, heading, cell or item.
    inlines: Vec<Inline>,
    /// How text is emphasized at this place.
    style: Style,
    /// The address of the current link, if it is a web page.
    address: Option<String>,
    /// For each list around this place, the number of the next item; none for a list without numbers.
    lists: Vec<Option<u64>>,
    /// Whether the next paragraph needs no request, because a heading or an item has begun it.
    continues: bool,
    in_title: bool,
    in_code: bool,
    /// The headings of the current table.
    columns: Vec<String>,
    in_head: bool,
    /// The number of the next cell in its row.
    cell: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Style {
    #[default]
    Plain,
    Strong,
    Emphasis,
}

impl Writer {
    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.in_code => self.code(&text),
            Event::Text(text) => self.push(&text),
            Event::Code(text) => self.inlines.push(bold(text.to_string())),
            Event::SoftBreak | Event::HardBreak => self.push(" "),
            // HTML, footnotes and formulas are not in these documents.
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.inlines.clear();
                self.in_title = level == HeadingLevel::H1;
            }
            Tag::Paragraph if self.continues => self.continues = false,
            Tag::Paragraph => {
                self.roff.control("PP", []);
            }
            Tag::CodeBlock(_) => {
                if !std::mem::take(&mut self.continues) {
                    self.roff.control("PP", []);
                }
                self.roff.control("RS", ["4"]);
                self.roff.control("nf", []);
                self.in_code = true;
            }
            Tag::List(first) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.roff.control("RS", ["2"]);
                }
                self.lists.push(first);
            }
            Tag::Item => {
                let sign = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}.", *number - 1)
                    }
                    _ => "\u{2022}".to_owned(),
                };
                self.roff.control("IP", [sign.as_str(), "3"]);
                self.continues = true;
            }
            Tag::Strong => self.style = Style::Strong,
            Tag::Emphasis => self.style = Style::Emphasis,
            Tag::Link { dest_url, .. } => {
                self.address = dest_url.starts_with("http").then(|| dest_url.to_string());
            }
            Tag::Table(_) => {
                self.continues = false;
                self.columns.clear();
            }
            Tag::TableHead => self.in_head = true,
            Tag::TableRow => self.cell = 0,
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                let heading = plain(&self.inlines);
                self.inlines.clear();
                self.continues = true;
                match level {
                    HeadingLevel::H1 => {}
                    HeadingLevel::H2 => {
                        self.roff.control("SH", [heading.as_str()]);
                    }
                    _ => {
                        self.roff.control("SS", [heading.as_str()]);
                    }
                }
            }
            TagEnd::Paragraph => self.flush(),
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.roff.control("fi", []);
                self.roff.control("RE", []);
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if !self.lists.is_empty() {
                    self.roff.control("RE", []);
                }
            }
            TagEnd::Item => {
                self.flush();
                self.continues = false;
            }
            TagEnd::Strong | TagEnd::Emphasis => self.style = Style::Plain,
            TagEnd::Link => {
                if let Some(address) = self.address.take() {
                    self.push(&format!(" ({address})"));
                }
            }
            TagEnd::TableHead => self.in_head = false,
            TagEnd::TableCell => self.end_cell(),
            _ => {}
        }
    }

    fn end_cell(&mut self) {
        if self.in_head {
            self.columns.push(plain(&self.inlines));
            self.inlines.clear();
            return;
        }
        let number = self.cell;
        self.cell += 1;
        if number == 0 {
            self.roff.control("TP", []);
        } else if self.inlines.is_empty() {
            return;
        } else if number > 1 {
            self.roff.control("br", []);
            let column = self.columns.get(number).map_or("", String::as_str);
            self.inlines.insert(0, italic(format!("{column}:")));
            self.inlines.insert(1, roman(" "));
        }
        self.flush();
    }

    fn code(&mut self, text: &str) {
        for line in text.lines() {
            self.roff.text([roman(line)]);
        }
    }

    fn push(&mut self, text: &str) {
        self.inlines.push(match self.style {
            Style::Plain => roman(text),
            Style::Strong => bold(text),
            Style::Emphasis => italic(text),
        });
    }

    fn flush(&mut self) {
        if !self.inlines.is_empty() {
            self.roff.text(std::mem::take(&mut self.inlines));
        }
    }
}

/// The text without emphasis.
fn plain(inlines: &[Inline]) -> String {
    let texts = inlines.iter().map(|inline| match inline {
        Inline::Roman(text) | Inline::Italic(text) | Inline::Bold(text) => text.as_str(),
        Inline::LineBreak => " ",
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(document: &str) -> String {
        let edition = Edition {
            source: "midspan 1".to_owned(),
            date: "2026-01-31".to_owned(),
        };
        from_document("midspan.toml", "a file", document, &edition).text
    }

    #[test]
    fn a_table_becomes_a_list_of_its_keys() {
        let text = text_of(
            "# Title\n\n## `[relay]`: settings\n\n| key | meaning | value | default |\n\
             | --- | --- | --- | --- |\n| `threads` | number of threads | 1 to 128 | one per core |\n",
        );
        let list = [
            ".TP",
            "\\fBthreads\\fR",
            "number of threads",
            ".br",
            "\\fIvalue:\\fR 1 to 128",
            ".br",
            "\\fIdefault:\\fR one per core",
        ];
        assert!(text.contains(&list.join("\n")), "{text}");
        assert!(text.contains("[relay]: settings"), "{text}");
        assert!(!text.contains("Title"), "{text}");
    }

    #[test]
    fn a_heading_begins_its_first_paragraph() {
        let text = text_of("# Title\n\nOne.\n\nTwo.\n\n## Three\n\nFour.\n");
        let requests: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with('.'))
            .map(|line| &line[1..3])
            .collect();
        assert_eq!(requests, ["TH", "SH", "SH", "PP", "SH"], "{text}");
    }

    #[test]
    fn lines_of_code_that_roff_would_take_for_requests_are_kept() {
        let text = text_of("Before:\n\n```toml\n.listener = 'a\\b'\n\n'x'\n```\n\nAfter.\n");
        assert!(text.contains("listener = "), "{text}");
        for line in text.lines() {
            assert!(
                !line.starts_with(".listener") && !line.starts_with("'x"),
                "{line}"
            );
        }
        assert!(text.contains("a\\eb") || text.contains("a\\\\b"), "{text}");
    }

    #[test]
    fn links_within_the_documentation_lose_their_address() {
        let text = text_of("See [metrics](observability.md) and [TOML](https://toml.io).");
        assert!(
            text.contains("See metrics and TOML (https://toml.io)."),
            "{text}"
        );
    }

    #[test]
    fn items_of_lists_have_their_sign_or_number() {
        let text = text_of("- one\n- two\n\n  more\n\n1. first\n2. second\n");
        let signs: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(".IP"))
            .collect();
        assert_eq!(signs.len(), 4, "{text}");
        assert!(signs[3].contains("2."), "{text}");
    }
}
