//! Small simulations that meet the bounds of large ones.

#![allow(clippy::unwrap_used)]

mod noisy;
mod small;
