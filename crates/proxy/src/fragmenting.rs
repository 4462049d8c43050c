//! The fragmenter at work: its thread reads oversized packets from a TUN device, cuts them, and sends the
//! fragments.
//!
//! The fragmenter is for packets that IP itself does not cut to the right size: TCP over IPv6, and fragments
//! that are to be smaller than the MTU of the outgoing device. All memory is bounded: the kernel's queue of
//! the device has 500 packets, the thread handles one packet at a time, and it stores identifications for a
//! limited number of address pairs. A packet or fragment may be lost here, as on any link. A client that gets
//! no oversized segments falls back to normal segments within one time-out.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use midspan_fragmenter::{Counters, Fragmenter, LEAST_MTU};
use midspan_linux::raw_packet::RawSocket;
use midspan_linux::tun::LARGEST_PACKET;
use midspan_relay::OpenListener;
use midspan_relay::profile::{self, AccessProfile, SIX_FRAGMENT};
use midspan_units::Time;
use rustix::io::Errno;
use tracing::error;

/// Address pairs of which identifications are remembered.
const PAIR_LIMIT: usize = 65_536;

const TCP: u8 = 6;

/// What a fragmenter has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fragments {
    /// With packets that it could read.
    pub cut: Counters,
    /// Packets that were not for it.
    pub foreign: u64,
    /// Packets of which the kernel did not take a fragment.
    pub unsent: u64,
}

/// The numbers, for those who read them.
#[derive(Debug, Clone, Default)]
pub(crate) struct FragmentCounters(Arc<Mutex<Fragments>>);

impl FragmentCounters {
    /// As they are now.
    pub fn now(&self) -> Fragments {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, fragments: Fragments) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fragments;
    }
}

/// How large fragments are, by client.
#[derive(Debug, Clone, Default)]
pub(crate) struct FragmentSizes(Arc<Mutex<Arc<[AccessProfile]>>>);

impl FragmentSizes {
    /// Takes the profiles over; all listeners have the same. Without a listener, the sizes stay: sessions of
    /// removed listeners continue.
    pub fn set(&self, listeners: &[OpenListener]) {
        if let Some(open) = listeners.first() {
            let profiles = open.listener.profiles.clone().into();
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = profiles;
        }
    }

    /// For packets to this client.
    fn of(&self, client: IpAddr) -> usize {
        let profiles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = profile::find(&profiles, client);
        let size = place.and_then(|place| profiles.get(place)?.fragment_size);
        usize::try_from(size.unwrap_or(SIX_FRAGMENT)).unwrap_or(LEAST_MTU)
    }
}

/// Starts the fragmenter's thread, which ends with the process. `mark` is that of its fragments;
/// the descriptors are of the device and of raw sockets for IPv4 and, where the kernel has it, IPv6.
pub(crate) fn start(
    mark: u32,
    descriptors: Vec<OwnedFd>,
    sizes: &FragmentSizes,
    counters: &FragmentCounters,
) -> std::io::Result<()> {
    let mut descriptors = descriptors.into_iter();
    let packets = descriptors.next().ok_or(std::io::ErrorKind::InvalidInput)?;
    let raw = [descriptors.next(), descriptors.next()];
    let worker = Worker {
        packets,
        raw: raw.map(|raw| raw.map(RawSocket::from_socket)),
        mark,
        sizes: sizes.clone(),
        counters: counters.clone(),
        fragmenter: Fragmenter::new(LEAST_MTU, PAIR_LIMIT, RandomState::new().hash_one(mark)),
        start: Instant::now(),
        fragments: Fragments::default(),
    };
    let thread = std::thread::Builder::new().name("fragmenter".to_owned());
    thread.spawn(move || {
        let error = worker.run();
        error!("clients whose packets have to be cut get normal segments only: {error}");
    })?;
    Ok(())
}

struct Worker {
    packets: OwnedFd,
    /// For IPv4 and IPv6; `None` for a family that the kernel lacks.
    raw: [Option<RawSocket>; 2],
    mark: u32,
    sizes: FragmentSizes,
    counters: FragmentCounters,
    fragmenter: Fragmenter,
    start: Instant,
    fragments: Fragments,
}

impl Worker {
    /// Cuts packets until none can be had any more.
    fn run(mut self) -> Errno {
        let mut buffer = vec![0; LARGEST_PACKET as usize];
        loop {
            match rustix::io::read(&self.packets, &mut buffer) {
                Ok(0) => return Errno::PIPE,
                Ok(length) => self.handle(buffer.get(..length).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(error) => return error,
            }
        }
    }

    fn handle(&mut self, packet: &[u8]) {
        match client(packet) {
            Some(client) => self.cut(packet, client),
            None => self.fragments.foreign += 1,
        }
        self.fragments.cut = self.fragmenter.counters();
        self.counters.set(self.fragments);
    }

    fn cut(&mut self, packet: &[u8], client: IpAddr) {
        self.fragmenter.set_mtu(self.sizes.of(client));
        let [four, six] = &mut self.raw;
        let raw = if client.is_ipv4() { four } else { six };
        let (mark, mut is_sent) = (self.mark, true);
        let now = Time::ZERO + self.start.elapsed().into();
        // What is refused is in the fragmenter's own numbers.
        let _ = self.fragmenter.fragment(now, packet, |fragment| {
            // Without one the others are of no use.
            let mut send = || {
                raw.as_mut()
                    .is_some_and(|raw| raw.send(fragment, mark).is_ok())
            };
            is_sent = is_sent && send();
        });
        self.fragments.unsent += u64::from(!is_sent);
    }
}

/// Where a TCP packet goes; `None` for anything else that a kernel may send through a device, as
/// the search for IPv6 routers.
pub(crate) fn client(packet: &[u8]) -> Option<IpAddr> {
    let (client, protocol) = midspan_wire::destination(packet)?;
    if protocol != TCP {
        return None;
    }
    (!client.is_multicast() && !client.is_unspecified()).then_some(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_policy::oversized_segments::SegmentSizes;
    use midspan_policy::sending_ahead::SendAhead;
    use midspan_relay::{Destination, Listener};
    use midspan_units::TimeSpan;

    #[test]
    fn the_sizes_stay_while_there_is_no_listener() {
        let with = |fragment_size| OpenListener {
            listener: Listener {
                profiles: vec![AccessProfile {
                    name: "all".to_owned(),
                    clients: Vec::new(),
                    downstream: None,
                    upstream: None,
                    oversized_segments: SegmentSizes::Off,
                    send_ahead: SendAhead::Off,
                    fragment_size,
                    timestamps: true,
                    hold_to_fill: TimeSpan::ZERO,
                }],
                ..Listener::new("test", Destination::Original)
            },
            sockets: Vec::new(),
        };
        let sizes = FragmentSizes::default();
        let client = "192.0.2.1".parse().unwrap();
        assert_eq!(sizes.of(client), SIX_FRAGMENT as usize);
        sizes.set(&[with(Some(576))]);
        sizes.set(&[]);
        assert_eq!(sizes.of(client), 576);
        sizes.set(&[with(None)]);
        assert_eq!(sizes.of(client), SIX_FRAGMENT as usize);
    }

    #[test]
    fn only_tcp_to_one_host_is_for_it() {
        let mut four = vec![0; 40];
        (four[0], four[9]) = (0x45, TCP);
        four[16..20].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(client(&four), Some("192.0.2.1".parse().unwrap()));
        four[16] = 224;
        assert_eq!(client(&four), None);
        let mut six = vec![0; 60];
        (six[0], six[6], six[39]) = (0x60, TCP, 1);
        assert_eq!(client(&six), Some("::1".parse().unwrap()));
        six[6] = 58;
        assert_eq!(client(&six), None);
        for length in 0..20 {
            assert_eq!(client(&four[..length]), None);
            assert_eq!(client(&vec![0x60; length]), None);
        }
    }
}
