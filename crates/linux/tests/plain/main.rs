//! System calls with sockets of this machine.

mod descriptor_passing;
mod tcp;
