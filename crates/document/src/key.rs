//! The place of a key's value, for types that do not keep places.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Source;

impl Source {
    /// The place of the value of `key` in the table at `table` (the span of a
    /// [`Spanned`](crate::Spanned) table); `table` itself if there is no such key.
    ///
    /// For checks of a table whose type is shared with code that has no places.
    #[must_use]
    pub fn value_span(&self, table: Range<usize>, key: &str) -> Range<usize> {
        DeTable::parse(self.text())
            .ok()
            .and_then(|root| find(root.get_ref(), &table, key))
            .unwrap_or(table)
    }
}

/// Tables nest no deeper than the parser allows.
fn find(within: &DeTable<'_>, table: &Range<usize>, key: &str) -> Option<Range<usize>> {
    within
        .values()
        .find_map(|value| find_in_value(value, table, key))
}

fn find_in_value(
    value: &Spanned<DeValue<'_>>,
    table: &Range<usize>,
    key: &str,
) -> Option<Range<usize>> {
    match value.get_ref() {
        DeValue::Table(inner) if value.span() == *table => inner.get(key).map(Spanned::span),
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
}
