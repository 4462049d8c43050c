//! Raises initial windows at the handshake, where it shows a long leg.
//!
//! A route gives a connection its initial window, and the mark that selects the route is chosen at the SYN, when the round
//! trip of an unknown client is not known yet. After the handshake, only a BPF program can change the window.

use std::io;
use std::os::fd::OwnedFd;

use midspan_linux::bpf::{self, Attached, Instruction, Register, event};
use midspan_units::TimeSpan;

/// Which connections get another initial window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raise {
    /// The marks of the connections.
    pub marks: Vec<u32>,
    /// The bits of the marks.
    pub mask: u32,
    /// The shortest round trip of the handshake.
    pub least_round_trip: TimeSpan,
    /// Their initial window, in segments.
    pub window: u32,
}

/// Where windows are raised: the connections that processes of one control group accept in one network namespace.
#[derive(Debug)]
pub struct RaisingPlace {
    group: OwnedFd,
    /// The kernel's number of the network namespace.
    namespace: u64,
}

impl RaisingPlace {
    /// The control group of this process, and the network namespace of the calling thread. Needs Linux 5.14.
    ///
    /// # Errors
    /// Those of [`bpf::own_group`] and [`bpf::network_namespace_cookie`].
    pub fn own() -> io::Result<Self> {
        Ok(Self {
            group: bpf::own_group()?,
            namespace: bpf::network_namespace_cookie()?,
        })
    }

    /// Puts this in force. Needs Linux 5.15.
    ///
    /// # Errors
    /// Those of [`bpf::attach`], and `InvalidInput` if there are too many marks for a program.
    pub fn raise(&self, raise: Raise) -> io::Result<RaisedWindows> {
        let instructions = program(&raise, self.namespace)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too many marks"))?;
        let attached = bpf::attach(&self.group, &instructions)?;
        Ok(RaisedWindows {
            raise,
            _attached: attached,
        })
    }

    /// Whether this is possible here. Puts a program in force that raises no window, and removes it.
    ///
    /// # Errors
    /// Those of [`raise`](Self::raise).
    pub fn try_it(&self) -> io::Result<()> {
        let none = Raise {
            marks: Vec::new(),
            mask: 0,
            least_round_trip: TimeSpan::ZERO,
            window: 1,
        };
        self.raise(none).map(drop)
    }
}

/// Raises the windows of connections that are accepted, until this value is dropped.
#[derive(Debug)]
pub struct RaisedWindows {
    raise: Raise,
    _attached: Attached,
}

impl RaisedWindows {
    /// What is in force.
    #[must_use]
    pub const fn raise(&self) -> &Raise {
        &self.raise
    }
}

/// The program for sockets of the network namespace with this cookie; `None` if there are too many marks.
fn program(raise: &Raise, cookie: u64) -> Option<Vec<Instruction>> {
    use Instruction as I;
    use Register::{R0, R1, R2, R3, R4, R5, R6, R10};

    let window = i32::try_from(raise.window).ok()?;
    let eightfold = (raise.least_round_trip.nanoseconds() / 1_000).checked_mul(8)?;
    let eightfold = u32::try_from(eightfold).ok()?;
    let end = [I::set(R0, 1), I::exit()];
    let set = [
        I::copy(R1, R6),
        I::set(R2, window),
        I::write(R10, -4, R2),
        I::copy(R4, R10),
        I::add(R4, -4),
        I::set(R2, event::TCP),
        I::set(R3, event::INITIAL_WINDOW),
        I::set(R5, 4),
        I::set_socket_option(),
    ];
    // A long leg with one of the marks comes to these instructions. Another Midspan may use the same marks elsewhere.
    let [low, high] = I::set_wide(R2, cookie);
    let namespace = [
        I::namespace_cookie(),
        low,
        high,
        I::skip_if_same(R0, R2, 1),
        I::skip(i16::try_from(set.len()).ok()?),
    ];
    let to_end = i16::try_from(namespace.len() + set.len()).ok()?;
    let count = i16::try_from(raise.marks.len()).ok()?;
    // One comparison for each mark, and a jump to the end if none is equal.
    let marks = raise.marks.iter().zip(0_i16..);
    let marks = marks.map(|(mark, before)| I::skip_if_equal(R2, mark & raise.mask, count - before));
    let past_marks = count.checked_add(1 + to_end)?;
    let begin = [
        I::copy(R6, R1),
        I::read(R2, R1, event::KIND),
        I::skip_if_equal(R2, event::ACCEPTED, 1),
        I::skip(past_marks.checked_add(7)?),
        I::read(R2, R1, event::ROUND_TRIP_EIGHTFOLD),
        I::skip_if_at_least(R2, eightfold, 1),
        I::skip(past_marks.checked_add(4)?),
        I::read_address(R2, R1, event::SOCKET),
        I::skip_if_zero(R2, past_marks.checked_add(2)?),
        I::read(R2, R2, event::SOCKET_MARK),
        I::and(R2, raise.mask),
    ];
    let program = begin.into_iter().chain(marks).chain([I::skip(to_end)]);
    Some(program.chain(namespace).chain(set).chain(end).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise(marks: Vec<u32>) -> Raise {
        Raise {
            marks,
            mask: 0x0f00_0000,
            least_round_trip: TimeSpan::from_milliseconds(150),
            window: 640,
        }
    }

    #[test]
    fn all_jumps_stay_within_the_program() {
        for count in [0, 1, 15, 1000] {
            let program = program(&raise(vec![0x0100_0000; count]), 1).unwrap();
            assert_eq!(program.len(), 28 + count);
        }
        assert_eq!(program(&raise(vec![0; 40_000]), 1), None);
    }

    #[test]
    fn a_round_trip_that_the_kernel_cannot_have_is_refused() {
        let long = Raise {
            least_round_trip: TimeSpan::from_seconds(3_600),
            ..raise(vec![1])
        };
        assert_eq!(program(&long, 1), None);
    }
}
