//! One value at a dotted key of a path file: `link.satellite.loss=1 %`.

use std::str::FromStr;

use midspan_document::{Source, nearest};
use midspan_path::Path;
use toml::{Table, Value};

use crate::Error;

/// A key and its value.
///
/// The parts of a key are separated by dots. Tables in an array, such as links, are found by their
/// name: `link.satellite.up.rate`, `flow.1 MB.size`, `host.client.receive_buffer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The dotted key.
    pub key: String,
    /// The value as written in the file, without quotes.
    pub value: String,
}

impl FromStr for Setting {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok(Self {
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
            }),
            _ => Err(Error::Written {
                given: text.to_owned(),
                problem: "is no setting: write KEY=VALUE, as in \"link.satellite.loss=1 %\"".into(),
            }),
        }
    }
}

/// The path that `source` describes, changed by `settings`.
///
/// # Errors
/// A key does not exist, or a value is not valid for its key.
pub fn apply(source: &Source, settings: &[Setting]) -> Result<Path, Error> {
    // An error that exists without any setting is reported at its own place.
    let path = Path::read(source)?;
    if settings.is_empty() {
        return Ok(path);
    }
    let mut table: Table = toml::from_str(source.text()).map_err(|error| Error::Written {
        given: source.name().to_owned(),
        problem: error.message().to_owned(),
    })?;
    let mut name = source.name().to_owned();
    for setting in settings {
        name = format!("{name}, {} = {}", setting.key, setting.value);
        table = with(&table, setting, &name)?;
    }
    let mut changed = read(&table, &name)?;
    changed.name = path.name;
    Ok(changed)
}

/// `table` with one additional value. Only the file's reader can decide whether the value is text
/// or a number: the first one that it accepts is used.
fn with(table: &Table, setting: &Setting, name: &str) -> Result<Table, Error> {
    let text = Value::String(setting.value.clone());
    let number = setting.value.parse().ok().map(Value::Integer);
    let mut refused = None;
    for value in [Some(text), number].into_iter().flatten() {
        let mut changed = table.clone();
        insert(&mut changed, &setting.key, &setting.key, value)?;
        match read(&changed, name) {
            Ok(_) => return Ok(changed),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| Error::Written {
        given: setting.value.clone(),
        problem: "is no value".into(),
    }))
}

fn read(table: &Table, name: &str) -> Result<Path, Error> {
    let text = toml::to_string(table).map_err(|error| Error::Written {
        given: name.to_owned(),
        problem: error.to_string(),
    })?;
    Ok(Path::read(&Source::new(name, text))?)
}

/// Puts `value` into `table` at `rest` of `key`.
fn insert(table: &mut Table, key: &str, rest: &str, value: Value) -> Result<(), Error> {
    let Some((part, rest)) = rest.split_once('.') else {
        table.insert(rest.to_owned(), value);
        return Ok(());
    };
    match table.get_mut(part) {
        Some(Value::Table(inner)) => insert(inner, key, rest, value),
        Some(Value::Array(tables)) => {
            let (inner, rest) = named(tables, key, part, rest)?;
            insert(inner, key, rest, value)
        }
        // `up`, `down`, `client_leg`, …: a table that the file does not contain.
        None if key != format!("{part}.{rest}") => {
            let mut inner = Table::new();
            insert(&mut inner, key, rest, value)?;
            table.insert(part.to_owned(), Value::Table(inner));
            Ok(())
        }
        _ => {
            let known: Vec<&str> = table.keys().map(String::as_str).collect();
            Err(Error::NoSuchPlace {
                key: key.to_owned(),
                part: part.to_owned(),
                place: "in the path file".into(),
                near: nearest(part, known).map(str::to_owned),
            })
        }
    }
}

/// The table of an array whose name is the beginning of `rest`, and the text after the name. (Names
/// may contain dots.)
fn named<'t, 'r>(
    tables: &'t mut [Value],
    key: &str,
    array: &str,
    rest: &'r str,
) -> Result<(&'t mut Table, &'r str), Error> {
    let name_of = |value: &Value| Some(value.as_table()?.get("name")?.as_str()?.to_owned());
    let names: Vec<String> = tables.iter().filter_map(name_of).collect();
    let follows = |name: &String| rest.strip_prefix(name.as_str())?.strip_prefix('.');
    let found = names
        .iter()
        .filter(|name| follows(name).is_some())
        .max_by_key(|name| name.len());
    let Some(found) = found else {
        let part = rest.split('.').next().unwrap_or(rest);
        return Err(Error::NoSuchPlace {
            key: key.to_owned(),
            part: part.to_owned(),
            place: format!("among the {array}s, which are {}", names.join(", ")),
            near: nearest(part, names.iter().map(String::as_str)).map(str::to_owned),
        });
    };
    let rest = follows(found).unwrap_or(rest);
    tables
        .iter_mut()
        .find(|table| name_of(table).as_ref() == Some(found))
        .and_then(Value::as_table_mut)
        .map(|table| (table, rest))
        .ok_or_else(|| Error::Written {
            given: key.to_owned(),
            problem: "leads to no table".into(),
        })
}
