//! How a session ended.

use midspan_policy::Leg;
use rustix::io::Errno;

/// How a session ended. If both legs failed, the first failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Both directions ended with a FIN.
    Closed,
    /// The client reset its leg.
    ResetByClient,
    /// The server reset its leg.
    ResetByServer,
    /// The client no longer answered.
    ClientTimedOut,
    /// The server no longer answered.
    ServerTimedOut,
    /// The network reported that the client is unreachable.
    ClientUnreachable,
    /// The network reported that the server is unreachable.
    ServerUnreachable,
    /// The server refused the connection.
    Refused,
    /// The server did not accept the connection in time.
    ConnectTimedOut,
    /// The relay ended before the session did.
    Drained,
    /// Nothing had moved for `idle_timeout`.
    IdleTimedOut,
    /// One direction had ended and nothing moved for `half_closed_timeout`.
    HalfClosedTimedOut,
    /// An operator has ended it (`midspan kick`).
    Kicked,
    /// The session was idle and its client had most sessions, so it was evicted for a new one.
    MadeWay,
    /// The relay of a new program ended when it had perhaps begun to handle the session, so that it is unknown which
    /// bytes have been passed on.
    LostInUpgrade,
}

impl Ending {
    /// All endings; the position of each is [`Ending::index`].
    pub const ALL: [Self; 15] = [
        Self::Closed,
        Self::ResetByClient,
        Self::ResetByServer,
        Self::ClientTimedOut,
        Self::ServerTimedOut,
        Self::ClientUnreachable,
        Self::ServerUnreachable,
        Self::Refused,
        Self::ConnectTimedOut,
        Self::Drained,
        Self::IdleTimedOut,
        Self::HalfClosedTimedOut,
        Self::Kicked,
        Self::MadeWay,
        Self::LostInUpgrade,
    ];

    /// A number below `ALL.len()`.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ResetByClient => "reset_by_client",
            Self::ResetByServer => "reset_by_server",
            Self::ClientTimedOut => "client_timed_out",
            Self::ServerTimedOut => "server_timed_out",
            Self::ClientUnreachable => "client_unreachable",
            Self::ServerUnreachable => "server_unreachable",
            Self::Refused => "refused",
            Self::ConnectTimedOut => "connect_timed_out",
            Self::Drained => "drained",
            Self::IdleTimedOut => "idle_timed_out",
            Self::HalfClosedTimedOut => "half_closed_timed_out",
            Self::Kicked => "kicked",
            Self::MadeWay => "made_way",
            Self::LostInUpgrade => "lost_in_upgrade",
        }
    }

    /// The ending with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ending| ending.name() == name)
    }

    /// The ending after a failure of a connected leg.
    pub(crate) const fn of_failure(leg: Leg, error: Errno) -> Self {
        match (leg, error) {
            (Leg::Client, Errno::TIMEDOUT) => Self::ClientTimedOut,
            (Leg::Server, Errno::TIMEDOUT) => Self::ServerTimedOut,
            (Leg::Client, Errno::HOSTUNREACH | Errno::NETUNREACH) => Self::ClientUnreachable,
            (Leg::Server, Errno::HOSTUNREACH | Errno::NETUNREACH) => Self::ServerUnreachable,
            (Leg::Client, _) => Self::ResetByClient,
            (Leg::Server, _) => Self::ResetByServer,
        }
    }

    /// The ending after a failed connection to the server.
    pub(crate) const fn of_connecting(error: Errno) -> Self {
        match error {
            Errno::TIMEDOUT => Self::ConnectTimedOut,
            Errno::CONNREFUSED => Self::Refused,
            _ => Self::ServerUnreachable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place_and_a_name_of_its_own() {
        for (index, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(ending.index(), index);
            let same = Ending::ALL
                .iter()
                .filter(|other| other.name() == ending.name());
            assert_eq!(same.count(), 1);
            assert_eq!(Ending::named(ending.name()), Some(ending));
        }
    }
}
