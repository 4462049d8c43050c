//! One store of the rows of several.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::folder::{self, write_new};
use super::{Line, StoreError, failed, is_readable, read_file};

/// How many rows of several stores were merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merged {
    /// Rows of the merged store.
    pub rows: usize,
    /// Rows left out, because an equal row is in the merged store.
    pub equal: usize,
    /// Rows left out, because a later store has another row of the same run.
    pub different: usize,
    /// Lines that are no row: cut short, damaged, or of a version without stores.
    pub ignored: usize,
}

/// Writes the rows of `stores`, of all kinds and versions, to one new file, in the order of their
/// kinds and keys. If several stores have different rows of the same run, the row of the last of
/// these stores is written. Otherwise the file does not depend on the order of the stores or of the
/// runs in them.
///
/// # Errors
/// A store cannot be read, is too large or is a file without stored runs; or the new file exists or
/// cannot be written.
pub fn merge(stores: &[PathBuf], new: &Path) -> Result<Merged, StoreError> {
    if new.exists() {
        return Err(StoreError::Exists {
            file: new.to_owned(),
        });
    }
    let (mut rows, mut merged) = (BTreeMap::new(), Merged::default());
    for store in stores {
        for line in lines(store)? {
            let Ok(Line { kind, key, row }) = serde_json::from_slice::<Line<Value>>(&line) else {
                merged.ignored += usize::from(!line.is_empty());
                continue;
            };
            match rows.entry((kind, key)) {
                Entry::Vacant(entry) => {
                    merged.rows += 1;
                    entry.insert(row);
                }
                Entry::Occupied(entry) if *entry.get() == row => merged.equal += 1,
                Entry::Occupied(mut entry) => {
                    merged.different += 1;
                    entry.insert(row);
                }
            }
        }
    }
    let mut content = String::new();
    for ((kind, key), row) in rows {
        let line = Line { kind, key, row };
        content.push_str(&serde_json::to_string(&line).map_err(StoreError::Row)?);
        content.push('\n');
    }
    write_new(new, content.as_bytes())?;
    Ok(merged)
}

/// The lines of a file, or the rows of a folder.
fn lines(store: &Path) -> Result<Vec<Vec<u8>>, StoreError> {
    if store.is_dir() {
        return folder::lines(store);
    }
    let file = File::open(store).map_err(failed("open", store))?;
    let content = read_file(store, &file)?;
    if !is_readable(&content, None) {
        return Err(StoreError::Foreign {
            file: store.to_owned(),
        });
    }
    let lines = content.split(|byte| *byte == b'\n');
    Ok(lines.map(<[u8]>::to_vec).collect())
}
