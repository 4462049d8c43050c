//! The messages of a relay that hands its sessions over.

mod format;
mod properties;
