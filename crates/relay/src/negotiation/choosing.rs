//! To which of the listener's servers a client's session goes.

use std::net::SocketAddr;

use midspan_explicit::Failure;

use super::negotiating_client::name_of;
use super::{Negotiations, Neighbours, Reason, Step};
use crate::machine;
use crate::server_pool::ServerChoice;
use crate::table::Key;

impl Negotiations {
    /// Begins to connect to one of the listener's servers; `None` if attempts have begun. If no server may be
    /// used, and a name has had no address yet, this name is looked up first.
    pub(super) fn choose_server(&mut self, key: Key, around: &mut Neighbours<'_>) -> Option<Step> {
        let now = around.now;
        let negotiating = self.negotiating_clients.get_mut(key)?;
        let acceptor = around.acceptors.get(negotiating.listener)?;
        let client = negotiating.client_address().ip();
        let (own, access) = (acceptor.listener.listen, &negotiating.settings.access);
        let may = |server: SocketAddr| {
            !is_same_socket(own, server) && access.allows(client, server, machine::is_own)
        };
        let pool = acceptor.servers.as_ref();
        let choice = pool.and_then(|pool| ServerChoice::new(pool, now, may));
        let Some(choice) = choice else {
            let unknown = pool.and_then(|pool| {
                let servers = pool.lock();
                servers.without_address().and_then(|(_, of)| name_of(of))
            });
            return Some(match unknown {
                Some(server) => negotiating.look_for(server, now),
                None => negotiating.fail(Failure::NotAllowed, Some(Reason::Destination), now),
            });
        };
        match self.admit(key, choice.first(), around) {
            Ok(timeout) => {
                let negotiating = self.negotiating_clients.get_mut(key)?;
                negotiating.connect_to(choice, timeout, now);
                None
            }
            Err(step) => step,
        }
    }

    /// Passes on the addresses of the first name that had none, which was looked up for this client, and
    /// chooses then.
    pub(super) fn note_addresses(
        &mut self,
        key: Key,
        addresses: &[SocketAddr],
        around: &mut Neighbours<'_>,
    ) -> Option<Step> {
        let negotiating = self.negotiating_clients.get_mut(key)?;
        let acceptor = around.acceptors.get(negotiating.listener)?;
        if let Some(pool) = &acceptor.servers {
            let mut servers = pool.lock();
            let found: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
            let unknown = servers.without_address();
            // Meanwhile, the name may have got its addresses in another way.
            let unknown = unknown.filter(|(_, of)| name_of(of) == negotiating.requested());
            if let Some((server, _)) = unknown {
                servers.note_addresses(around.now, server, &found);
            }
        }
        self.choose_server(key, around)
    }
}

/// Whether a connection to this server would arrive at the listener itself. Each one would open another one,
/// without end.
fn is_same_socket(listen: Option<SocketAddr>, server: SocketAddr) -> bool {
    listen.is_some_and(|listen| {
        let is_its = listen.ip() == server.ip();
        let is_any = listen.ip().is_unspecified() && listen.is_ipv4() == server.is_ipv4();
        listen.port() == server.port() && (is_its || is_any && machine::is_own(server.ip()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_no_server_of_its_own() {
        // The addresses of this test's machine are unknown, so every address may be its own.
        for (listen, server, is_same) in [
            ("192.0.2.1:80", "192.0.2.1:80", true),
            ("192.0.2.1:80", "192.0.2.1:81", false),
            ("192.0.2.1:80", "192.0.2.2:80", false),
            ("0.0.0.0:80", "192.0.2.2:80", true),
            ("0.0.0.0:80", "192.0.2.2:81", false),
            ("[::]:80", "192.0.2.2:80", false),
            ("[::]:80", "[2001:db8::1]:80", true),
        ] {
            let (own, of) = (listen.parse().unwrap(), server.parse().unwrap());
            assert_eq!(is_same_socket(Some(own), of), is_same, "{listen} {server}");
        }
    }
}
