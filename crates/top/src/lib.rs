//! The live views of `midspan top` and of `midspan thin --watch`: is Midspan on, how full is the link, who fills it, which leg is
//! sick, what holds each session back.
//!
//! | module | content |
//! | --- | --- |
//! | [`numbers`] | numbers with units, in few columns |
//! | [`view`] | the state of the view, changed by answers and keys, without I/O |
//! | [`draw`] | the view as lines and a table |
//! | [`filter`] | the text of a filter while it is typed |
//! | [`terminal`] | the loop that joins a terminal, a proxy and the view |
//! | [`thin`] | the same for `midspan thin --watch` |
//!
//! The view changes nothing by itself: a key becomes an [`Action`](view::Action), which the program
//! carries out.

pub mod draw;
pub mod filter;
pub mod numbers;
pub mod terminal;
pub mod thin;
pub mod view;
