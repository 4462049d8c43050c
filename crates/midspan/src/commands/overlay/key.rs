//! `midspan overlay key`: the key of a node.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use midspan_policy::overlay::{NodeKey, NodeSecret};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::Outcome;
use crate::overlay_arguments::KeyOptions;
use crate::printing;

/// Most bytes of the file.
const LIMIT: u64 = 1024;

/// Prints the line for the list of members; before, writes a new private key if that is wanted.
pub(super) fn key(options: &KeyOptions) -> Outcome {
    let file = &options.file;
    let secret = match options.generate {
        true => generate(file),
        false => read(file),
    };
    let secret = secret.wrap_err_with(|| format!("{}", file.display()))?;
    let public = midspan_tls::public_key(secret.bytes()).into_diagnostic()?;
    printing::line(format!("key = \"{}\"", NodeKey::new(public)));
    Ok(true)
}

/// Writes a new key. An existing file stays as it is.
fn generate(path: &Path) -> miette::Result<NodeSecret> {
    let secret = NodeSecret::new(midspan_tls::new_secret().into_diagnostic()?);
    let mut options = OpenOptions::new();
    let opened = (options.write(true).create_new(true).mode(0o600)).open(path);
    let mut file = match opened {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(miette!(
                help = "without --generate, the line of its key is printed",
                "the file exists already, and is left as it is"
            ));
        }
        opened => opened.into_diagnostic()?,
    };
    let text = format!("{}\n", secret.to_text());
    file.write_all(text.as_bytes()).into_diagnostic()?;
    file.sync_all().into_diagnostic()?;
    Ok(secret)
}

fn read(path: &Path) -> miette::Result<NodeSecret> {
    let mut text = String::new();
    let file = File::open(path).into_diagnostic()?;
    file.take(LIMIT)
        .read_to_string(&mut text)
        .into_diagnostic()?;
    text.trim().parse().into_diagnostic()
}
