//! Manual pages and completions, from the commands of a program and from its documents.
//!
//! [`pages`] makes one page for each command from its help texts. [`from_document`] makes a page of a
//! Markdown document, so that a manual page about a file format has the same tables as the document,
//! which tests compare with the code. [`completions`] makes the files for bash, zsh and fish.

mod document;

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

pub use document::from_document;

/// What all pages have in their header and footer.
#[derive(Debug, Clone)]
pub struct Edition {
    /// The program and its version, such as "midspan 0.2.0".
    pub source: String,
    /// The date of this version, such as "2026-01-31".
    pub date: String,
}

/// A manual page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The name of its file, such as "midspan-run.1".
    pub file: String,
    /// Its text, in the language of roff(7).
    pub text: String,
}

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", file.display())]
pub struct WriteError {
    /// The file.
    pub file: PathBuf,
    /// The reason.
    pub source: io::Error,
}

/// One page for the program and one for each command at any depth, except hidden ones.
///
/// # Errors
/// A page cannot be made, because a help text cannot be written to memory.
pub fn pages(program: &Command, edition: &Edition) -> io::Result<Vec<Page>> {
    let mut program = program.clone().disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    add_pages(&program, edition, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, edition: &Edition, pages: &mut Vec<Page>) -> io::Result<()> {
    let man = Man::new(command.clone())
        .date(&edition.date)
        .source(&edition.source)
        .manual("Midspan");
    let mut text = Vec::new();
    man.render(&mut text)?;
    pages.push(Page {
        file: man.get_filename(),
        text: without_idle_breaks(&String::from_utf8_lossy(&text)),
    });
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        add_pages(subcommand, edition, pages)?;
    }
    Ok(())
}

/// The page without line breaks next to an empty line, where they do nothing; `clap_mangen` writes them
/// around lists of values, and checkers of pages report them.
fn without_idle_breaks(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_idle = |number: usize| {
        let is_space = |number: usize| lines.get(number).is_some_and(|line| line.is_empty());
        lines[number] == ".br" && (is_space(number + 1) || number > 0 && is_space(number - 1))
    };
    (0..lines.len())
        .filter(|number| !is_idle(*number))
        .map(|number| format!("{}\n", lines[number]))
        .collect()
}

/// Writes the completions for bash, zsh and fish into `usr/share` below this folder, where Debian's
/// shells look for them.
///
/// # Errors
/// A file cannot be written.
pub fn completions(program: &Command, folder: &Path) -> Result<(), WriteError> {
    let name = program.get_name().to_owned();
    for (shell, file) in [
        (Shell::Bash, format!("bash-completion/completions/{name}")),
        (Shell::Zsh, format!("zsh/vendor-completions/_{name}")),
        (
            Shell::Fish,
            format!("fish/vendor_completions.d/{name}.fish"),
        ),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut program.clone(), &name, &mut text);
        write(&folder.join("usr/share").join(file), &text)?;
    }
    Ok(())
}

/// Writes a page into the folder of its section below `usr/share/man` in this folder.
///
/// # Errors
/// The file cannot be written.
pub fn write_page(page: &Page, folder: &Path) -> Result<(), WriteError> {
    let section = page.file.rsplit('.').next().unwrap_or_default();
    let file = folder
        .join("usr/share/man")
        .join(format!("man{section}"))
        .join(&page.file);
    write(&file, page.text.as_bytes())
}

fn write(file: &Path, text: &[u8]) -> Result<(), WriteError> {
    let failed = |source| WriteError {
        file: file.to_owned(),
        source,
    };
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(file, text).map_err(failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn program() -> Command {
        let below = Command::new("verify").about("Measure the links");
        let lab = Command::new("lab").about("Run flows").subcommand(below);
        let hidden = Command::new("relay").hide(true);
        Command::new("midspan")
            .version("1.2.3")
            .subcommands([lab, hidden])
    }

    fn edition() -> Edition {
        Edition {
            source: "midspan 1.2.3".to_owned(),
            date: "2026-01-31".to_owned(),
        }
    }

    #[test]
    fn every_command_that_is_shown_has_a_page() {
        let pages = pages(&program(), &edition()).unwrap();
        let files: Vec<&str> = pages.iter().map(|page| page.file.as_str()).collect();
        assert_eq!(
            files,
            ["midspan.1", "midspan-lab.1", "midspan-lab-verify.1"]
        );
        let last = &pages[2].text;
        assert!(last.contains("Measure the links"), "{last}");
        assert!(last.contains("midspan lab verify"), "{last}");
        assert!(
            last.contains("2026\\-01\\-31") || last.contains("2026-01-31"),
            "{last}"
        );
        assert!(!pages[0].text.contains("relay"), "{}", pages[0].text);
    }

    #[test]
    fn line_breaks_next_to_an_empty_line_are_left_out() {
        let text = ".TP\nname\n.br\n\n.br\nvalues\n.br\nend\n";
        let kept = ".TP\nname\n\nvalues\n.br\nend\n";
        assert_eq!(without_idle_breaks(text), kept);
    }

    #[test]
    fn pages_and_completions_are_where_debian_expects_them() {
        let folder = tempfile::tempdir().unwrap();
        for page in pages(&program(), &edition()).unwrap() {
            write_page(&page, folder.path()).unwrap();
        }
        completions(&program(), folder.path()).unwrap();
        for file in [
            "man/man1/midspan-lab-verify.1",
            "bash-completion/completions/midspan",
            "zsh/vendor-completions/_midspan",
            "fish/vendor_completions.d/midspan.fish",
        ] {
            let text = fs::read_to_string(folder.path().join("usr/share").join(file)).unwrap();
            assert!(text.contains("verify"), "{file}");
        }
    }
}
