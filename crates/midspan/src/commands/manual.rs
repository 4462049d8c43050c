//! `midspan manual`: writes the manual pages and completions of both packages.

use std::fs;
use std::path::Path;

use clap::{CommandFactory, Subcommand};
use midspan_manual::{Edition, completions, from_document, pages, write_page};
use miette::{Context, IntoDiagnostic};

use super::Outcome;
use crate::arguments::Arguments;
use crate::lab_arguments::{LabPackage, ManualOptions};

/// The package of a gateway.
const GATEWAY: &str = "midspan";

/// The package of the commands that a gateway does not need.
const LAB: &str = "midspan-lab";

/// Writes a folder for each package.
pub fn manual(options: &ManualOptions) -> Outcome {
    let program = Arguments::command();
    let edition = Edition {
        source: format!("midspan {}", env!("CARGO_PKG_VERSION")),
        date: options.date.clone(),
    };
    let folder_of = |package: &str| options.output_directory.join(package);
    for page in pages(&program, &edition).into_diagnostic()? {
        write_page(&page, &folder_of(package_of(&page.file))).into_diagnostic()?;
    }
    for (name, about, document, package) in [
        (
            "midspan.toml",
            "the configuration of midspan run",
            "configuration.md",
            GATEWAY,
        ),
        (
            "midspan-path",
            "a path of links, for midspan lab, sim and plan",
            "path-file.md",
            LAB,
        ),
    ] {
        let text = read(&options.documents.join(document))?;
        let page = from_document(name, about, &text, &edition);
        write_page(&page, &folder_of(package)).into_diagnostic()?;
    }
    completions(&program, &folder_of(GATEWAY)).into_diagnostic()?;
    Ok(true)
}

/// The package of a page, by the first word after `midspan-` in its file name.
fn package_of(file: &str) -> &'static str {
    let program = LabPackage::augment_subcommands(clap::Command::new("midspan"));
    let command = file
        .split_once('-')
        .and_then(|(_, rest)| rest.split(['-', '.']).next());
    match command.is_some_and(|name| program.find_subcommand(name).is_some()) {
        true => LAB,
        false => GATEWAY,
    }
}

fn read(file: &Path) -> miette::Result<String> {
    fs::read_to_string(file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_in_the_package_of_its_command() {
        for (file, package) in [
            ("midspan.1", GATEWAY),
            ("midspan-run.1", GATEWAY),
            ("midspan-thin.1", GATEWAY),
            ("midspan-lab.1", LAB),
            ("midspan-lab-verify.1", LAB),
            ("midspan-plan-place.1", LAB),
        ] {
            assert_eq!(package_of(file), package, "{file}");
        }
    }
}
