//! The negotiation in the register of its thread.

use std::net::SocketAddr;
use std::sync::Arc;

use midspan_policy::Request;

use super::NegotiatingClient;
use crate::register::{Entry, InHand, NegotiationEntry, Register, Registration, SharedSocket};

impl NegotiatingClient {
    /// Adds the negotiation to the register of its thread, with this address as the server until the
    /// client has named one, and whether the two are suspects. A proxy's address does not count as a client's.
    pub fn register(
        &mut self,
        register: &Arc<Register>,
        (listener, is_plain): (Option<SocketAddr>, bool),
    ) {
        let is_client = self.settings.client_is_peer();
        let request = listener.filter(|_| is_client).map(|server| Request {
            client: self.client_address,
            server,
        });
        let entry = NegotiationEntry {
            request,
            is_plain,
            client: Arc::downgrade(&self.client),
            servers: Vec::new(),
            seat: Arc::downgrade(&self.seat),
            memory: self.memory.memory(),
        };
        self.registration = Some(register.add(Entry::Negotiation(Box::new(entry))));
    }

    /// Its entry in the register.
    pub const fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }

    /// The client is to be connected to this server, or to this node of the overlay, and the session is
    /// relayed without any mechanism if `is_plain`.
    pub fn note_server(&mut self, server: SocketAddr, is_plain: bool) {
        self.is_plain = is_plain;
        if let Some(registration) = &self.registration {
            let client = self.client_address;
            let request = Request { client, server };
            registration.set_request(InHand { request, is_plain });
        }
    }
}

/// A function that connects by `call`, and adds the socket to the entry of the negotiation.
pub fn adding(
    registration: Option<&Registration>,
    mut call: impl FnMut(SocketAddr) -> rustix::io::Result<SharedSocket>,
) -> impl FnMut(SocketAddr) -> rustix::io::Result<SharedSocket> {
    move |address| {
        let socket = call(address)?;
        if let Some(registration) = registration {
            registration.add_server(&socket);
        }
        Ok(socket)
    }
}
