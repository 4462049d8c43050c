//! The target NFQUEUE of xtables, in nftables tables of our own.
//!
//! Where the kernel lacks the statement `queue` of nftables, it may still have the target, which
//! `iptables-nft` uses through the expression `target` of nf_tables (the kernel's nft_compat).
//! `nft` cannot write that expression, so the tables are made here; no table of the host is
//! touched. One table for each family, since xtables knows none for both.

use std::io;

use super::leftovers;
use super::plan::{Marks, Place};
use crate::nfnetlink::{ACKNOWLEDGE, APPEND, Attributes, CREATE, Request, Socket, message_type};

/// <linux/netfilter/nf_tables.h>
const SUBSYSTEM: u8 = 10;
const NEW_TABLE: u16 = message_type(SUBSYSTEM, 0);
const DELETE_TABLE: u16 = message_type(SUBSYSTEM, 2);
const NEW_CHAIN: u16 = message_type(SUBSYSTEM, 3);
const NEW_RULE: u16 = message_type(SUBSYSTEM, 6);
/// `NFNL_MSG_BATCH_BEGIN` and `…_END`.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const FAMILIES: [u8; 2] = [2, 10];
/// `NF_INET_FORWARD`.
const FORWARD: u32 = 2;
const REGISTER: u32 = 1;
const META_MARK: u32 = 3;
const EQUAL: u32 = 0;
/// `struct xt_NFQ_info_v3` has this revision.
const REVISION: u32 = 3;
/// `NFTA_TABLE_USERDATA`.
const TABLE_USER_DATA: u16 = 6;
/// `NFQ_FLAG_BYPASS`.
const BYPASS: u16 = 1;

/// Name of the tables.
pub fn table(place: &Place) -> String {
    format!("{}_queue", place.table)
}

/// Makes the tables, in place of old ones.
pub fn install(place: &Place, marks: &Marks) -> io::Result<()> {
    let table = table(place);
    let mut request = Request::default();
    batch(&mut request, |request| {
        for family in FAMILIES {
            delete(request, family, &table);
            new_table(request, family, &table);
            let priority = place.forward_priority.saturating_add(1);
            new_chain(request, family, &table, priority);
            for mark in &marks.listeners {
                let rule = |content: &mut Attributes<'_>| {
                    expressions(content, marks.mask, *mark, place.queue);
                };
                new_rule(request, family, &table, rule);
            }
        }
    });
    Socket::open(0)?.request(&request)
}

/// Removes the tables, whether they are there or not.
pub fn remove(table: &str) -> io::Result<()> {
    let mut request = Request::default();
    batch(&mut request, |request| {
        for family in FAMILIES {
            delete(request, family, table);
        }
    });
    Socket::open(0)?.request(&request)
}

/// All messages in between take effect at once, or none does.
fn batch(request: &mut Request, content: impl FnOnce(&mut Request)) {
    request.message(BATCH_BEGIN, 0, 0, SUBSYSTEM.into(), |_| {});
    content(request);
    request.message(BATCH_END, 0, 0, SUBSYSTEM.into(), |_| {});
}

/// Made first, so that deleting it does not fail.
fn delete(request: &mut Request, family: u8, table: &str) {
    new_table(request, family, table);
    request.message(DELETE_TABLE, ACKNOWLEDGE, family, 0, |content| {
        content.text(1, table);
    });
}

fn new_table(request: &mut Request, family: u8, table: &str) {
    request.message(NEW_TABLE, ACKNOWLEDGE | CREATE, family, 0, |content| {
        content.text(1, table);
        content.bytes(TABLE_USER_DATA, &comment());
    });
}

/// A comment as `nft` shows it: `NFTNL_UDATA_TABLE_COMMENT`, its length, a text with a zero.
fn comment() -> Vec<u8> {
    let text = leftovers::OURS.as_bytes();
    let length = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
    [&[0, length], text, &[0]].concat()
}

fn new_chain(request: &mut Request, family: u8, table: &str, priority: i32) {
    request.message(NEW_CHAIN, ACKNOWLEDGE | CREATE, family, 0, |content| {
        content.text(1, table);
        content.text(3, "queue");
        content.nested(4, |hook| {
            hook.number(1, FORWARD);
            hook.number(2, priority.cast_unsigned());
        });
        content.text(7, "filter");
    });
}

fn new_rule(
    request: &mut Request,
    family: u8,
    table: &str,
    rule: impl FnOnce(&mut Attributes<'_>),
) {
    let flags = ACKNOWLEDGE | CREATE | APPEND;
    request.message(NEW_RULE, flags, family, 0, |content| {
        content.text(1, table);
        content.text(2, "queue");
        content.nested(4, rule);
    });
}

/// `meta mark & mask == mark`, then the target.
fn expressions(rule: &mut Attributes<'_>, mask: u32, mark: u32, queue: u16) {
    expression(rule, "meta", |content| {
        content.number(2, META_MARK);
        content.number(1, REGISTER);
    });
    expression(rule, "bitwise", |content| {
        content.number(1, REGISTER);
        content.number(2, REGISTER);
        content.number(3, 4);
        content.nested(4, |value| value.bytes(1, &mask.to_ne_bytes()));
        content.nested(5, |value| value.bytes(1, &[0; 4]));
    });
    expression(rule, "cmp", |content| {
        content.number(1, REGISTER);
        content.number(2, EQUAL);
        content.nested(3, |value| value.bytes(1, &mark.to_ne_bytes()));
    });
    // `struct xt_NFQ_info_v3`: queue, queues, flags; padded as xtables pads (XT_ALIGN).
    let mut info = [0; 8];
    info[..2].copy_from_slice(&queue.to_ne_bytes());
    info[2..4].copy_from_slice(&1_u16.to_ne_bytes());
    info[4..6].copy_from_slice(&BYPASS.to_ne_bytes());
    expression(rule, "target", |content| {
        content.text(1, "NFQUEUE");
        content.number(2, REVISION);
        content.bytes(3, &info);
    });
}

fn expression(rule: &mut Attributes<'_>, name: &str, content: impl FnOnce(&mut Attributes<'_>)) {
    // `NFTA_LIST_ELEM`, then `NFTA_EXPR_NAME` and `NFTA_EXPR_DATA`.
    rule.nested(1, |expression| {
        expression.text(1, name);
        expression.nested(2, content);
    });
}
