//! A network: one path file that simulator and lab read.

use midspan_document::{Override, Source, overrides};
use midspan_path::{Error, Path};

/// The path file of a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network {
    name: &'static str,
    text: &'static str,
}

impl Network {
    /// A network called `name`, with the text of its path file.
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text }
    }

    /// The path with `changes`, each in the language of `--set`: `link.narrow.queue=20 packets`.
    ///
    /// # Errors
    /// The text is not a path file, or a change has a wrong key or value.
    pub(crate) fn path(&self, changes: &[String]) -> Result<Path, Error> {
        let source = Source::new(self.name, self.text);
        Ok(overrides::read_with(&source, &parse(changes)?, Path::read)?)
    }
}

/// The built-in path of this name with `changes`, each in the language of `--set`.
///
/// # Errors
/// There is no such path, or a change has a wrong key or value.
pub(crate) fn built_in(name: &str, changes: &[String]) -> Result<Path, Error> {
    Path::load_with(name, &parse(changes)?)
}

fn parse(changes: &[String]) -> Result<Vec<Override>, Error> {
    let of = |change: &String| Override::parse("a paper's condition", change);
    let parsed: Result<Vec<_>, _> = changes.iter().map(of).collect();
    Ok(parsed?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_LINK: Network = Network::new(
        "one-link",
        "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nname = \"wire\"\n\
         between = [\"a\", \"b\"]\n",
    );

    #[test]
    fn a_change_is_made_and_a_wrong_one_is_named() {
        let path = ONE_LINK
            .path(&["link.wire.delay=30 ms".to_owned()])
            .unwrap();
        assert_eq!(path.name, "one-link");
        assert_eq!(path.links[0].up.state.delay.to_string(), "30 ms");
        let error = ONE_LINK.path(&["link.wires.delay=30 ms".to_owned()]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("there is none called \"wires\""), "{error}");
    }

    #[test]
    fn each_file_is_a_path_that_the_simulator_runs() {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut count = 0;
        for folder in std::fs::read_dir(source).unwrap() {
            let folder = folder.unwrap().path();
            for file in std::fs::read_dir(&folder).into_iter().flatten() {
                let file = file.unwrap().path();
                // Part of a file: two terminals that are added to the testbed.
                let is_part = file.ends_with("tam/more-terminals.toml");
                if is_part || file.extension().is_none_or(|name| name != "toml") {
                    continue;
                }
                let path = Path::load(file.to_str().unwrap()).unwrap();
                midspan_sim::Scenario::from_path(&path, true).unwrap();
                count += 1;
            }
        }
        assert_eq!(count, 11);
    }
}
