//! TCP sockets: their options, and what the kernel reports of them.
//!
//! `tcp(7)`, `socket(7)` and `<linux/tcp.h>` describe the options. Every function takes anything that has a
//! descriptor; the caller keeps the descriptor.
//!
//! - One option at a time: the functions `set_…` and those that read the options back.
//! - The memory of a socket's queues, and its limits: [`SocketMemory`] and the functions `limit_…`.
//! - A large receive window from the start: [`open_receive_window`], [`largest_open_window`].
//! - Results of the handshake (MSS, window scales), changed before the first byte is sent: [`repair`].
//! - `TCP_INFO`: [`information`]; of all connections of a network namespace: [`TcpSockets`].

mod information;
mod memory;
mod options;
pub(crate) mod raw;
mod receive_window;
mod repair;
mod signature;
mod sockets;
mod transparent;

pub use information::{Information, information};
pub use memory::{
    SocketMemory, limit_receive_queue, limit_send_queue, lock_queue_limits, memory,
    open_receive_window, unlock_receive_queue,
};
pub use options::{
    available_congestion_controls, begin_bbr_again, congestion_control, dscp, has_least_timeout,
    keepalive, least_timeout, load_congestion_control, mark, notsent_lowat, pacing_rate,
    receive_buffer, saved_dscp, send_buffer, set_ack_with_data, set_congestion_control, set_dscp,
    set_fast_open, set_keepalive, set_least_timeout, set_low_water_mark, set_mark,
    set_notsent_lowat, set_pacing_rate, set_receive_buffer, set_reset_on_close, set_save_syn,
    set_send_buffer, set_user_timeout, slow_start_again, try_repair, unacknowledged_bytes,
    unrestricted_congestion_controls, user_timeout,
};
pub use receive_window::largest_open_window;
pub use repair::{
    Agreed, LARGEST_WINDOW_SCALE, Repair, agreed, path_mtu, repair, route_again, set_cork,
    set_fragmenting, set_no_delay,
};
pub use signature::{set_ao_key, set_md5_key};
pub use sockets::{SocketName, TcpSocket, TcpSockets};
pub use transparent::{set_bind_address_no_port, set_transparent};
