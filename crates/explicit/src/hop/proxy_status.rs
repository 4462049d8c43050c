//! The field `Proxy-Status` (RFC 9209): which node has failed, and why.

use httparse::Header;
use midspan_policy::overlay::NodeName;

use crate::exchange::fields;
use crate::negotiation::Failure;

/// Why there is no connection, as a node reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopFailure {
    /// The node; `None` if the answer names none.
    pub node: Option<NodeName>,
    /// The error.
    pub error: HopError,
}

macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $name:ident = $token:literal, $status:literal;)+) => {
        /// Errors of RFC 9209 §2.3 that nodes of an overlay report.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum HopError {
            $($(#[doc = $doc])+ $name,)+
        }

        impl HopError {
            /// All errors.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name in the field.
            #[must_use]
            pub const fn token(self) -> &'static str {
                match self {
                    $(Self::$name => $token,)+
                }
            }

            /// The status and its phrase, as in the first line of an answer.
            #[must_use]
            pub const fn status(self) -> &'static str {
                match self {
                    $(Self::$name => $status,)+
                }
            }
        }
    };
}

errors! {
    /// The server's name could not be looked up, or has no address.
    DnsError = "dns_error", "502 Bad Gateway";
    /// The next node, or the server, cannot be used.
    DestinationUnavailable = "destination_unavailable", "503 Service Unavailable";
    /// The access rules of the exit, or what it serves, do not permit the server.
    DestinationIpProhibited = "destination_ip_prohibited", "502 Bad Gateway";
    /// There is no route to the next node or to the server.
    DestinationIpUnroutable = "destination_ip_unroutable", "502 Bad Gateway";
    /// The next node or the server has refused the connection.
    ConnectionRefused = "connection_refused", "502 Bad Gateway";
    /// The next node or the server did not answer in time.
    ConnectionTimeout = "connection_timeout", "504 Gateway Timeout";
    /// The connection to the next node ended before its answer.
    ConnectionTerminated = "connection_terminated", "502 Bad Gateway";
    /// The next node has accepted the connection and did not answer the request in time.
    HttpResponseTimeout = "http_response_timeout", "504 Gateway Timeout";
    /// The next node has sent something else than an answer.
    HttpProtocolError = "http_protocol_error", "502 Bad Gateway";
    /// The next node has not the key that it should have.
    TlsCertificateError = "tls_certificate_error", "502 Bad Gateway";
    /// The next node has refused the handshake of TLS.
    TlsAlertReceived = "tls_alert_received", "502 Bad Gateway";
    /// The next node does not use TLS as a node does.
    TlsProtocolError = "tls_protocol_error", "502 Bad Gateway";
    /// The node has no room for another session.
    ConnectionLimitReached = "connection_limit_reached", "503 Service Unavailable";
    /// The request is malformed.
    HttpRequestError = "http_request_error", "400 Bad Request";
    /// The node does not carry this request.
    HttpRequestDenied = "http_request_denied", "403 Forbidden";
    /// The session has passed the node already.
    ProxyLoopDetected = "proxy_loop_detected", "502 Bad Gateway";
    /// Another error.
    ProxyInternalError = "proxy_internal_error", "500 Internal Server Error";
}

impl HopError {
    /// The error in an answer with this status and without `Proxy-Status`, as other proxies send it.
    const fn of_status(status: u16) -> Self {
        match status {
            403 | 407 => Self::HttpRequestDenied,
            400..500 => Self::HttpRequestError,
            504 => Self::ConnectionTimeout,
            _ => Self::DestinationUnavailable,
        }
    }
}

impl HopFailure {
    /// Reads the first element of the field, which is that of the node nearest to the server.
    pub(super) fn read(fields: &[Header<'_>], status: u16) -> Self {
        let first = fields::values(fields, "proxy-status").next();
        let text = first.and_then(|value| std::str::from_utf8(value).ok());
        let unnamed = Self {
            node: None,
            error: HopError::of_status(status),
        };
        let Some(parts) = text.map(first_element) else {
            return unnamed;
        };
        let (node, parameters) = match parts.split_first() {
            Some((node, parameters)) => (node.trim().parse().ok(), parameters),
            None => return unnamed,
        };
        let token = parameters
            .iter()
            .find_map(|parameter| parameter.trim().strip_prefix("error="));
        let is_it = |token: &str| HopError::ALL.iter().copied().find(|it| it.token() == token);
        let error = token.map_or(unnamed.error, |token| {
            is_it(token).unwrap_or(HopError::ProxyInternalError)
        });
        Self { node, error }
    }

    /// Writes the field; nothing without a node.
    pub(super) fn write(&self, head: &mut String) {
        if let Some(node) = &self.node {
            let token = self.error.token();
            head.push_str(&format!("Proxy-Status: {node}; error={token}\r\n"));
        }
    }

    /// Whether the route is the reason, so that another one may lead to the server, where the client would be
    /// informed of this. `own` is the node that calls: if it has no room itself, no other route helps.
    #[must_use]
    pub fn is_of_route(&self, of_client: Failure, own: Option<&NodeName>) -> bool {
        match of_client {
            Failure::RouteBroken => true,
            Failure::Shortage => self.node.as_ref() != own,
            _ => false,
        }
    }

    /// What the client is informed of. Only the exit reports about the server; an error between two
    /// nodes is none of the server.
    #[must_use]
    pub fn of_client(&self, exit: &NodeName) -> Failure {
        use HopError as Error;
        match self.error {
            Error::ConnectionLimitReached => Failure::Shortage,
            // The nodes wait as long as the server is silent.
            Error::HttpResponseTimeout => Failure::TimedOut,
            _ if self.node.as_ref() != Some(exit) => Failure::RouteBroken,
            Error::DnsError => Failure::NameNotFound,
            Error::DestinationIpProhibited | Error::HttpRequestDenied => Failure::NotAllowed,
            Error::DestinationIpUnroutable | Error::DestinationUnavailable => {
                Failure::HostUnreachable
            }
            Error::ConnectionRefused => Failure::Refused,
            Error::ConnectionTimeout => Failure::TimedOut,
            Error::ConnectionTerminated
            | Error::HttpProtocolError
            | Error::TlsCertificateError
            | Error::TlsAlertReceived
            | Error::TlsProtocolError
            | Error::HttpRequestError
            | Error::ProxyLoopDetected
            | Error::ProxyInternalError => Failure::RouteBroken,
        }
    }
}

/// The parts between the semicolons of a list's first element (RFC 8941 §3.1). Semicolons and commas
/// in quotes belong to a part.
fn first_element(value: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut is_quoted, mut is_escaped) = (0, false, false);
    for (place, byte) in value.bytes().enumerate() {
        let was_escaped = std::mem::replace(&mut is_escaped, false);
        match byte {
            _ if was_escaped => {}
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b';' | b',' if !is_quoted => {
                parts.push(&value[begin..place]);
                begin = place + 1;
                if byte == b',' {
                    return parts;
                }
            }
            _ => {}
        }
    }
    parts.push(&value[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str, status: u16) -> (Option<String>, HopError) {
        let field = Header {
            name: "proxy-status",
            value: value.as_bytes(),
        };
        let failure = HopFailure::read(&[field], status);
        (failure.node.map(String::from), failure.error)
    }

    #[test]
    fn the_node_nearest_to_the_server_reports() {
        let sin = Some("sin".to_owned());
        for (value, expected) in [
            (
                "sin; error=connection_refused",
                (sin.clone(), HopError::ConnectionRefused),
            ),
            (
                "sin;details=\"a;b, \\\"c\";error=dns_error, fra; error=connection_timeout",
                (sin.clone(), HopError::DnsError),
            ),
            ("sin", (sin.clone(), HopError::DestinationUnavailable)),
            (
                "sin; error=http_upgrade_failed",
                (sin, HopError::ProxyInternalError),
            ),
            (
                "\"Squid 5\"; error=connection_refused",
                (None, HopError::ConnectionRefused),
            ),
            ("", (None, HopError::DestinationUnavailable)),
        ] {
            assert_eq!(read(value, 503), expected, "{value}");
        }
        let of = |status| HopFailure::read(&[], status).error;
        assert_eq!(of(403), HopError::HttpRequestDenied);
        assert_eq!(of(404), HopError::HttpRequestError);
        assert_eq!(of(504), HopError::ConnectionTimeout);
        assert_eq!(of(302), HopError::DestinationUnavailable);
    }

    #[test]
    fn only_the_exit_reports_about_the_server() {
        let exit: NodeName = "sin".parse().unwrap();
        let seen = |node: Option<&str>, error| {
            let node = node.map(|node| node.parse().unwrap());
            HopFailure { node, error }.of_client(&exit)
        };
        for (error, expected) in [
            (HopError::ConnectionRefused, Failure::Refused),
            (HopError::ConnectionTimeout, Failure::TimedOut),
            (HopError::DnsError, Failure::NameNotFound),
            (HopError::DestinationIpProhibited, Failure::NotAllowed),
            (HopError::DestinationIpUnroutable, Failure::HostUnreachable),
        ] {
            assert_eq!(seen(Some("sin"), error), expected);
            assert_eq!(seen(Some("fra"), error), Failure::RouteBroken);
            assert_eq!(seen(None, error), Failure::RouteBroken);
        }
        let busy = seen(Some("fra"), HopError::ConnectionLimitReached);
        assert_eq!(busy, Failure::Shortage);
    }

    #[test]
    fn another_route_helps_if_a_node_is_the_reason() {
        let is_of_route = |node: &str, of_client| {
            let failure = HopFailure {
                node: node.parse().ok(),
                error: HopError::ConnectionLimitReached,
            };
            let own: NodeName = "ams".parse().unwrap();
            failure.is_of_route(of_client, Some(&own))
        };
        assert!(is_of_route("fra", Failure::RouteBroken) && is_of_route("fra", Failure::Shortage));
        assert!(!is_of_route("ams", Failure::Shortage));
        assert!(!is_of_route("sin", Failure::Refused) && !is_of_route("sin", Failure::TimedOut));
    }
}
