//! The live views of `midspan top` and of `midspan thin --watch`.
//!
//! The view of `midspan top` answers these questions. Is Midspan on? How full is the link, and who fills it?
//! Which leg has a problem? What holds each session back?
//!
//! | module | content |
//! | --- | --- |
//! | [`numbers`] | numbers with units, in few columns |
//! | [`view`] | the state of the view, changed by answers and keys, without I/O |
//! | [`draw`] | the view as lines and a table |
//! | [`filter`] | the text of a filter while it is typed |
//! | [`terminal`] | the loop that joins a terminal, a proxy and the view |
//! | [`thin`] | the view of `midspan thin --watch`, with a state, a drawing and a loop of its own |
//!
//! The view of `midspan top` never changes the proxy. A key changes what is shown, or becomes an
//! [`Action`](view::Action), which the terminal loop or the program carries out.

pub mod draw;
pub mod filter;
pub mod numbers;
pub mod terminal;
pub mod thin;
pub mod view;
