//! `midspan bugreport`: what a report of a fault needs, with masked addresses and names of
//! hosts.

use std::path::PathBuf;
use std::process::Command;

use midspan_proxy::command::{Request, ask, find_socket};
use miette::{IntoDiagnostic, WrapErr};

use super::Outcome;
use crate::arguments::CONFIGURATION;
use crate::masking::Mask;
use crate::observing_arguments::BugreportOptions;
use crate::printing;

/// Prints version, kernel, the state of the running Midspan, and what `midspan check` finds.
pub fn bugreport(options: &BugreportOptions) -> Outcome {
    let program = std::env::current_exe()
        .into_diagnostic()
        .wrap_err("cannot find this program")?;
    let run = |arguments: &[String]| {
        let text = match Command::new(&program).args(arguments).output() {
            Ok(output) => {
                let code = output.status.code().unwrap_or(-1);
                let [out, err] = [output.stdout, output.stderr]
                    .map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned());
                format!("exit status {code}\n{out}\n{err}")
            }
            Err(error) => format!("cannot be run: {error}"),
        };
        format!(
            "## midspan {}\n\n```\n{}\n```\n\n",
            arguments.join(" "),
            text.trim_end()
        )
    };
    let system = rustix::system::uname();
    let mut report = format!(
        "# Midspan {}\n\n{} {} {}\n\n",
        env!("CARGO_PKG_VERSION"),
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy(),
    );
    let (status, file) = status(options);
    report += &status;
    let file = file.unwrap_or_else(|| CONFIGURATION.into());
    report += &run(&[
        "check".to_owned(),
        "--config".to_owned(),
        file.display().to_string(),
    ]);
    let host = system.nodename().to_string_lossy();
    printing::text(Mask::with_host(&host).text(&report));
    printing::warning(
        "addresses and names of hosts are masked; names of interfaces, listeners and files are not: \
         read the report before you publish it",
    );
    Ok(true)
}

/// The state of the running Midspan, and its configuration file.
fn status(options: &BugreportOptions) -> (String, Option<PathBuf>) {
    let socket = find_socket(options.socket.as_deref(), options.config.as_deref());
    let answer = socket.and_then(|socket| ask(&socket, &Request::Status));
    let (text, file) = match answer {
        Ok(answer) => {
            let file = answer
                .status
                .as_ref()
                .map(|status| PathBuf::from(&status.configuration));
            let text = serde_json::to_string(&answer).map(|text| printing::indented(&text));
            (text.unwrap_or_else(|error| error.to_string()), file)
        }
        Err(error) => (error.to_string(), None),
    };
    let file = options.config.clone().or(file);
    (format!("## midspan status\n\n```\n{text}\n```\n\n"), file)
}
