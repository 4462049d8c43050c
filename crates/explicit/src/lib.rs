//! The protocols of explicit listeners.
//!
//! A client that is configured to use the proxy names the server itself: by SOCKS5 ([`socks5`]), or by HTTP
//! ([`http`]: `CONNECT`, or a plain request for a proxy). A proxy in front of this one names the
//! client, by the PROXY protocol ([`proxy_protocol`]). A node of an overlay names the server, the client
//! and the nodes of the route, by `CONNECT` with further fields ([`hop`]). The name of a server may have several
//! addresses; [`Attempts`] decides when to try each of them (RFC 8305).
//!
//! The crate is sans-IO: the caller passes bytes and the time, and gets bytes and decisions. All input
//! is hostile: stored data is bounded, and nothing panics.

mod attempts;
mod credentials;
mod destination;
mod exchange;
pub mod hop;
pub mod http;
mod negotiation;
pub mod proxy_protocol;
mod row_tag;
pub mod socks5;

pub use attempts::{ATTEMPT_DELAY, Attempts, MAXIMUM_ADDRESSES};
pub use credentials::Credentials;
pub use destination::{Destination, Host, HostName, InvalidDestination};
pub use negotiation::{Failure, Next, Outcome, Refusal, Request, Step};
