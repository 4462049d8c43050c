//! Values that replace those of a file: `link.satellite.loss=1 %`.
//!
//! An [`Override`] is a dotted key and a value, as typed by a user. A table in an array of tables
//! is selected by its `name`, or by its index from 0. A name that contains dots may be written as
//! it is, or in quotes; if it is written as it is, the longest name that fits is meant. The value
//! is TOML, or a text without quotes: `seed=3`, `link.satellite.delay=300 ms`. A
//! [`Sweep`](crate::Sweep) is a key with several values.
//!
//! The file's own reader checks everything, so an override can do exactly what the file can; an
//! error points into the override.

use std::ops::Range;

use toml::{Table, Value};

use crate::{Located, Source};

/// A dotted key and its new value.
#[derive(Debug, Clone)]
pub struct Override {
    /// The text as typed, with a name for errors.
    source: Source,
    /// The parts of the key and their places.
    keys: Vec<Key>,
    value: Range<usize>,
}

/// A part of a key and its place.
type Key = (String, Range<usize>);

/// Longest override, in bytes.
const LONGEST: usize = 64 << 10;
/// Largest number of parts of a key.
const DEEPEST: usize = 16;

impl Override {
    /// Parses `text`, which has the form `KEY=VALUE`. `origin` is its name in errors, such as
    /// `--set`.
    ///
    /// # Errors
    /// There is no `=`, an empty part in the key, or a quote without end.
    pub fn parse(origin: &str, text: &str) -> Result<Self, Located> {
        if text.len() > LONGEST {
            let source = Source::new(origin, "");
            return Err(Located::new(&source, 0..0, "longer than 64 KiB"));
        }
        let source = Source::new(origin, text);
        let (keys, end) = keys(&source)?;
        let value = text.get(end..).unwrap_or("");
        let start = end + (value.len() - value.trim_start().len());
        let stop = start + value.trim().len();
        if keys.len() > DEEPEST {
            return Err(Located::new(&source, 0..end, "a key has at most 16 parts"));
        }
        Ok(Self {
            source,
            keys,
            value: start..stop,
        })
    }

    /// The dotted key, as typed.
    #[must_use]
    pub fn key(&self) -> &str {
        let end = self.keys.last().map_or(0, |(_, span)| span.end);
        self.source.text().get(..end).unwrap_or_default().trim()
    }

    /// The place of the value in the text.
    pub(crate) fn value_span(&self) -> Range<usize> {
        self.value.clone()
    }

    /// Replaces the value in `source`; returns the new source and the result of `read`.
    ///
    /// # Errors
    /// The key does not exist, or `read` refuses the text with the new value but not without it;
    /// then the place is in the override. If `read` refuses `source` itself, its own error.
    pub fn apply<T>(
        &self,
        source: &Source,
        read: impl Fn(&Source) -> Result<T, Located>,
    ) -> Result<(Source, T), Located> {
        read(source)?;
        let root: Table = crate::read(source)?;
        let mut refused = None;
        for value in self.candidates(&root) {
            let mut changed = Value::Table(root.clone());
            self.put(&mut changed, value)?;
            let Ok(text) = toml::to_string(&changed) else {
                continue;
            };
            let changed = source.with_text(text);
            match read(&changed) {
                Ok(result) => return Ok((changed, result)),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(self.refused(refused))
    }

    /// The possible meanings of the value, the most likely one first.
    fn candidates(&self, root: &Table) -> Vec<Value> {
        let text = &self.source.text()[self.value.clone()];
        let plain = Value::String(text.to_owned());
        let typed = toml::from_str::<Table>(&format!("value = {text}"))
            .ok()
            .filter(|table| table.len() == 1)
            .and_then(|mut table| table.remove("value"));
        let Some(typed) = typed else {
            return vec![plain];
        };
        if matches!(self.find(root), Some(Value::String(_))) && !typed.is_str() {
            vec![plain, typed]
        } else {
            vec![typed, plain]
        }
    }

    /// The present value at the place of the key.
    fn find<'a>(&self, root: &'a Table) -> Option<&'a Value> {
        let mut found = root.get(&self.keys.first()?.0)?;
        let mut next = 1;
        while let Some((key, _)) = self.keys.get(next) {
            let taken;
            (found, taken) = match found {
                Value::Table(table) => (table.get(key)?, 1),
                Value::Array(items) => {
                    let (index, taken) = self.select(items, next)?;
                    (items.get(index)?, taken)
                }
                _ => return None,
            };
            next += taken;
        }
        Some(found)
    }

    /// Puts the value at the place of the key.
    fn put(&self, root: &mut Value, value: Value) -> Result<(), Located> {
        let mut place = root;
        let mut next = 0;
        while let Some((key, span)) = self.keys.get(next) {
            let taken;
            (place, taken) = match place {
                Value::Table(table) => {
                    let inner = table
                        .entry(key.clone())
                        .or_insert_with(|| Value::Table(Table::new()));
                    (inner, 1)
                }
                Value::Array(items) => {
                    let Some((index, taken)) = self.select(items, next) else {
                        let message = format!("there is none called \"{key}\"");
                        return Err(Located::new(&self.source, span.clone(), message)
                            .with_nearest(key, items.iter().filter_map(name_of)));
                    };
                    (&mut items[index], taken)
                }
                _ => {
                    let message = format!("`{key}`: there is no table before it");
                    return Err(Located::new(&self.source, span.clone(), message));
                }
            };
            next += taken;
        }
        *place = value;
        Ok(())
    }

    /// The table of an array that the parts of the key from `first` on select, by its index, and
    /// how many parts its name takes. Of several names, the longest; a name that leaves a part of
    /// the key for a value in the table comes first.
    fn select(&self, items: &[Value], first: usize) -> Option<(usize, usize)> {
        let left = self.keys.len().checked_sub(first)?;
        let with_name = |name: &str| items.iter().position(|item| name_of(item) == Some(name));
        let joined = |parts: usize| {
            let (start, end) = (
                self.keys.get(first)?.1.start,
                self.keys.get(first + parts - 1)?.1.end,
            );
            let name = self.source.text().get(start..end)?.trim();
            with_name(name).map(|index| (index, parts))
        };
        let key = &self.keys.get(first)?.0;
        (2..left)
            .rev()
            .find_map(joined)
            .or_else(|| with_name(key).map(|index| (index, 1)))
            .or_else(|| (left > 1).then(|| joined(left)).flatten())
            .or_else(|| {
                let index = key.parse().ok().filter(|index| *index < items.len())?;
                Some((index, 1))
            })
    }

    /// The reader's own message, at the part of the override to which it refers.
    fn refused(&self, error: Option<Located>) -> Located {
        let Some(error) = error else {
            return Located::new(
                &self.source,
                self.value.clone(),
                "cannot be written as TOML",
            );
        };
        let last = self.keys.last().map_or(0..0, |(_, span)| span.clone());
        let unknown = self
            .keys
            .iter()
            .find(|(key, _)| error.message().contains(&format!("unknown key `{key}`")));
        let place = match unknown {
            Some((_, span)) => span.clone(),
            None if self.value.is_empty() => last,
            None => self.value.clone(),
        };
        let located = Located::new(&self.source, place, error.message());
        match error.help() {
            Some(help) => located.with_help(help),
            None => located,
        }
    }
}

/// Applies all `overrides` to `source` in their order; returns the result of `read`.
///
/// # Errors
/// Those of [`Override::apply`].
pub fn read_with<T>(
    source: &Source,
    overrides: &[Override],
    read: impl Fn(&Source) -> Result<T, Located>,
) -> Result<T, Located> {
    let mut source = source.clone();
    for change in overrides {
        source = change.apply(&source, &read)?.0;
    }
    read(&source)
}

/// The parts of the key, and the position where the value begins.
fn keys(source: &Source) -> Result<(Vec<Key>, usize), Located> {
    let text = source.text();
    let mut keys = Vec::new();
    let mut part = String::new();
    let (mut start, mut quoted) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            // Quotes enclose a whole part; within a name they are a part of it.
            '"' if quoted || part.trim().is_empty() => quoted = !quoted,
            '.' | '=' if !quoted => {
                let name = part.trim();
                if name.is_empty() {
                    let message = "a part of the key is empty: write it as in `link.NAME.loss=1 %`";
                    return Err(Located::new(source, start..at + 1, message));
                }
                keys.push((name.to_owned(), start..at));
                part.clear();
                start = at + 1;
                if character == '=' {
                    return Ok((keys, start));
                }
            }
            other => part.push(other),
        }
    }
    let message = if quoted {
        "a quote is not closed"
    } else {
        "there is no `=`: write KEY=VALUE, as in `link.NAME.loss=1 %`"
    };
    Err(Located::new(source, 0..text.len(), message))
}

fn name_of(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}
