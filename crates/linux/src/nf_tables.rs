//! Tables, chains and rules of nf_tables as netlink messages (<linux/netfilter/nf_tables.h>), for
//! rules that the program `nft` cannot write.

use std::io;

use crate::nfnetlink::{ACKNOWLEDGE, APPEND, CREATE, Socket, message_type};
pub use crate::nfnetlink::{Attributes, Request};

const SUBSYSTEM: u8 = 10;
const NEW_TABLE: u16 = message_type(SUBSYSTEM, 0);
const DELETE_TABLE: u16 = message_type(SUBSYSTEM, 2);
const NEW_CHAIN: u16 = message_type(SUBSYSTEM, 3);
const NEW_RULE: u16 = message_type(SUBSYSTEM, 6);
/// `NFNL_MSG_BATCH_BEGIN` and `…_END`.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// `NFTA_TABLE_USERDATA`.
const TABLE_USER_DATA: u16 = 6;
/// The register that all expressions use: 16 bytes.
const REGISTER: u32 = 1;
/// The target's `struct xt_NFQ_info_v3` has this revision.
const TARGET_REVISION: u32 = 3;
/// The chain of every table. Not "queue": that is a keyword of `nft`, which could not read its own
/// listing again.
const CHAIN: &str = "to_queue";
/// `NFQ_FLAG_BYPASS`, `NFT_QUEUE_FLAG_BYPASS`.
const BYPASS: u16 = 1;

/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
pub const FAMILIES: [u8; 2] = [2, 10];

/// `enum nf_inet_hooks`.
pub mod hook {
    /// `NF_INET_FORWARD`: packets that this machine forwards.
    pub const FORWARD: u32 = 2;
    /// `NF_INET_POST_ROUTING`: packets that leave this machine.
    pub const POSTROUTING: u32 = 4;
}

/// `enum nft_meta_keys`.
pub mod meta {
    /// Length of the packet, in bytes.
    pub const LENGTH: u32 = 0;
    /// `skb->priority`.
    pub const PRIORITY: u32 = 2;
    /// The packet mark.
    pub const MARK: u32 = 3;
    /// Name of the interface by which the packet leaves.
    pub const OUT_INTERFACE_NAME: u32 = 7;
    /// Number of the transport protocol.
    pub const TRANSPORT: u32 = 16;
}

/// `enum nft_cmp_ops`.
#[derive(Debug, Clone, Copy)]
pub enum Comparison {
    /// `NFT_CMP_EQ`.
    Equal = 0,
    /// `NFT_CMP_LTE`.
    AtMost = 3,
}

/// Sends everything that `content` writes, as one transaction: all of it takes effect, or nothing.
pub fn transaction(content: impl FnOnce(&mut Request)) -> io::Result<()> {
    let mut request = Request::default();
    request.message(BATCH_BEGIN, 0, 0, SUBSYSTEM.into(), |_| {});
    content(&mut request);
    request.message(BATCH_END, 0, 0, SUBSYSTEM.into(), |_| {});
    Socket::open(0)?.request(&request)
}

/// Deletes a table if it exists: the table is first created, so that deleting it does not fail.
pub fn delete_table(request: &mut Request, family: u8, table: &str, comment: &str) {
    new_table(request, family, table, comment);
    request.message(DELETE_TABLE, ACKNOWLEDGE, family, 0, |content| {
        content.text(1, table);
    });
}

/// Makes a table with a comment, of at most 254 bytes.
pub fn new_table(request: &mut Request, family: u8, table: &str, comment: &str) {
    request.message(NEW_TABLE, ACKNOWLEDGE | CREATE, family, 0, |content| {
        content.text(1, table);
        content.bytes(TABLE_USER_DATA, &user_data(comment));
    });
}

/// A comment as `nft` shows it: `NFTNL_UDATA_TABLE_COMMENT`, its length, a text with a zero.
fn user_data(comment: &str) -> Vec<u8> {
    let text = comment.as_bytes();
    let length = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
    [&[0, length], text, &[0]].concat()
}

/// The chain `to_queue` of a table, at a hook.
pub fn new_chain(request: &mut Request, family: u8, table: &str, hook: u32, priority: i32) {
    request.message(NEW_CHAIN, ACKNOWLEDGE | CREATE, family, 0, |content| {
        content.text(1, table);
        content.text(3, CHAIN);
        content.nested(4, |attributes| {
            attributes.number(1, hook);
            attributes.number(2, priority.cast_unsigned());
        });
        content.text(7, "filter");
    });
}

/// A rule in the chain `to_queue`, of the expressions that `rule` writes.
pub fn new_rule(
    request: &mut Request,
    family: u8,
    table: &str,
    rule: impl FnOnce(&mut Attributes<'_>),
) {
    let flags = ACKNOWLEDGE | CREATE | APPEND;
    request.message(NEW_RULE, flags, family, 0, |content| {
        content.text(1, table);
        content.text(2, CHAIN);
        content.nested(4, rule);
    });
}

/// Loads a packet's `meta` key.
pub fn load_meta(rule: &mut Attributes<'_>, key: u32) {
    expression(rule, "meta", |content| {
        content.number(2, key);
        content.number(1, REGISTER);
    });
}

/// Applies a mask to the loaded value, 4 bytes in the machine's byte order.
pub fn mask(rule: &mut Attributes<'_>, mask: u32) {
    expression(rule, "bitwise", |content| {
        content.number(1, REGISTER);
        content.number(2, REGISTER);
        content.number(3, 4);
        content.nested(4, |value| value.bytes(1, &mask.to_ne_bytes()));
        content.nested(5, |value| value.bytes(1, &[0; 4]));
    });
}

/// Converts the loaded 4 bytes to network byte order, in which numbers are compared.
pub fn to_network_order(rule: &mut Attributes<'_>) {
    expression(rule, "byteorder", |content| {
        content.number(1, REGISTER);
        content.number(2, REGISTER);
        content.number(3, 1);
        content.number(4, 4);
        content.number(5, 4);
    });
}

/// Continues with the rule if the loaded value compares with `value` in this way.
pub fn compare(rule: &mut Attributes<'_>, comparison: Comparison, value: &[u8]) {
    expression(rule, "cmp", |content| {
        content.number(1, REGISTER);
        content.number(2, comparison as u32);
        content.nested(3, |data| data.bytes(1, value));
    });
}

/// Sets a packet's `meta` key to a number.
pub fn set_meta(rule: &mut Attributes<'_>, key: u32, value: u32) {
    expression(rule, "immediate", |content| {
        content.number(1, REGISTER);
        content.nested(2, |data| data.bytes(1, &value.to_ne_bytes()));
    });
    expression(rule, "meta", |content| {
        content.number(2, key);
        content.number(3, REGISTER);
    });
}

/// Puts the packet into a queue by the target NFQUEUE of xtables, which the kernel's nft_compat
/// offers as an expression. If no program listens to the queue, the packet passes.
pub fn queue_by_target(rule: &mut Attributes<'_>, queue: u16) {
    // `struct xt_NFQ_info_v3`: queue, queues, flags; padded as xtables pads (XT_ALIGN).
    let mut info = [0; 8];
    info[..2].copy_from_slice(&queue.to_ne_bytes());
    info[2..4].copy_from_slice(&1_u16.to_ne_bytes());
    info[4..6].copy_from_slice(&BYPASS.to_ne_bytes());
    expression(rule, "target", |content| {
        content.text(1, "NFQUEUE");
        content.number(2, TARGET_REVISION);
        content.bytes(3, &info);
    });
}

/// Puts the packet into a queue by the statement `queue` of nf_tables.
pub fn queue_by_statement(rule: &mut Attributes<'_>, queue: u16) {
    expression(rule, "queue", |content| {
        content.bytes(1, &queue.to_be_bytes());
        content.bytes(2, &1_u16.to_be_bytes());
        content.bytes(3, &BYPASS.to_be_bytes());
    });
}

fn expression(rule: &mut Attributes<'_>, name: &str, content: impl FnOnce(&mut Attributes<'_>)) {
    // `NFTA_LIST_ELEM`, then `NFTA_EXPR_NAME` and `NFTA_EXPR_DATA`.
    rule.nested(1, |expression| {
        expression.text(1, name);
        expression.nested(2, content);
    });
}
