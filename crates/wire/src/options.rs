//! TCP options (RFC 9293, section 3.1).

use std::ops::Range;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;

/// An option with a length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Its kind (registered by IANA).
    pub kind: u8,
    /// The bytes behind kind and length.
    pub content: &'a [u8],
    /// Where the whole option is, in bytes from the first option on.
    pub place: Range<usize>,
}

/// An option with a length that is less than two bytes, or beyond the end of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedOption {
    /// Its kind.
    pub kind: u8,
}

/// The options behind a TCP header, without padding, up to their end. A damaged option is the last: the
/// place of the next one is unknown. Linux reads options in the same way.
pub fn options(bytes: &[u8]) -> impl Iterator<Item = Result<TcpOption<'_>, DamagedOption>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while bytes.get(at) == Some(&NO_OPERATION) {
            at += 1;
        }
        let (&kind, behind) = bytes.get(at..)?.split_first()?;
        if kind == END {
            return None;
        }
        let length = behind.first().map_or(0, |length| usize::from(*length));
        let place = at..at + length;
        let Some(content) = bytes.get(at + 2..place.end) else {
            at = bytes.len();
            return Some(Err(DamagedOption { kind }));
        };
        at = place.end;
        Some(Ok(TcpOption {
            kind,
            content,
            place,
        }))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> (Vec<(u8, Vec<u8>)>, Option<u8>) {
        let (mut found, mut damaged) = (Vec::new(), None);
        for option in options(bytes) {
            assert_eq!(damaged, None, "an option behind a damaged one");
            match option {
                Ok(option) => {
                    assert_eq!(bytes[option.place.clone()][2..], *option.content);
                    found.push((option.kind, option.content.to_vec()));
                }
                Err(option) => damaged = Some(option.kind),
            }
        }
        (found, damaged)
    }

    #[test]
    fn padding_is_passed_over_and_the_end_is_the_end() {
        let bytes = [1, 1, 8, 3, 7, 1, 30, 2, 0, 5, 9];
        assert_eq!(read(&bytes), (vec![(8, vec![7]), (30, vec![])], None));
        assert_eq!(read(&[]), (vec![], None));
        assert_eq!(read(&[1, 1, 1]), (vec![], None));
    }

    #[test]
    fn impossible_lengths_end_the_list() {
        let mss = (2, vec![5, 180]);
        for (end, kind) in [
            (&[9, 0, 2, 2][..], 9),
            (&[9, 1], 9),
            (&[9, 200, 1], 9),
            (&[19], 19),
        ] {
            let bytes = [&[2, 4, 5, 180], end].concat();
            assert_eq!(read(&bytes), (vec![mss.clone()], Some(kind)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let (found, _) = read(&bytes);
            prop_assert!(found.len() <= bytes.len() / 2);
        }
    }
}
