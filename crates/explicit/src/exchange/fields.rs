//! The meaning of header fields for a proxy that passes a message on.

use httparse::Header;

/// Fields for one hop only, which the next hop must not see (RFC 9110 §7.6.1), and fields between a
/// proxy and its client only.
const OF_ONE_HOP: [&str; 9] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-authentication-info",
    "keep-alive",
    "te",
    "upgrade",
    "http2-settings",
];

/// Fields without which the next program would read another message: no `Connection` may name them.
const INDISPENSABLE: [&str; 3] = ["host", "content-length", "transfer-encoding"];

/// The fields that determine the end of a message's body (RFC 9112 §6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Framing<'a> {
    /// `Content-Length`
    pub length: Option<u64>,
    /// `Transfer-Encoding`
    pub coding: Option<Coding<'a>>,
}

/// `Transfer-Encoding`, as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coding<'a> {
    /// The value of the field.
    pub value: &'a [u8],
    /// The last coding is `chunked`, which determines the end of the body.
    pub is_chunked: bool,
}

/// Two programs could find the end of the body at different positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ambiguous;

impl<'a> Framing<'a> {
    /// Reads these fields.
    ///
    /// # Errors
    /// A length that is not a number, several different lengths, several fields of codings, or
    /// `chunked` in any position except the last.
    pub fn of(fields: &[Header<'a>]) -> Result<Self, Ambiguous> {
        let mut length = None;
        for value in values(fields, "content-length") {
            // Equal numbers in a list are one number (RFC 9112 §6.3).
            for number in value.split(|byte| *byte == b',') {
                let number = decimal(trimmed(number)).ok_or(Ambiguous)?;
                if length.is_some_and(|length| length != number) {
                    return Err(Ambiguous);
                }
                length = Some(number);
            }
        }
        let mut codings = values(fields, "transfer-encoding");
        let coding = match (codings.next(), codings.next()) {
            (None, _) => None,
            (Some(value), None) => Some(Coding::of(trimmed(value))?),
            (Some(_), Some(_)) => return Err(Ambiguous),
        };
        Ok(Self { length, coding })
    }
}

impl<'a> Coding<'a> {
    fn of(value: &'a [u8]) -> Result<Self, Ambiguous> {
        let mut is_chunked = false;
        for coding in value.split(|byte| *byte == b',') {
            let coding = trimmed(coding);
            let is_token = !coding.is_empty() && coding.iter().all(|byte| is_token(*byte));
            if is_chunked || !is_token {
                return Err(Ambiguous);
            }
            is_chunked = coding.eq_ignore_ascii_case(b"chunked");
        }
        Ok(Self { value, is_chunked })
    }
}

/// The values of all fields of this name.
pub(crate) fn values<'f, 'a>(
    fields: &'f [Header<'a>],
    name: &'f str,
) -> impl Iterator<Item = &'a [u8]> + 'f {
    let fields = fields.iter();
    fields
        .filter(move |field| field.name.eq_ignore_ascii_case(name))
        .map(|field| field.value)
}

/// Whether a field that is a list has this element.
pub(crate) fn has_element(fields: &[Header<'_>], name: &str, element: &str) -> bool {
    values(fields, name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|one| trimmed(one).eq_ignore_ascii_case(element.as_bytes()))
}

/// The fields that the sender's `Connection` names. Bytes that are not text name none.
pub(crate) fn named_by_connection<'a>(fields: &[Header<'a>]) -> Vec<&'a str> {
    values(fields, "connection")
        .filter_map(|value| std::str::from_utf8(value).ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect()
}

/// Whether a message can no longer be understood without the fields that `Connection` names.
pub(crate) fn are_indispensable(named: &[&str]) -> bool {
    named.iter().any(|name| is_one_of(name, &INDISPENSABLE))
}

/// Whether a field passes unchanged: it is not for one hop, `Connection` does not name it, and the
/// proxy does not rewrite it.
pub(crate) fn passes(name: &str, named: &[&str]) -> bool {
    !is_one_of(name, &OF_ONE_HOP) && !is_one_of(name, &INDISPENSABLE) && !is_one_of(name, named)
}

/// Writes a field. A folded value (RFC 9112 §5.2) becomes one line.
pub(crate) fn write(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    let unfolded = |byte: &u8| match byte {
        b'\r' | b'\n' => b' ',
        byte => *byte,
    };
    head.extend(value.iter().map(unfolded));
    head.extend_from_slice(b"\r\n");
}

/// Writes `Content-Length`.
pub(crate) fn write_length(head: &mut Vec<u8>, length: u64) {
    head.extend_from_slice(b"Content-Length: ");
    write_number(head, length);
    head.extend_from_slice(b"\r\n");
}

/// Writes a number in decimal digits.
pub(crate) fn write_number(head: &mut Vec<u8>, number: u64) {
    let begin = head.len();
    let mut rest = number;
    loop {
        let digit = u8::try_from(rest % 10).unwrap_or(0);
        head.push(b'0' + digit);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if let Some(digits) = head.get_mut(begin..) {
        digits.reverse();
    }
}

/// Removes spaces and tabs around a value; they have no meaning (RFC 9110 §5.5).
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// A number of at most 63 bits, so that it overflows in no program.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    i64::try_from(number).ok().map(|_| number)
}

const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn is_one_of(name: &str, list: &[&str]) -> bool {
    list.iter().any(|one| one.eq_ignore_ascii_case(name))
}
