//! The clients that an operator drains, with the sessions that are left of them.

use ipnet::IpNet;
use midspan_relay::observation::Figures;
use serde::{Deserialize, Serialize};

/// A prefix of clients that an operator drains at a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainedClients {
    /// Name of the listener.
    pub listener: String,
    /// The prefix.
    pub clients: String,
    /// Sessions of these clients at this listener that are left; `None` where they were not counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sessions: Option<u64>,
}

/// Counts the sessions that are left of each drained prefix of a listener.
pub(crate) fn count(sessions: &[Figures], drained: &[(String, IpNet)]) -> Vec<DrainedClients> {
    let row = |(listener, prefix): &(String, IpNet)| {
        let left = sessions.iter().filter(|session| {
            *session.listener == **listener && prefix.contains(&session.client.ip().to_canonical())
        });
        DrainedClients {
            listener: listener.clone(),
            clients: prefix.to_string(),
            sessions: Some(left.count() as u64),
        }
    };
    drained.iter().map(row).collect()
}
