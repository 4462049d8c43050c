//! Sweeps as their callers use them.

mod results;
mod sweep;
