//! What clients of explicit listeners say, and what they are told.
//!
//! A client that knows of the proxy names the server itself: by SOCKS5 ([`socks5`]), or by HTTP
//! ([`http`]: `CONNECT`, or a plain request for a proxy). A proxy in front of this one names the
//! client, by the PROXY protocol ([`proxy_protocol`]). A server that has a name has several
//! addresses, of which [`Attempts`] says which is tried when (RFC 8305).
//!
//! All of it is sans-IO: bytes and the time come in, bytes and decisions go out. Everything that
//! comes in is hostile: what is kept is bounded, and nothing panics.

mod attempts;
mod credentials;
mod destination;
mod exchange;
pub mod http;
mod negotiation;
pub mod proxy_protocol;
pub mod socks5;

pub use attempts::{ATTEMPT_DELAY, Attempts, MAXIMUM_ADDRESSES};
pub use credentials::Credentials;
pub use destination::{Destination, Host, HostName, InvalidDestination};
pub use negotiation::{Failure, Next, Outcome, Refusal, Request, Step};
