//! `midspan takeover`: this gateway has taken over from another one. Packets of connections that it does not know are
//! answered by a reset for a while.
//!
//! A program such as keepalived runs this command. It needs no running Midspan, because a gateway may take over while
//! its Midspan starts.

use std::time::Duration;

use midspan_gateway::interception::InterceptionError;
use midspan_gateway::takeover;
use midspan_linux::capability::{self, Capability};
use midspan_units::TimeSpan;
use serde::Serialize;

use crate::Error;
use crate::configuration::Configuration;

/// The result of a takeover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Takeover {
    /// The interfaces where clients are.
    pub interfaces: Vec<String>,
    /// How long packets of unknown connections are answered by a reset from now on; 0 after the end.
    pub milliseconds: u64,
    /// What the operator should change.
    pub notes: Vec<String>,
}

/// Whether connection tracking picks up connections in their middle. Then a connection whose packet arrives before the
/// takeover is known afterwards.
const LOOSE: &str = "net/netfilter/nf_conntrack_tcp_loose";

/// Answers packets of unknown connections from and to the clients of the transparent listeners by a reset for this
/// time; `None` ends that.
///
/// # Errors
/// `interception.takeover_reset` is not set, no listener is transparent, `CAP_NET_ADMIN` is missing, or the rules cannot
/// be set.
pub fn take_over(configuration: &Configuration, time: Option<TimeSpan>) -> Result<Takeover, Error> {
    let settings = &configuration.interception;
    if !settings.takeover_reset {
        return Err(Error::NoTakeoverReset);
    }
    let mut interfaces: Vec<String> = (configuration.transparent())
        .flat_map(|(_, listener)| listener.interfaces.iter().cloned())
        .collect();
    interfaces.sort_unstable();
    interfaces.dedup();
    if interfaces.is_empty() {
        return Err(Error::NothingToTakeOver);
    }
    if !capability::is_held(Capability::CAP_NET_ADMIN)? {
        return Err(Error::TakeoverNotPermitted);
    }
    let result = match time {
        Some(time) => {
            let names = interfaces.iter().map(String::as_str);
            takeover::begin(&settings.numbers, names, time.into())
        }
        None => takeover::end(&settings.numbers),
    };
    result.map_err(InterceptionError::from)?;
    let loose = std::fs::read_to_string(format!("/proc/sys/{LOOSE}"));
    let is_loose = loose.is_ok_and(|value| value.trim() != "0");
    let note = format!(
        "{} is not 0: a session whose packets arrive before this command is not reset",
        LOOSE.replace('/', ".")
    );
    Ok(Takeover {
        interfaces,
        milliseconds: time.map_or(0, |time| {
            u64::try_from(Duration::from(time).as_millis()).unwrap_or(u64::MAX)
        }),
        notes: (is_loose && time.is_some())
            .then_some(note)
            .into_iter()
            .collect(),
    })
}
