//! Turns the file as written into a [`Path`]: names become indices, and every rule is checked.

mod cables;
mod connections;
mod flows;
mod limits;
mod links;
mod nodes;
mod replay;
mod traffic;

pub use limits::{
    DELAY_LIMIT, DURATION_LIMIT, FLOW_LIMIT, LINK_LIMIT, NODE_LIMIT, SCHEDULE_LIMIT, SIZE_LIMIT,
};

use midspan_document::{Located, Source, Spanned};

use crate::Path;
use crate::file::File;
use nodes::NodeNames;

/// Checks a file and resolves its names.
///
/// # Errors
/// The first broken rule, with its place.
pub fn resolve(source: &Source, name: &str, file: &File) -> Result<Path, Located> {
    let check = Check { source };
    let nodes = nodes::resolve(&check, file)?;
    let names = NodeNames::new(&check, &nodes)?;
    let links = links::resolve(&check, &file.link, &names)?;
    connections::check(&check, &nodes, &file.link, &links)?;
    let cables = cables::resolve(&check, &file.cable, &links)?;
    let flows = flows::resolve(&check, file, &nodes, &names)?;
    Ok(Path {
        name: name.to_owned(),
        description: check.description(&file.description)?,
        seed: file.seed.unwrap_or(1),
        family: file.family,
        nodes: nodes.into_iter().map(|placed| placed.node).collect(),
        links,
        flows,
        traffic: traffic::resolve(&check, &file.traffic, &names)?,
        cables,
        order: file.run.flows,
    })
}

/// Creates errors with places in the file.
struct Check<'a> {
    source: &'a Source,
}

impl Check<'_> {
    fn error<T>(&self, place: &Spanned<T>, message: impl std::fmt::Display) -> Located {
        Located::new(self.source, place.span(), message)
    }

    fn taken(&self, name: &Spanned<String>, kind: &str) -> Located {
        let message = format!("another {kind} is called `{}` already", name.get_ref());
        self.error(name, message)
    }
}
