//! The circles of all crates compared with the list of allowed arrows.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::allowed::{Allowed, Entry, entries_of};
use crate::circles::{Arrow, circles};
use crate::error::Error;
use crate::load::load;
use crate::targets::Target;

/// What the check found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// All circles.
    pub circles: Vec<FoundCircle>,
    /// Allowed arrows that lie on no circle any more, as in the list.
    pub stale: Vec<String>,
}

/// A circle of one crate.
#[derive(Debug, Serialize)]
pub struct FoundCircle {
    /// The crate, as in `midspan-proxy` or `midspan-proxy/test/transparent`.
    pub target: String,
    /// Whether the list allows each of its arrows.
    pub allowed: bool,
    /// The uses in their order.
    pub arrows: Vec<Arrow>,
}

/// Checks all `targets`. Files are named relative to `base` where they lie below it.
///
/// # Errors
///
/// A source file cannot be read or is not valid Rust.
pub fn check(targets: &[Target], allowed: &Allowed, base: &Path) -> Result<Report, Error> {
    let mut found = Vec::new();
    let mut stale: BTreeSet<&Entry> = allowed.entries().collect();
    for target in targets {
        for mut circle in circles(&load(&target.root)?) {
            let mut all_allowed = true;
            for entry in entries_of(&target.name, &circle) {
                stale.remove(&entry);
                all_allowed &= allowed.entries().any(|allowed| *allowed == entry);
            }
            for arrow in &mut circle.arrows {
                if let Ok(file) = arrow.file.strip_prefix(base) {
                    arrow.file = file.to_owned();
                }
            }
            found.push(FoundCircle {
                target: target.name.clone(),
                allowed: all_allowed,
                arrows: circle.arrows,
            });
        }
    }
    Ok(Report {
        circles: found,
        stale: stale.into_iter().map(ToString::to_string).collect(),
    })
}

impl Report {
    /// Whether there is no circle but allowed ones, and no allowed arrow without a circle.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.stale.is_empty() && self.circles.iter().all(|circle| circle.allowed)
    }
}

impl fmt::Display for FoundCircle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.target)?;
        for arrow in &self.arrows {
            write!(formatter, "{} -> ", arrow.from)?;
        }
        let first = self.arrows.first().map_or("", |arrow| &arrow.from);
        write!(formatter, "{first}")?;
        if self.allowed {
            write!(formatter, " (allowed)")?;
        }
        writeln!(formatter)?;
        for Arrow {
            from,
            to,
            file,
            line,
            path,
        } in &self.arrows
        {
            writeln!(
                formatter,
                "    {from} -> {to}  {}:{line}: {path}",
                file.display()
            )?;
        }
        Ok(())
    }
}
