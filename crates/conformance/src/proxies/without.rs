//! No proxy: the gateway forwards packets. The other runs are compared with this one.

use socket2::Socket;

use super::{Conditions, Proxy, Running, Unconnected};
use crate::Error;
use crate::network::{Family, Network, Target};

/// Plain routing.
pub struct WithoutProxy;

impl Proxy for WithoutProxy {
    fn name(&self) -> String {
        "none".to_owned()
    }

    fn describe(&self) -> Result<String, String> {
        Ok("plain routing".to_owned())
    }

    fn answers_early(&self) -> bool {
        false
    }

    fn connect(&self, socket: &Socket, family: Family, target: Target) -> Result<(), Unconnected> {
        Ok(socket.connect(&Network::server_address(family, target).into())?)
    }

    fn start(&self, _: &Network, _: Conditions) -> Result<Option<Running>, Error> {
        Ok(None)
    }
}
