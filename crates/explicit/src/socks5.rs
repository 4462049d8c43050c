//! SOCKS version 5 (RFC 1928) with CONNECT, without authentication or with name and password
//! (RFC 1929).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::negotiation::{Failure, Next, Outcome, Refusal, Request, Step};
use crate::{Credentials, Destination, Host, HostName};

const VERSION: u8 = 5;
/// The previous version, which has neither passwords nor IPv6.
const VERSION_4: u8 = 4;
/// "Request rejected or failed" of version 4, without an address.
const REJECTED_BY_VERSION_4: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];
/// Version of the exchange of name and password (RFC 1929 §2).
const PASSWORD_VERSION: u8 = 1;

const NO_AUTHENTICATION: u8 = 0;
const NAME_AND_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Replies of RFC 1928 §6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    /// "TTL expired" is closest to a time-out, and other proxies use it.
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Methods,
    Password,
    Request,
}

/// The proxy's side of one client's negotiation.
#[derive(Debug, Clone)]
pub struct Socks5 {
    stage: Stage,
}

/// Removes fields from the front; `None` if bytes are missing.
struct Fields<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Fields<'a> {
    const fn new(rest: &'a [u8]) -> Self {
        Self { rest, taken: 0 }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        self.taken += count;
        Some(field)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// A field that follows its length.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.byte()?;
        self.take(count.into())
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

impl Default for Socks5 {
    fn default() -> Self {
        Self::new()
    }
}

impl Socks5 {
    /// A negotiation with a client that has sent nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            stage: Stage::Methods,
        }
    }

    /// Handles the bytes from the client that are not consumed yet; a step needs at most 262 bytes.
    /// With `credentials`, only their users are served.
    pub fn advance(&mut self, input: &[u8], credentials: Option<&Credentials>) -> Step {
        let mut fields = Fields::new(input);
        let step = match self.stage {
            Stage::Methods => self.methods(&mut fields, credentials.is_some()),
            Stage::Password => self.password(&mut fields, credentials),
            Stage::Request => request(&mut fields),
        };
        step.unwrap_or_else(|| Step::more(0, Vec::new()))
    }

    fn methods(&mut self, fields: &mut Fields<'_>, with_password: bool) -> Option<Step> {
        match fields.byte()? {
            VERSION => {}
            // A client of version 4 gets the rejection in its own protocol.
            VERSION_4 => {
                let reply = REJECTED_BY_VERSION_4.to_vec();
                return Some(Step::refuse(0, reply, Refusal::Unsupported));
            }
            // The client uses an unknown protocol and would not understand an answer.
            _ => return Some(Step::refuse(0, Vec::new(), Refusal::Malformed)),
        }
        let offered = fields.counted()?;
        let (method, stage) = match with_password {
            true => (NAME_AND_PASSWORD, Stage::Password),
            false => (NO_AUTHENTICATION, Stage::Request),
        };
        if !offered.contains(&method) {
            let reply = vec![VERSION, NO_METHOD];
            return Some(Step::refuse(fields.taken, reply, Refusal::NoCredentials));
        }
        self.stage = stage;
        Some(Step::more(fields.taken, vec![VERSION, method]))
    }

    fn password(
        &mut self,
        fields: &mut Fields<'_>,
        credentials: Option<&Credentials>,
    ) -> Option<Step> {
        if fields.byte()? != PASSWORD_VERSION {
            return Some(Step::refuse(0, Vec::new(), Refusal::Malformed));
        }
        let (user, password) = (fields.counted()?, fields.counted()?);
        let accepted = credentials.is_some_and(|known| known.accept(user, password));
        let reply = vec![PASSWORD_VERSION, u8::from(!accepted)];
        if !accepted {
            return Some(Step::refuse(fields.taken, reply, Refusal::Unauthenticated));
        }
        self.stage = Stage::Request;
        Some(Step::more(fields.taken, reply))
    }

    /// The reply to the client after the attempt to connect to the server.
    #[must_use]
    pub fn answer(&self, outcome: Outcome) -> Vec<u8> {
        match outcome {
            Outcome::Connected(address) => reply(Reply::Succeeded, address),
            Outcome::Failed(failure) => failed(match failure {
                Failure::Refused => Reply::Refused,
                Failure::TimedOut => Reply::TimedOut,
                Failure::HostUnreachable | Failure::NameNotFound => Reply::HostUnreachable,
                Failure::NetworkUnreachable => Reply::NetworkUnreachable,
                Failure::NotAllowed | Failure::TooFast => Reply::NotAllowed,
                Failure::Shortage | Failure::RouteBroken => Reply::GeneralFailure,
            }),
        }
    }
}

fn request(fields: &mut Fields<'_>) -> Option<Step> {
    if fields.byte()? != VERSION {
        return Some(Step::refuse(0, Vec::new(), Refusal::Malformed));
    }
    let command = fields.byte()?;
    // Reserved; not checked, as in other proxies.
    fields.byte()?;
    let host = match fields.byte()? {
        IPV4 => Ok(Host::from(IpAddr::from(Ipv4Addr::from(
            fields.array::<4>()?,
        )))),
        IPV6 => Ok(Host::from(IpAddr::from(Ipv6Addr::from(
            fields.array::<16>()?,
        )))),
        NAME => name(fields.counted()?),
        _ => {
            let reply = failed(Reply::AddressTypeNotSupported);
            return Some(Step::refuse(fields.taken, reply, Refusal::Unsupported));
        }
    };
    let port = u16::from_be_bytes(fields.array()?);
    if command != CONNECT {
        let reply = failed(Reply::CommandNotSupported);
        return Some(Step::refuse(fields.taken, reply, Refusal::Unsupported));
    }
    let destination = host.and_then(|host| Destination::new(host, port).map_err(|_| ()));
    Some(match destination {
        Ok(destination) => Step {
            consumed: fields.taken,
            reply: Vec::new(),
            next: Next::Connect(Request {
                destination,
                to_server: Vec::new(),
                exchange: None,
            }),
        },
        Err(()) => {
            let reply = failed(Reply::GeneralFailure);
            Step::refuse(fields.taken, reply, Refusal::Malformed)
        }
    })
}

/// Some clients send an address in the place of a name.
fn name(bytes: &[u8]) -> Result<Host, ()> {
    let text = std::str::from_utf8(bytes).map_err(|_| ())?;
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Host::from(address)),
        Err(_) => HostName::new(text).map(Host::Name).map_err(|_| ()),
    }
}

fn failed(code: Reply) -> Vec<u8> {
    reply(code, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
}

fn reply(code: Reply, address: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![VERSION, code as u8, 0];
    match address {
        SocketAddr::V4(address) => {
            bytes.push(IPV4);
            bytes.extend(address.ip().octets());
        }
        SocketAddr::V6(address) => {
            bytes.push(IPV6);
            bytes.extend(address.ip().octets());
        }
    }
    bytes.extend(address.port().to_be_bytes());
    bytes
}
