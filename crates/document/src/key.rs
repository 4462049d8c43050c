//! The place of a key or of its value, for types that do not keep places.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Source;

/// The place of a key in the file, and the place of its value.
type Entry = (Range<usize>, Range<usize>);

impl Source {
    /// The place of the value of `key` in the table at `table` (the span of a
    /// [`Spanned`](crate::Spanned) table); `table` itself if there is no such key.
    ///
    /// For checks of a table whose type is shared with code that has no places.
    #[must_use]
    pub fn value_span(&self, table: Range<usize>, key: &str) -> Range<usize> {
        self.entry(&table, key).map_or(table, |(_, value)| value)
    }

    /// The place of `key` itself; else as [`value_span`](Self::value_span).
    #[must_use]
    pub fn key_span(&self, table: Range<usize>, key: &str) -> Range<usize> {
        self.entry(&table, key).map_or(table, |(key, _)| key)
    }

    fn entry(&self, table: &Range<usize>, key: &str) -> Option<Entry> {
        let root = DeTable::parse(self.text()).ok()?;
        find(root.get_ref(), table, key)
    }
}

/// Tables nest no deeper than the parser allows.
fn find(within: &DeTable<'_>, table: &Range<usize>, key: &str) -> Option<Entry> {
    within
        .values()
        .find_map(|value| find_in_value(value, table, key))
}

fn find_in_value(value: &Spanned<DeValue<'_>>, table: &Range<usize>, key: &str) -> Option<Entry> {
    match value.get_ref() {
        DeValue::Table(inner) if value.span() == *table => {
            let (key, value) = inner.get_key_value(key)?;
            Some((key.span(), value.span()))
        }
        DeValue::Table(inner) => find(inner, table, key),
        DeValue::Array(items) => items
            .iter()
            .find_map(|item| find_in_value(item, table, key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct File {
        proxy: Vec<Proxy>,
    }

    #[derive(Deserialize)]
    struct Proxy {
        leg: Spanned<Leg>,
    }

    #[derive(Deserialize)]
    struct Leg {
        #[allow(dead_code)]
        window: Option<u32>,
    }

    #[test]
    fn a_value_is_found_in_inline_tables_and_under_headers() {
        let text = "[[proxy]]\nleg = { window = 1 }\n[[proxy]]\n[proxy.leg]\nwindow = 23\n\
                    [[proxy]]\nleg = {}\n";
        let source = Source::new("p.toml", text);
        let file: File = read(&source).unwrap();
        let places: Vec<&str> = file
            .proxy
            .iter()
            .map(|proxy| &text[source.value_span(proxy.leg.span(), "window")])
            .collect();
        assert_eq!(places, ["1", "23", "{}"]);
    }

    #[test]
    fn a_key_is_found_where_it_is_a_key_of_this_table() {
        let text = "[[proxy]]\nleg.height = 2\nleg.window = 3 # window\n\
                    [[proxy]]\n[proxy.leg] # window\nname = 'window'\n\"window\" = 4\n\
                    [[proxy]]\nleg = { }\n[proxy.other]\nwindow = 5\n";
        let source = Source::new("p.toml", text);
        let file: File = read(&source).unwrap();
        let places: Vec<(usize, &str)> = file
            .proxy
            .iter()
            .map(|proxy| {
                let span = source.key_span(proxy.leg.span(), "window");
                (source.position(span.start).0, &text[span])
            })
            .collect();
        assert_eq!(places, [(3, "window"), (7, "\"window\""), (9, "{ }")]);
    }
}
