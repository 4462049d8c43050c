//! The head of an answer, as the client gets it (RFC 9110 §7.6, RFC 9112 §6.3).

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig};

use super::body::Body;
use super::fields::{self, Ambiguous, Framing};
use super::{Asked, is_whole};

/// Most header fields of an answer.
const MOST_FIELDS: usize = 256;
/// Largest number of bytes that are written in addition to the bytes read: `Connection`, and numbers.
const WRITTEN_BESIDES: usize = 64;

/// A head that has been read.
#[derive(Debug)]
pub(super) struct Head {
    /// The head for the client; empty if the client must not get it.
    pub for_client: Vec<u8>,
    /// The part after the head.
    pub next: Next,
    /// It announces that the client's connection stays open.
    pub stays_open: bool,
}

/// The part after a head.
#[derive(Debug)]
pub(super) enum Next {
    /// Another one: this one was interim (1xx).
    Head,
    /// A body.
    Body(Body),
    /// Another protocol.
    Tunnel,
}

/// Reads a whole head and rewrites it.
///
/// # Errors
/// The head is invalid, or two programs could find the end of its body at different positions.
pub(super) fn read(head: &[u8], asked: &Asked, may_stay_open: bool) -> Result<Head, Ambiguous> {
    // Most heads have few fields.
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let mut config = ParserConfig::default();
    // A proxy has to repair these in an answer (RFC 9112 §5.1, §5.2).
    config.allow_spaces_after_header_name_in_responses(true);
    config.allow_obsolete_multiline_headers_in_responses(true);
    let parsed = config.parse_response_with_uninit_headers(&mut response, head, &mut fields);
    if !is_whole(parsed, head.len()) {
        return Err(Ambiguous);
    }
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Err(Ambiguous);
    };
    let fields = &*response.headers;
    let framing = Framing::of(fields)?;
    let is_upgrade = status == 101;
    if status < 100 || is_upgrade && !asked.upgrade {
        return Err(Ambiguous);
    }
    let next = match status {
        101 => Next::Tunnel,
        100..200 => Next::Head,
        _ => Next::Body(body(status, asked, &framing)),
    };
    if matches!(next, Next::Head) && asked.version == 0 {
        // HTTP/1.0 has no interim answers (RFC 9110 §15.2).
        let for_client = Vec::new();
        let stays_open = false;
        return Ok(Head {
            for_client,
            next,
            stays_open,
        });
    }
    let has_known_end = matches!(&next, Next::Body(body) if !matches!(body, Body::UntilEnd));
    // If an answer has both fields, a program may use the wrong one; and HTTP/1.0 has no chunks.
    let is_doubtful = framing.coding.is_some()
        && (framing.length.is_some() || version == 0 || asked.version == 0);
    let stays_open = may_stay_open && has_known_end && !is_doubtful;

    let mut written = Vec::with_capacity(head.len() + WRITTEN_BESIDES);
    written.extend_from_slice(b"HTTP/1.1 ");
    fields::write_number(&mut written, status.into());
    written.push(b' ');
    written.extend_from_slice(response.reason.unwrap_or_default().as_bytes());
    written.extend_from_slice(b"\r\n");
    let named = fields::named_by_connection(fields);
    for field in fields {
        let is_wanted = is_upgrade && field.name.eq_ignore_ascii_case("upgrade");
        if is_wanted || fields::passes(field.name, &named) {
            fields::write(&mut written, field.name.as_bytes(), field.value);
        }
    }
    let may_have_body = status >= 200 && status != 204;
    match (framing.coding, framing.length) {
        (Some(coding), _) if may_have_body => {
            fields::write(&mut written, b"Transfer-Encoding", coding.value);
        }
        (None, Some(length)) if may_have_body => {
            fields::write_length(&mut written, length);
        }
        _ => {}
    }
    let connection = match next {
        Next::Head => None,
        Next::Tunnel => Some("Upgrade"),
        Next::Body(_) if !stays_open => Some("close"),
        Next::Body(_) => (asked.version == 0).then_some("keep-alive"),
    };
    if let Some(connection) = connection {
        fields::write(&mut written, b"Connection", connection.as_bytes());
    }
    written.extend_from_slice(b"\r\n");
    Ok(Head {
        for_client: written,
        next,
        stays_open,
    })
}

fn body(status: u16, asked: &Asked, framing: &Framing<'_>) -> Body {
    if asked.is_head || status == 204 || status == 304 {
        return Body::NONE;
    }
    match (framing.coding, framing.length) {
        (Some(coding), _) if coding.is_chunked => Body::chunked(),
        (Some(_), _) | (None, None) => Body::UntilEnd,
        (None, Some(length)) => Body::Length(length),
    }
}
