//! The recommended settings for each proxy of a unidirectional path, and the reasons.

use midspan_model::asymmetry::{self, AdvisedSegment, Asymmetry};
use midspan_model::buffer;
use midspan_model::burst::{self, Bottleneck};
use midspan_model::leg::Limit;
use midspan_model::overlay::{Analysis, ChainedLeg};
use midspan_policy::Buffer;
use midspan_units::{BitRate, ByteSize};

use crate::PlanError;
use crate::answer::Answer;
use crate::data_path::{DELAYED_ACK, DataPath, PACKET, ProxyOnPath, RECEIVE_WINDOW, SEND_BUFFER};

/// Share of the throughput with endless buffers that a recommended buffer must reach.
pub const KNEE: f64 = 0.98;
/// A change must improve the result by this factor to be recommended.
const WORTHWHILE: f64 = 1.05;
/// Initial windows that are tried, in segments.
const INITIAL_WINDOWS: [u32; 5] = [10, 20, 50, 100, 200];

/// The recommendation for one proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyAdvice {
    /// The node.
    pub node: String,
    /// Buffer that the inbound leg needs: the data in flight on it.
    pub receive_buffer: ByteSize,
    /// Buffer that the outbound leg needs: the knee of throughput as a function of send buffer.
    pub send_buffer: ByteSize,
    /// Rate for pacing the outbound leg, if its queue would overflow otherwise.
    pub pacing: Option<Pacing>,
    /// The load of the outbound leg's ACKs, and the remedies.
    pub acks: Acks,
    /// The settings that are recommended.
    pub settings: ProxyOnPath,
}

/// The reason for pacing, and the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// The rate: that of the slowest link before the proxy, at most that of the slowest link after
    /// it.
    pub rate: BitRate,
    /// Packets that a loss on the inbound leg may release at once.
    pub burst: u64,
    /// The packets of the burst for which the queue after the proxy has no room.
    pub lost: u64,
}

/// The load of ACKs on the return direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Acks {
    /// k: the number of data packets in the time of one ACK.
    pub k: f64,
    /// Packets per ACK that the return direction needs (Tam's ppa); at least the usual 2.
    pub packets_per_ack: u32,
    /// Data bytes of a segment that the return direction needs (Hasegawa); the normal size if that
    /// suffices.
    pub segment: AdvisedSegment,
}

impl Acks {
    /// Whether the return direction has no room for ordinary ACKs.
    #[must_use]
    pub fn congested(&self) -> bool {
        self.k > f64::from(DELAYED_ACK.get())
    }
}

/// The recommended settings for every proxy of `data_path`; `answer` is the analysis of
/// `data_path` as configured.
///
/// # Errors
/// None for the answer of this unidirectional path.
pub fn advise(data_path: &DataPath, answer: &Answer) -> Result<Vec<ProxyAdvice>, PlanError> {
    let controlled = with_better_senders(data_path, &answer.proxies)?;
    let mut settings = with_initial_windows(data_path, controlled)?;
    let free = Answer::new(data_path, &unbuffered(&settings))?;
    let send_buffer = knee(&free.legs)?;
    let mut advice = Vec::new();
    for (index, proxy) in settings.iter_mut().enumerate() {
        let (inbound, outbound) = (&free.legs[index], &free.legs[index + 1]);
        let receive_buffer = buffer::in_flight(&inbound.leg, free.outcome.throughput);
        let pacing = pacing(data_path, proxy.position, inbound, outbound);
        proxy.outbound.pacing_rate = proxy
            .outbound
            .pacing_rate
            .or(pacing.map(|pacing| pacing.rate));
        proxy.outbound.send_buffer = larger(proxy.outbound.send_buffer, send_buffer, SEND_BUFFER);
        proxy.inbound.receive_buffer =
            larger(proxy.inbound.receive_buffer, receive_buffer, RECEIVE_WINDOW);
        advice.push(ProxyAdvice {
            node: data_path
                .nodes
                .get(proxy.position)
                .cloned()
                .unwrap_or_default(),
            receive_buffer,
            send_buffer,
            pacing,
            acks: acks(data_path, outbound),
            settings: proxy.clone(),
        });
    }
    Ok(advice)
}

/// Smallest send buffer of every proxy that reaches [`KNEE`] of the throughput with endless ones.
///
/// # Errors
/// None for a chain that can be analysed.
pub fn knee(legs: &[ChainedLeg]) -> Result<ByteSize, PlanError> {
    Ok(buffer::knee(legs, KNEE, &Analysis::default())?)
}

/// `proxies` with buffers that are never the limit.
fn unbuffered(proxies: &[ProxyOnPath]) -> Vec<ProxyOnPath> {
    let mut proxies = proxies.to_vec();
    for proxy in &mut proxies {
        proxy.inbound.receive_buffer = Buffer::Fixed(buffer::LARGEST);
        proxy.outbound.send_buffer = Buffer::Fixed(buffer::LARGEST);
    }
    proxies
}

/// The buffer unchanged, unless `needed` is larger than it: then `needed`, rounded up to a multiple
/// of 64 KiB.
fn larger(buffer: Buffer, needed: ByteSize, automatic: ByteSize) -> Buffer {
    let holds = match buffer {
        Buffer::Auto | Buffer::Adaptive => automatic,
        Buffer::Fixed(size) => size,
    };
    if needed <= holds {
        return buffer;
    }
    let unit = 64 << 10;
    let size = needed.bytes().div_ceil(unit).saturating_mul(unit);
    Buffer::Fixed(ByteSize::from_bytes(size.min(LARGEST_BUFFER)))
}

/// Largest buffer that a configuration may set: 1 GB.
const LARGEST_BUFFER: u64 = 1_000_000_000;

/// Chooses BBR if loss limits a proxy's leg and BBR improves the throughput.
fn with_better_senders(
    data_path: &DataPath,
    proxies: &[ProxyOnPath],
) -> Result<Vec<ProxyOnPath>, PlanError> {
    let mut proxies = proxies.to_vec();
    for index in 0..proxies.len() {
        let before = Answer::new(data_path, &proxies)?;
        let leg = index + 1;
        if before.outcome.legs[leg].isolated.limit != Limit::Loss {
            continue;
        }
        let alone = |answer: &Answer| {
            answer.outcome.legs[leg]
                .isolated
                .throughput
                .bits_per_second()
        };
        let mut changed = proxies.clone();
        changed[index].outbound.congestion_control = Some("bbr".to_owned());
        let after = Answer::new(data_path, &changed)?;
        if alone(&after) > alone(&before) * WORTHWHILE {
            proxies = changed;
        }
    }
    Ok(proxies)
}

/// Chooses the smallest initial window with which 1 MB takes hardly longer than with the best one,
/// if that improves the result.
fn with_initial_windows(
    data_path: &DataPath,
    mut proxies: Vec<ProxyOnPath>,
) -> Result<Vec<ProxyOnPath>, PlanError> {
    for index in 0..proxies.len() {
        let current = proxies[index].outbound.initial_window;
        if current.is_some() {
            continue;
        }
        let mut times = Vec::new();
        for window in INITIAL_WINDOWS {
            proxies[index].outbound.initial_window = Some(window);
            let answer = Answer::new(data_path, &proxies)?;
            // Not more than the leg holds in flight and in its queue.
            let leg = &answer.legs[index + 1].leg;
            let packet = f64::from(PACKET);
            let fits = leg.section.rate() / 8.0 * leg.section.round_trip() / packet
                + leg.section.queue().unwrap_or(0.0) / packet;
            if let Some(time) = answer.completion[1].filter(|_| f64::from(window) <= fits.max(10.0))
            {
                times.push((window, time));
            }
        }
        proxies[index].outbound.initial_window = current;
        let (Some(first), Some(best)) = (
            times.first(),
            times.iter().map(|(_, time)| *time).reduce(f64::min),
        ) else {
            continue;
        };
        if first.1 > best * WORTHWHILE {
            let least = times.iter().find(|(_, time)| *time <= best * 1.02);
            proxies[index].outbound.initial_window = least.map(|(window, _)| *window);
        }
    }
    Ok(proxies)
}

/// Pacing for the outbound leg of the proxy at `position`, if a burst overflows a queue.
fn pacing(
    data_path: &DataPath,
    position: usize,
    inbound: &ChainedLeg,
    outbound: &ChainedLeg,
) -> Option<Pacing> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Whole packets.
    let burst = burst::mean_burst(&inbound.leg) as u64;
    let bits = |rate: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        BitRate::from_bits_per_second(rate as u64)
    };
    let (arriving, leaving) = (
        data_path.hops.hops().get(position)?.rate,
        bits(outbound.leg.section.rate())?,
    );
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let queue = (outbound.leg.section.queue()? / f64::from(PACKET)) as u64;
    let overflow = Bottleneck {
        arriving,
        leaving,
        queue,
    }
    .meet(burst);
    // If the bottleneck is the link right after the proxy, the proxy's own queue receives the
    // burst.
    let overflow = if arriving == leaving {
        Bottleneck {
            arriving: bits(inbound.leg.section.rate())?.max(leaving),
            leaving,
            queue,
        }
        .meet(burst)
    } else {
        overflow
    };
    (overflow.lost > 0).then(|| Pacing {
        rate: burst::pacing_rate(bits(inbound.leg.section.rate()).unwrap_or(leaving), leaving),
        burst,
        lost: overflow.lost,
    })
}

/// The load of ACKs on the return direction of `outbound`.
fn acks(data_path: &DataPath, outbound: &ChainedLeg) -> Acks {
    let section = &outbound.leg.section;
    let normal = AdvisedSegment {
        segment: outbound.leg.transport.payload(),
        fragments: 1,
    };
    let none = Acks {
        k: 0.0,
        packets_per_ack: DELAYED_ACK.get(),
        segment: normal,
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Whole bit/s.
    let bits = |rate: f64| BitRate::from_bits_per_second(rate as u64);
    let (Some(downstream), Some(upstream)) =
        (bits(section.rate()), section.return_rate().and_then(bits))
    else {
        return none;
    };
    let asymmetry = Asymmetry {
        downstream,
        upstream,
        data_size: outbound.leg.transport.payload() + outbound.leg.transport.headers(),
        ack_size: outbound.leg.transport.ack_size,
    };
    let packets_per_ack = asymmetry
        .packets_per_ack()
        .map_or(u32::MAX, std::num::NonZeroU32::get);
    let segment = if asymmetry.k() > f64::from(DELAYED_ACK.get()) {
        let window = data_path
            .receiver
            .receive_buffer
            .map_or(RECEIVE_WINDOW, |size| {
                ByteSize::from_bytes(size.bytes() / 2)
            });
        asymmetry::advised_segment(PACKET, window, None).unwrap_or(normal)
    } else {
        normal
    };
    Acks {
        k: asymmetry.k(),
        packets_per_ack: packets_per_ack.max(DELAYED_ACK.get()),
        segment,
    }
}
