//! Named counters, read without the program `nft`, so that they can be read often.

use std::io;

use crate::nfnetlink::{
    ACKNOWLEDGE, Received, Request, Socket, attributes, message_type, messages,
};

/// `NFT_MSG_NEWOBJ` and `NFT_MSG_GETOBJ` of <linux/netfilter/nf_tables.h>.
const NEW_OBJECT: u16 = message_type(10, 18);
const GET_OBJECT: u16 = message_type(10, 19);
/// `NFPROTO_INET`.
const INET: u8 = 1;
/// `NFTA_OBJ_TABLE`, `…_NAME`, `…_TYPE`, `…_DATA`.
const TABLE: u16 = 1;
const NAME: u16 = 2;
const TYPE: u16 = 3;
const DATA: u16 = 4;
/// `NFT_OBJECT_COUNTER`.
const COUNTER: u32 = 1;
/// `NFTA_COUNTER_BYTES`, `NFTA_COUNTER_PACKETS`.
const BYTES: u16 = 1;
const PACKETS: u16 = 2;

/// What a counter has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// Reads named counters of a table of the family `inet`, in the order of `names`.
///
/// # Errors
/// There is no such counter, or those of netlink sockets.
pub fn named_counters<const COUNT: usize>(
    table: &str,
    names: [&str; COUNT],
) -> io::Result<[Counter; COUNT]> {
    let socket = Socket::open(0)?;
    let mut all = [Counter::default(); COUNT];
    for (counter, name) in all.iter_mut().zip(names) {
        *counter = read_one(&socket, table, name)?;
    }
    Ok(all)
}

fn read_one(socket: &Socket, table: &str, name: &str) -> io::Result<Counter> {
    let mut request = Request::default();
    request.message(GET_OBJECT, ACKNOWLEDGE, INET, 0, |content| {
        content.text(TABLE, table);
        content.text(NAME, name);
        content.number(TYPE, COUNTER);
    });
    socket.send(&request)?;
    let mut found = None;
    let mut buffer = [0; 4096];
    // The counter and the acknowledgement, or an error.
    loop {
        let count = socket.receive(&mut buffer)?;
        let received = buffer.get(..count).unwrap_or_default();
        found = found.or(read(received));
        for message in messages(received) {
            match message {
                Received::Answer(0) => {
                    return found.ok_or_else(|| io::ErrorKind::InvalidData.into());
                }
                Received::Answer(code) => return Err(io::Error::from_raw_os_error(-code)),
                Received::Message(..) => {}
            }
        }
    }
}

/// The counter in an answer of the kernel.
pub(crate) fn read(answer: &[u8]) -> Option<Counter> {
    messages(answer).find_map(|message| match message {
        Received::Message(NEW_OBJECT, content) => {
            let (_, data) = attributes(content).find(|(kind, _)| *kind == DATA)?;
            let value = |wanted: u16| {
                let (_, value) = attributes(data).find(|(kind, _)| *kind == wanted)?;
                Some(u64::from_be_bytes(value.try_into().ok()?))
            };
            Some(Counter {
                packets: value(PACKETS)?,
                bytes: value(BYTES)?,
            })
        }
        _ => None,
    })
}
