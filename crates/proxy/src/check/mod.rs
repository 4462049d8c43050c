//! `midspan check`: whether a configuration can run on this machine, and what is missing.
//!
//! The check changes nothing permanently. A child process in a network namespace of its own tests
//! the features of the kernel. For a fraction of a second, the check sets the rules that `midspan
//! run` would set, without intercepting connections, to test whether the host's firewall permits
//! intercepted connections.

mod conflicts;
mod firewall;
mod firewall_cache;
mod kernel;
mod limits;
mod listeners;
mod load;
mod machine;
mod marks;
mod rights;
mod sysctls;
mod tracking;

use std::path::PathBuf;

use midspan_gateway::interception::survey;
use midspan_linux::owner::Owner;
use serde::Serialize;

use crate::Error;
use crate::configuration::Configuration;

pub use kernel::kernel_main;
pub use limits::Capacity;
pub use listeners::interfaces;
pub use load::{Carried, Expected, Limit};

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All is well.
    Ok,
    /// It works, but not as well as it could; or the check could not find out.
    Warning,
    /// It does not work without this.
    Missing,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject, as in `"sysctl net.ipv4.ip_forward"`.
    pub check: String,
    /// The result.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do: a command, a rule, or a key of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            state: State::Ok,
            found: found.into(),
            mend: None,
        }
    }

    fn warning(
        check: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            check: check.into(),
            state: State::Warning,
            found: found.into(),
            mend: Some(mend.into()),
        }
    }

    fn missing(
        check: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            state: State::Missing,
            ..Self::warning(check, found, mend)
        }
    }
}

/// All findings, in a fixed order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// One finding for each check.
    pub checks: Vec<Finding>,
    /// The capacity of the proxy on this machine.
    pub capacity: Capacity,
    /// The load that this machine carries.
    pub carried: Carried,
}

impl CheckReport {
    /// Whether this configuration has all that it needs.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.checks
            .iter()
            .all(|finding| finding.state != State::Missing)
    }
}

/// Options of `midspan check`.
#[derive(Debug)]
pub struct CheckOptions {
    /// The configuration file.
    pub configuration: PathBuf,
    /// Arguments with which this program, run again, calls [`kernel_main`].
    pub kernel_arguments: Vec<String>,
    /// The expected load, which is compared with the load that the machine carries.
    pub expected: Expected,
}

/// The data that the checks share.
struct Context<'a> {
    configuration: &'a Configuration,
    /// A running Midspan with the same rules and routes; its process, if it is visible.
    running: Option<Option<Owner>>,
    is_transparent: bool,
}

/// Checks a file and this machine.
///
/// # Errors
/// The file cannot be read, or is wrong at one place.
pub fn check(options: &CheckOptions) -> Result<CheckReport, Error> {
    let mut configuration = Configuration::load(&options.configuration)?;
    let left_out = crate::helper::leave_out_missing(&mut configuration)?;
    crate::helper::check_addresses(&configuration)?;
    let is_transparent = configuration.transparent().next().is_some();
    let running = match is_transparent {
        true => survey::running(&configuration.interception.numbers)?,
        false => None,
    };
    let context = Context {
        configuration: &configuration,
        running,
        is_transparent,
    };
    let file = options.configuration.display();
    let listeners = match configuration.listeners.len() {
        1 => "1 listener".to_owned(),
        count => format!("{count} listeners"),
    };
    let mut checks = vec![Finding::ok("file", format!("{file}, {listeners}"))];
    let mend = "families = [\"ipv4\"] for these listeners, or IPv6 for this machine";
    let left_out = left_out.into_iter();
    checks.extend(left_out.map(|note| Finding::warning("IPv6", note, mend)));
    checks.extend(machine::findings(&context));
    checks.extend(rights::findings(&context, &options.configuration));
    checks.extend(kernel::findings(&context, &options.kernel_arguments));
    checks.extend(limits::findings(&context));
    checks.extend(sysctls::findings(&context));
    checks.extend(listeners::findings(&context));
    if is_transparent {
        checks.extend(tracking::findings(&context));
        checks.extend(conflicts::findings(&context));
        checks.extend(marks::findings(&context));
        checks.extend(firewall::findings(&context)?);
        checks.extend(firewall_cache::finding(&context));
    }
    let (rows, carried) = load::findings(&context, options.expected);
    checks.extend(rows);
    Ok(CheckReport {
        checks,
        capacity: Capacity::of(&configuration),
        carried,
    })
}
