//! `midspan lab shell PATH`: a prompt or a command inside a host of a path.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::Path as FilePath;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use midspan_lab::Case;
use midspan_lab::shell::{Inside, Surroundings, shell};
use midspan_linux::namespace;
use midspan_path::{NodeIndex, Path};
use miette::{Context, IntoDiagnostic, miette};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::super::Outcome;
use super::super::choices::overrides;
use crate::lab_arguments::ShellOptions;
use crate::printing;

/// Limit of a transfer of a case, which a prompt does not have.
const NO_LIMIT: std::time::Duration = std::time::Duration::MAX;

/// Runs the prompt or the command. Ends this process with its exit status.
pub fn run(options: &ShellOptions) -> Outcome {
    let path = Path::load_with(&options.path, &overrides(&options.set)?)?;
    if let Some(missing) = options.against.missing() {
        return Err(miette!("{missing}"));
    }
    let host = host(&path, options.host.as_deref())?;
    let cases = Case::of_kinds(&[options.against], &path, NO_LIMIT).into_diagnostic()?;
    let case = cases.first().ok_or_else(|| miette!("there is no case"))?;
    let inside = inside(&path, host, &options.command);
    // The lab enters its own namespaces, which must happen before any thread starts.
    namespace::isolate().into_diagnostic()?;
    let stop = stop()?;
    let has_prompt = options.command.is_empty();
    let status = shell(case, &inside, &stop, &mut |surroundings| {
        if has_prompt {
            introduce(&path, case, host, surroundings);
        }
    });
    let status = status.into_diagnostic()?;
    printing::finish().into_diagnostic()?;
    std::process::exit(code(status));
}

/// The host of this name, or the client of the first flow.
fn host(path: &Path, name: Option<&str>) -> miette::Result<NodeIndex> {
    let hosts = || path.hosts().map(|(index, _)| index);
    let Some(name) = name else {
        let client = path.flows.first().map(|flow| flow.from);
        return client
            .or_else(|| hosts().next())
            .ok_or_else(|| miette!("path \"{}\" has no host", path.name));
    };
    let found = hosts().find(|index| path.node(*index).name == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = hosts()
            .map(|index| path.node(index).name.as_str())
            .collect();
        let near = midspan_document::nearest(name, known.iter().copied());
        let hint = near.map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
        miette!(
            "path \"{}\" has no host \"{name}\"{hint}; its hosts are {}",
            path.name,
            known.join(", ")
        )
    })
}

/// The command, or the user's shell with a prompt that names the path and the host.
fn inside(path: &Path, host: NodeIndex, command: &[OsString]) -> Inside {
    if !command.is_empty() {
        return Inside {
            host,
            command: command.to_vec(),
            variables: Vec::new(),
        };
    }
    let shell = std::env::var_os("SHELL").filter(|shell| FilePath::new(shell).is_file());
    let shell = shell.unwrap_or_else(|| "/bin/sh".into());
    let mark = format!("[{} {}]", plain(&path.name), path.node(host).name);
    let is_bash = FilePath::new(&shell).file_name() == Some(OsStr::new("bash"));
    let variable: (OsString, OsString) = if is_bash {
        // The files that bash reads at its start set the prompt; this command runs after them.
        let change = format!("PS1='{mark} '\"$PS1\"; unset PROMPT_COMMAND");
        ("PROMPT_COMMAND".into(), change.into())
    } else {
        ("PS1".into(), format!("{mark} $ ").into())
    };
    Inside {
        host,
        command: vec![shell],
        variables: vec![variable],
    }
}

/// The name of a path without what has a meaning to a shell.
fn plain(name: &str) -> String {
    let is_plain = |char: &char| char.is_ascii_alphanumeric() || "-_.".contains(*char);
    name.chars().filter(is_plain).collect()
}

/// A flag that is set when this process is asked to end. It then ends the command and removes everything.
fn stop() -> miette::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .into_diagnostic()
            .wrap_err("cannot catch signals")?;
    }
    Ok(stop)
}

/// Prints what is there, before the prompt.
fn introduce(path: &Path, case: &Case, host: NodeIndex, surroundings: &Surroundings) {
    let name = &path.node(host).name;
    printing::note(format_args!(
        "host \"{name}\" of the path \"{}\", case {}; exit ends it",
        path.name, case.name
    ));
    for (node, address) in &surroundings.nodes {
        printing::note(format_args!("  {node:<16} {address}"));
    }
    if let Some(file) = &surroundings.file {
        printing::note(format_args!("  MIDSPAN_URL      {file}"));
    }
}

/// The exit status, as shells define it: 128 and the signal's number if a signal ended the command.
fn code(status: ExitStatus) -> i32 {
    let by_signal = || status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or_else(by_signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_client_or_the_one_that_is_named() {
        let path = Path::load("geo").unwrap();
        let name = |wanted| host(&path, wanted).map(|index| path.node(index).name.clone());
        assert_eq!(name(None).unwrap(), "client");
        assert_eq!(name(Some("server")).unwrap(), "server");
        let error = name(Some("sever")).unwrap_err().to_string();
        assert!(
            error.contains("did you mean \"server\"") && error.contains("client, server"),
            "{error}"
        );
        // A proxy is no host.
        assert!(name(Some("gateway")).is_err());
    }

    #[test]
    fn a_name_in_the_prompt_is_no_command() {
        assert_eq!(plain("a'; $(reboot) `x`"), "arebootx");
    }

    #[test]
    fn an_exit_status_is_that_of_a_shell() {
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
    }
}
