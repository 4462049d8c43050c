//! The formulas, compared with the papers' numbers and in random cases.

mod common;
mod degenerate;
mod hasegawa;
mod maki;
mod properties;
mod shikama;
mod tam;
mod window;
