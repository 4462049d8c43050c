//! The check, on small trees of modules and as a program.

mod circles;
mod program;
mod random_trees;
