//! To which of the listener's servers a client's session goes.

use std::net::SocketAddr;

use midspan_explicit::Failure;

use super::negotiating_client::name_of;
use super::{Negotiations, Neighbours, Reason, Step};
use crate::machine;
use crate::server_pool::{ServerChoice, lock};
use crate::table::Key;

impl Negotiations {
    /// Begins to connect to one of the listener's servers; `None` if attempts have begun. If no server may be
    /// used, and a name has had no address yet, this name is looked up first.
    pub(super) fn choose_server(&mut self, key: Key, around: &mut Neighbours<'_>) -> Option<Step> {
        let now = around.now;
        let negotiating = self.negotiating_clients.get_mut(key)?;
        let acceptor = around.acceptors.get(negotiating.listener)?;
        let client = negotiating.client_address().ip();
        let (listener, access) = (&acceptor.listener, &negotiating.settings.access);
        let may = |server: SocketAddr| {
            !listener.listens_at(server) && access.allows(client, server, machine::is_own)
        };
        let pool = acceptor.servers.as_ref();
        let choice = pool.and_then(|pool| ServerChoice::new(pool, now, may));
        let Some(choice) = choice else {
            let unknown = pool.and_then(|pool| {
                let servers = lock(pool);
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
            let mut servers = lock(pool);
            let found: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
            let unknown = servers.without_address();
            // Meanwhile, the name may have got its addresses in another way.
            let unknown = unknown.filter(|(_, of)| name_of(of) == negotiating.requested());
            if let Some((server, _)) = unknown {
                servers.note_addresses(server, &found);
            }
        }
        self.choose_server(key, around)
    }
}
