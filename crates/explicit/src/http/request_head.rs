//! Reads the head of a request, for all listeners to which clients and nodes send HTTP.

use std::mem::MaybeUninit;

use httparse::Header;

use super::LONGEST_HEAD;
use crate::exchange::head::{Found, HeadEnd, empty_lines};
use crate::exchange::is_whole;
use crate::{Destination, Refusal};

/// Most header fields of a request.
const MOST_FIELDS: usize = 128;

/// The bytes of a client so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading<T> {
    /// More bytes are needed; this many are consumed.
    More(usize),
    /// The head is larger than [`LONGEST_HEAD`], or has too many fields.
    TooLarge,
    /// This is not the head of a request.
    Wrong,
    /// The result of the caller's function for the whole head.
    Whole(T),
}

/// Reads a head, of which each byte is read once; `input` begins at the same position as before.
/// When the head is complete, `whole` gets the request and the number of its bytes.
pub(crate) fn read<T>(
    end: &mut HeadEnd,
    input: &[u8],
    whole: impl FnOnce(&httparse::Request<'_, '_>, usize) -> T,
) -> Reading<T> {
    let empty = empty_lines(input);
    if empty > 0 {
        *end = HeadEnd::default();
        return Reading::More(empty);
    }
    let seen = input.get(..LONGEST_HEAD).unwrap_or(input);
    let length = match end.search(seen) {
        Found::End(length) => length,
        Found::Nothing if input.len() < LONGEST_HEAD => return Reading::More(0),
        Found::Nothing => return Reading::TooLarge,
        Found::Wrong => return Reading::Wrong,
    };
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let head = seen.get(..length).unwrap_or(seen);
    match request.parse_with_uninit_headers(head, &mut fields) {
        Err(httparse::Error::TooManyHeaders) => Reading::TooLarge,
        parsed if !is_whole(parsed, length) => Reading::Wrong,
        _ => Reading::Whole(whole(&request, length)),
    }
}

/// The server that a `CONNECT` names.
///
/// # Errors
/// [`Refusal::Malformed`] if the target is no host with a port.
pub(crate) fn authority(request: &httparse::Request<'_, '_>) -> Result<Destination, Refusal> {
    let target = request.path.ok_or(Refusal::Malformed)?;
    Destination::parse(target, None).map_err(|_| Refusal::Malformed)
}
