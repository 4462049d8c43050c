//! `midspan lab` and `midspan conformance` on real kernels. A lab run must keep up with its clock, so
//! these tests have a program of their own, in which one lab run waits for the other.

#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod lab;
mod lab_command;
mod lab_overlay;
mod lab_shell;
mod lab_traces;
