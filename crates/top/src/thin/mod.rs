//! The live view of `midspan thin --watch`: how many ACKs are saved, on which connections, and how much of
//! the upstream's rate this saves. The view has the same kind of table, filter and keys as the view of a
//! proxy.
//!
//! | module | content |
//! | --- | --- |
//! | `view` | the state of the view, changed by reports and keys, without I/O |
//! | `draw` | the view as lines and a table |
//! | `terminal` | the loop that joins a terminal, reports and the view |

mod draw;
mod terminal;
mod view;

pub use draw::draw;
pub use terminal::{run, text};
pub use view::{Order, Rates, ThinRow, ThinView};
