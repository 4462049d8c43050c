//! Changes to a host that exists: addresses, routes, rules, programs that run in it.

use std::io;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, NetlinkError, RouteMetrics};
use midspan_linux::nftables;
use socket2::{Domain, Socket, Type};

use super::{NetworkError, ToAddress, ToPrefix};

/// Changes to a host.
pub trait Configure {
    /// Changes something by netlink.
    ///
    /// # Errors
    /// The kernel refuses it.
    fn by_netlink<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Netlink) -> Result<T, NetlinkError> + Send + 'static,
    ) -> Result<T, NetworkError>;

    /// Sets an interface up.
    ///
    /// # Errors
    /// There is none of this name.
    fn set_up(&self, interface: &str) -> Result<(), NetworkError> {
        let interface = interface.to_owned();
        self.by_netlink(move |netlink| netlink.set_up(&interface))
    }

    /// Gives an interface a further address.
    ///
    /// # Errors
    /// The text is no address, or the kernel refuses it.
    fn add_address(&self, interface: &str, address: impl ToPrefix) -> Result<(), NetworkError> {
        let (interface, prefix) = (interface.to_owned(), address.to_prefix()?);
        self.by_netlink(move |netlink| netlink.add_address(&interface, prefix))
    }

    /// Fixes the link-layer address of a neighbour.
    ///
    /// # Errors
    /// The text is no address, or the kernel refuses it.
    fn add_neighbour(
        &self,
        interface: &str,
        address: impl ToAddress,
        link_address: [u8; 6],
    ) -> Result<(), NetworkError> {
        let (interface, address) = (interface.to_owned(), address.to_address()?);
        self.by_netlink(move |netlink| netlink.add_neighbour(&interface, address, link_address))
    }

    /// Adds a route, or replaces the one to the same prefix. Without a gateway the prefix is
    /// attached to the interface itself.
    ///
    /// # Errors
    /// A text is no address, or the kernel refuses the route.
    fn add_route<G: ToAddress>(
        &self,
        to: impl ToPrefix,
        gateway: Option<G>,
        interface: &str,
    ) -> Result<(), NetworkError> {
        self.add_route_with(to, gateway, interface, &RouteMetrics::default())
    }

    /// The same, with settings of the connections that use the route.
    ///
    /// # Errors
    /// A text is no address, or the kernel refuses the route.
    fn add_route_with<G: ToAddress>(
        &self,
        to: impl ToPrefix,
        gateway: Option<G>,
        interface: &str,
        metrics: &RouteMetrics,
    ) -> Result<(), NetworkError> {
        let (to, interface, metrics) = (to.to_prefix()?, interface.to_owned(), metrics.clone());
        let gateway = gateway.map(|gateway| gateway.to_address()).transpose()?;
        self.by_netlink(move |netlink| netlink.set_route(to, gateway, &interface, &metrics))
    }

    /// Sends everything of both families that has no other route to host `host` of link `number`
    /// ([`numbered`](super::numbered)).
    ///
    /// # Errors
    /// The kernel refuses a route.
    fn add_numbered_default_routes(
        &self,
        interface: &str,
        number: u8,
        host: u8,
    ) -> Result<(), NetworkError> {
        for (everything, gateway) in ["0.0.0.0/0", "::/0"]
            .iter()
            .zip(super::numbered(number, host))
        {
            self.add_route(everything, Some(gateway.addr()), interface)?;
        }
        Ok(())
    }

    /// Applies rules of nftables.
    ///
    /// # Errors
    /// They are refused, or there is no `nft`.
    fn apply_rules(&self, text: &str) -> Result<(), NetworkError>;

    /// A listening socket for both families at a port.
    ///
    /// # Errors
    /// The kernel refuses it: the port is in use.
    fn listen_at(&self, port: u16) -> Result<TcpListener, NetworkError>;

    /// Runs a program to its end; what it prints to standard output. Standard error goes nowhere.
    ///
    /// # Errors
    /// It does not start.
    fn output_of(&self, program: &str, arguments: &[&str]) -> Result<String, NetworkError>;
}

impl Configure for NetworkNamespace {
    fn by_netlink<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Netlink) -> Result<T, NetlinkError> + Send + 'static,
    ) -> Result<T, NetworkError> {
        self.run(move || change(&Netlink::open()?))?
            .map_err(|source| NetworkError::Netlink {
                node: self.name().to_owned(),
                source: source.into(),
            })
    }

    fn apply_rules(&self, text: &str) -> Result<(), NetworkError> {
        let text = text.to_owned();
        self.run(move || nftables::apply(&text))?
            .map_err(|source| NetworkError::Rules {
                node: self.name().to_owned(),
                source: source.into(),
            })
    }

    fn listen_at(&self, port: u16) -> Result<TcpListener, NetworkError> {
        let listen = move || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.set_only_v6(false)?;
            let any = std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port));
            socket.bind(&any.into())?;
            socket.listen(1000)?;
            Ok(socket.into())
        };
        self.run(listen)?.map_err(|source| NetworkError::Io {
            action: "listen at a port",
            node: self.name().to_owned(),
            source,
        })
    }

    fn output_of(&self, program: &str, arguments: &[&str]) -> Result<String, NetworkError> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let output = self.spawn(command)?.wait_with_output();
        let output = output.map_err(|source| NetworkError::Io {
            action: "read what a program prints",
            node: self.name().to_owned(),
            source,
        })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
