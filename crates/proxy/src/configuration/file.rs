//! The structure of the file: one struct per table, one field per key.

use std::collections::BTreeMap;

use midspan_document::{Located, Source, Spanned};
use midspan_gateway::initial_window::{MarkField, WindowNumbers};
use midspan_policy::overlay::Overlay;
use midspan_policy::{Handshake, LegSettings, PolicyName, SessionSettings};
use midspan_relay::HeaderVersion;
use midspan_relay::profile::AccessProfile;
use midspan_relay::{Destination, ListenerLimits, RelayLimits, ServiceClass};
use midspan_service::logging::LogSettings;
use midspan_units::{ByteSize, Probability, TimeSpan};
use serde::Deserialize;

use super::admin::AdminTable;
use super::control::ControlTable;
use super::explicit::{
    AccessKey, ExplicitKeys, Networks, explicit, negotiation, overlay_of_transparent,
};
use super::limits::{LimitsTable, ListenerLimitKeys};
use super::overlay::OverlayTable;
use super::profile::{ProfileTable, profiles};
use super::servers::{To, servers};
use super::source_addresses::{SourceKey, source_addresses};
use super::state::state_directory;
use super::transparent::{Family, Hosts, InterceptionTable, Ports, Quic, TransparentKeys};
use super::values::{Address, within};

use super::{Configuration, Forward, Listener, Mode, Places, RelaySettings, THREAD_LIMIT};

/// Finds peers that have vanished, and keeps entries of other hosts' connection tables alive, which
/// expire after minutes to hours.
const DEFAULT_KEEPALIVE: TimeSpan = TimeSpan::from_seconds(600);

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    relay: RelayTable,
    #[serde(default)]
    limits: LimitsTable,
    #[serde(default)]
    log: LogSettings,
    #[serde(default)]
    marks: MarksTable,
    #[serde(default)]
    interception: InterceptionTable,
    #[serde(default)]
    control: ControlTable,
    #[serde(default)]
    admin: Option<AdminTable>,
    #[serde(default)]
    profile: BTreeMap<String, Spanned<ProfileTable>>,
    #[serde(default)]
    overlay: Option<OverlayTable>,
    listener: Spanned<Vec<ListenerTable>>,
}

/// `[relay]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RelayTable {
    threads: Option<Spanned<usize>>,
    pin_threads: bool,
    pipe_size: Option<Spanned<ByteSize>>,
    pipe_memory: Option<Spanned<ByteSize>>,
    drain_timeout: Option<Spanned<TimeSpan>>,
    upgrade_timeout: Option<Spanned<TimeSpan>>,
    lame_duck_time: Option<Spanned<TimeSpan>>,
    reset_timeout: Option<Spanned<TimeSpan>>,
    user: Option<Spanned<String>>,
    state_directory: Option<Spanned<String>>,
}

/// `[marks]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MarksTable {
    mask: Option<Spanned<u32>>,
    table: Option<Spanned<u32>>,
    priority: Option<Spanned<u32>>,
}

/// `[[listener]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerTable {
    name: Spanned<String>,
    #[serde(default)]
    mode: ModeKey,
    #[serde(default)]
    listen: Option<Spanned<Address>>,
    #[serde(default)]
    to: Option<Spanned<To>>,
    #[serde(default)]
    health_check: Option<Spanned<TimeSpan>>,
    #[serde(default)]
    interfaces: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    families: Option<Spanned<Vec<Family>>>,
    #[serde(default)]
    ports: Option<Spanned<Vec<Ports>>>,
    #[serde(default)]
    except_ports: Option<Spanned<Vec<Ports>>>,
    #[serde(default)]
    except: Option<Spanned<Vec<Hosts>>>,
    #[serde(default)]
    handshake: Option<Spanned<Handshake>>,
    #[serde(default)]
    users: Option<Spanned<BTreeMap<String, String>>>,
    #[serde(default)]
    clients: Option<Spanned<Networks>>,
    #[serde(default)]
    access: Option<Spanned<Vec<Spanned<AccessKey>>>>,
    #[serde(default)]
    negotiation_timeout: Option<Spanned<TimeSpan>>,
    #[serde(default)]
    accept_proxy_protocol: Option<Spanned<bool>>,
    #[serde(default)]
    proxy_protocol_from: Option<Spanned<Networks>>,
    #[serde(default)]
    send_proxy_protocol: Option<Spanned<HeaderVersion>>,
    #[serde(default)]
    overlay: Option<Spanned<bool>>,
    #[serde(default)]
    connect_timeout: Option<Spanned<TimeSpan>>,
    #[serde(default)]
    sessions: Option<Spanned<u32>>,
    #[serde(default)]
    sessions_per_client: Option<Spanned<u32>>,
    #[serde(default)]
    idle_timeout: Option<Spanned<TimeSpan>>,
    #[serde(default)]
    half_closed_timeout: Option<Spanned<TimeSpan>>,
    #[serde(default)]
    learned_window_limit: Option<Spanned<u32>>,
    #[serde(default)]
    quic: Option<Spanned<Quic>>,
    #[serde(default)]
    control_group: Option<Spanned<Probability>>,
    #[serde(default)]
    firewall_cache: Option<Spanned<TimeSpan>>,
    #[serde(default)]
    dscp: ServiceClass,
    #[serde(default)]
    source: Option<Spanned<SourceKey>>,
    #[serde(default)]
    policy: PolicyName,
    #[serde(default)]
    client_leg: Option<Spanned<LegSettings>>,
    #[serde(default)]
    server_leg: Option<Spanned<LegSettings>>,
}

/// What a listener does with a connection.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModeKey {
    /// Connects to one fixed address, or to one of several servers.
    #[default]
    Forward,
    /// Connects to the server that the client requests by SOCKS5.
    Socks5,
    /// Connects to the server that the client requests by HTTP.
    Http,
    /// Accepts the hops of the overlay's other nodes.
    Hop,
    /// Intercepts connections that this machine forwards.
    Transparent,
}

/// Data is in a pipe for a moment only, so that a few serve many sessions.
const DEFAULT_PIPES_PER_THREAD: u64 = 8;
/// Below the 64 MiB that the kernel allows an ordinary user before it hands out small pipes
/// (`fs.pipe-user-pages-soft`).
const DEFAULT_PIPE_MEMORY: ByteSize = ByteSize::from_bytes(48 << 20);
const DEFAULT_DRAIN_TIMEOUT: TimeSpan = TimeSpan::from_seconds(30);
const DEFAULT_UPGRADE_TIMEOUT: TimeSpan = TimeSpan::from_seconds(86_400);
const DEFAULT_RESET_TIMEOUT: TimeSpan = TimeSpan::from_seconds(30);
const DEFAULT_CONNECT_TIMEOUT: TimeSpan = TimeSpan::from_seconds(30);
/// Four bits that no widely used program uses (Tailscale: 0x00ff0000, kube-proxy: 0xc000).
const DEFAULT_MASK: u32 = 0x0f00_0000;
const DEFAULT_TABLE: u32 = 7700;
/// Just before the main table's rule, so that every other rule still decides first.
const DEFAULT_PRIORITY: u32 = 32_765;

pub(super) fn read(source: &Source) -> Result<Configuration, Located> {
    let mut file: File = midspan_document::read(source)?;
    let listeners = file.listener.span();
    let marks = file.marks.checked(source)?;
    let modes = file.listener.get_ref().iter().map(|listener| listener.mode);
    let is_transparent = modes
        .into_iter()
        .any(|mode| matches!(mode, ModeKey::Transparent));
    let (limits, still, memory_is_set) = file.limits.checked(source)?;
    let profiles = profiles(source, file.profile, is_transparent)?;
    let members = (file.overlay.as_ref()).and_then(|overlay| overlay.members_file(source));
    let overlay = file
        .overlay
        .map(|overlay| overlay.checked(source))
        .transpose()?;
    let configuration = Configuration {
        state: state_directory(source, file.relay.state_directory.take())?,
        relay: RelaySettings {
            memory_is_set,
            ..file.relay.checked(source, limits)?
        },
        log: file.log,
        marks,
        interception: file.interception.checked(source, marks.marks)?,
        control: file.control.checked(source)?,
        admin: file.admin.map(|admin| admin.checked(source)).transpose()?,
        listeners: file
            .listener
            .into_inner()
            .into_iter()
            .map(|listener| listener.checked(source, &still, &profiles, overlay.as_ref()))
            .collect::<Result<_, _>>()?,
        profiles,
        members,
        source: source.clone(),
    };
    if configuration.listeners.is_empty() {
        return Err(Located::new(source, listeners, "there is no listener")
            .with_help("write at least one [[listener]] with name, listen and to"));
    }
    Ok(configuration)
}

impl RelayTable {
    fn checked(self, source: &Source, limits: RelayLimits) -> Result<RelaySettings, Located> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let span = |value: &Option<Spanned<ByteSize>>| value.as_ref().map(Spanned::span);
        let pipe_span = span(&self.pipe_memory).or(span(&self.pipe_size));
        let threads = within(
            source,
            "threads",
            self.threads,
            cores.min(THREAD_LIMIT),
            1..=THREAD_LIMIT,
        )?;
        let pipe_memory = within(
            source,
            "pipe_memory",
            self.pipe_memory,
            DEFAULT_PIPE_MEMORY,
            ByteSize::from_bytes(0)..=ByteSize::from_bytes(64 << 30),
        )?;
        let pipe_size = within(
            source,
            "pipe_size",
            self.pipe_size,
            default_pipe_size(pipe_memory, threads),
            ByteSize::from_bytes(4 << 10)..=ByteSize::from_bytes(64 << 20),
        )?;
        // No pipe at all is a choice: everything is copied then.
        if pipe_memory.bytes() != 0 && pipe_memory.bytes() / (threads as u64) < pipe_size.bytes() {
            let message = format!(
                "pipe_memory ({pipe_memory}) has no room for one pipe ({pipe_size}) of each of \
                 {threads} threads"
            );
            return Err(Located::new(source, pipe_span.unwrap_or(0..0), message)
                .with_help("enlarge pipe_memory, or set it to \"0 B\" to use no pipes"));
        }
        Ok(RelaySettings {
            threads,
            pin_threads: self.pin_threads,
            pipe_size,
            pipe_memory,
            drain_timeout: within(
                source,
                "drain_timeout",
                self.drain_timeout,
                DEFAULT_DRAIN_TIMEOUT,
                TimeSpan::ZERO..=TimeSpan::from_seconds(86_400),
            )?,
            upgrade_timeout: within(
                source,
                "upgrade_timeout",
                self.upgrade_timeout,
                DEFAULT_UPGRADE_TIMEOUT,
                TimeSpan::ZERO..=TimeSpan::from_seconds(720 * 3_600),
            )?,
            lame_duck_time: within(
                source,
                "lame_duck_time",
                self.lame_duck_time,
                TimeSpan::ZERO,
                TimeSpan::ZERO..=TimeSpan::from_seconds(3_600),
            )?,
            reset_timeout: within(
                source,
                "reset_timeout",
                self.reset_timeout,
                DEFAULT_RESET_TIMEOUT,
                TimeSpan::ZERO..=TimeSpan::from_seconds(3_600),
            )?,
            limits,
            memory_is_set: false,
            user: self.user.map(Spanned::into_inner),
        })
    }
}

/// The largest of 1 MiB, 512 KiB, … 64 KiB that leaves each thread enough pipes.
fn default_pipe_size(memory: ByteSize, threads: usize) -> ByteSize {
    let each = memory.bytes() / threads.max(1) as u64 / DEFAULT_PIPES_PER_THREAD;
    let mut sizes = (16..=20).rev().map(|power| 1_u64 << power);
    ByteSize::from_bytes(sizes.find(|size| *size <= each).unwrap_or(1 << 16))
}

impl MarksTable {
    fn checked(self, source: &Source) -> Result<WindowNumbers, Located> {
        let mask = self
            .mask
            .as_ref()
            .map_or(DEFAULT_MASK, |mask| *mask.get_ref());
        let mask_span = self.mask.as_ref().map_or(0..0, Spanned::span);
        let marks = MarkField::new(mask).map_err(|error| Located::new(source, mask_span, error))?;
        Ok(WindowNumbers {
            marks,
            // Tables up to 255 are the kernel's and those of /etc/iproute2/rt_tables.
            table: within(
                source,
                "table",
                self.table,
                DEFAULT_TABLE,
                256..=u32::MAX / 2,
            )?,
            priority: within(
                source,
                "priority",
                self.priority,
                DEFAULT_PRIORITY,
                1..=32_765,
            )?,
        })
    }
}

impl ListenerTable {
    fn checked(
        self,
        source: &Source,
        still: &ListenerLimits,
        profiles: &[AccessProfile],
        overlay: Option<&Overlay>,
    ) -> Result<Listener, Located> {
        let name = self.name.span();
        let of_leg =
            |leg: &Option<Spanned<LegSettings>>| leg.as_ref().map_or(name.clone(), Spanned::span);
        let places = Places {
            listen: self.listen.as_ref().map_or(name.clone(), Spanned::span),
            to: self.to.as_ref().map_or(name.clone(), Spanned::span),
            client_leg: of_leg(&self.client_leg),
            server_leg: of_leg(&self.server_leg),
            name,
        };
        let connect_timeout = within(
            source,
            "connect_timeout",
            self.connect_timeout,
            DEFAULT_CONNECT_TIMEOUT,
            TimeSpan::from_milliseconds(1)..=TimeSpan::from_seconds(3_600),
        )?;
        let limits = ListenerLimitKeys {
            sessions: self.sessions,
            sessions_per_client: self.sessions_per_client,
            idle_timeout: self.idle_timeout,
            half_closed_timeout: self.half_closed_timeout,
        };
        let keys = TransparentKeys {
            interfaces: self.interfaces,
            families: self.families,
            ports: self.ports,
            except_ports: self.except_ports,
            except: self.except,
            quic: self.quic,
            handshake: self.handshake,
            learned_window_limit: self.learned_window_limit,
            control_group: self.control_group,
            firewall_cache: self.firewall_cache,
        };
        if let Some(leg) = &self.server_leg
            && leg.get_ref().sending_ahead.is_some()
        {
            let place = source.key_span(leg.span(), "sending_ahead");
            let message = "`sending_ahead` is for client_leg only";
            return Err(Located::new(source, place, message));
        }
        if let Some(leg) = &self.client_leg
            && leg.get_ref().receive_window.is_some()
        {
            let place = source.key_span(leg.span(), "receive_window");
            let message = "`receive_window` is for server_leg only";
            return Err(Located::new(source, place, message));
        }
        let policy = self.policy;
        let fixed = self.client_leg.as_ref();
        let fixed = fixed.and_then(|leg| leg.get_ref().initial_window);
        let learns = (policy.learns(), policy.learns() && fixed.is_none());
        let explicit_keys = ExplicitKeys {
            users: self.users,
            clients: self.clients,
            access: self.access,
            negotiation_timeout: self.negotiation_timeout,
            accept_proxy_protocol: self.accept_proxy_protocol,
            proxy_protocol_from: self.proxy_protocol_from,
            send_proxy_protocol: self.send_proxy_protocol,
            overlay: self.overlay,
            as_client: (self.source.as_ref())
                .filter(|source| matches!(source.get_ref(), SourceKey::Client))
                .map(Spanned::span),
        };
        let mut admitting = None;
        let mode = match self.mode {
            ModeKey::Forward => forward(source, self.listen, self.to, &keys, &places)?,
            ModeKey::Socks5 => explicit("socks5", source, self.listen, self.to, &keys)?,
            ModeKey::Http => explicit("http", source, self.listen, self.to, &keys)?,
            ModeKey::Hop => explicit("hop", source, self.listen, self.to, &keys)?,
            ModeKey::Transparent => {
                only_of_forward(source, self.listen, self.to)?;
                let (transparent, of) = keys.checked(source, places.name.clone(), learns)?;
                admitting = Some(of);
                Mode::Transparent(transparent)
            }
        };
        let leg = |given: Option<Spanned<LegSettings>>| {
            let leg = policy.leg(given.map(Spanned::into_inner).unwrap_or_default());
            let keepalive = leg.keepalive.unwrap_or(DEFAULT_KEEPALIVE);
            LegSettings {
                keepalive: Some(keepalive).filter(|idle| *idle != TimeSpan::ZERO),
                ..leg
            }
        };
        let of_transparent = match &mode {
            Mode::Transparent(of) => {
                if let (Some(overlay), Some(_)) = (&explicit_keys.overlay, of.firewall_cache)
                    && *overlay.get_ref()
                {
                    let message = "with `firewall_cache`, sessions do not go through an overlay: a route is \
                                   chosen at the SYN";
                    return Err(Located::new(source, overlay.span(), message));
                }
                overlay_of_transparent(source, explicit_keys.overlay.as_ref(), overlay)?
            }
            Mode::Forward(_) | Mode::Explicit(_) => None,
        };
        let negotiation = negotiation(source, &mode, explicit_keys, &places, overlay)?;
        let to = match (negotiation, &mode) {
            (Some(negotiation), _) => negotiation.into(),
            (
                None,
                Mode::Forward(Forward {
                    to: To::One(to), ..
                }),
            ) => (*to).into(),
            // A listener with several servers always negotiates.
            (None, _) => Destination::Original,
        };
        let mut relay = midspan_relay::Listener {
            listen: mode.listen(),
            servers: servers(source, &mode, self.health_check)?,
            session: SessionSettings {
                policy,
                client: leg(self.client_leg),
                server: leg(self.server_leg),
                connect_timeout: Some(connect_timeout),
            },
            limits: limits.checked(source, still)?,
            profiles: profiles.to_vec(),
            dscp: self.dscp,
            source: source_addresses(source, self.source, &mode)?,
            overlay: of_transparent.map(Box::new),
            ..midspan_relay::Listener::new(self.name.into_inner(), to)
        };
        if let Some(admitting) = admitting {
            relay.handshake = admitting.handshake;
            relay.learned_windows = admitting.learned_windows;
            relay.control_group = admitting.control_group;
        }
        Ok(Listener {
            relay,
            mode,
            places,
        })
    }
}

fn forward(
    source: &Source,
    listen: Option<Spanned<Address>>,
    to: Option<Spanned<To>>,
    keys: &TransparentKeys,
    places: &Places,
) -> Result<Mode, Located> {
    let missing = |key| {
        let message = format!("missing key `{key}`");
        Located::new(source, places.name.clone(), message)
            .with_help("a listener of mode \"forward\" has listen and to")
    };
    if let Some((key, place)) = keys.first() {
        let message = format!("`{key}` is for listeners of mode \"transparent\"");
        return Err(Located::new(source, place, message));
    }
    Ok(Mode::Forward(Forward {
        listen: listen.ok_or_else(|| missing("listen"))?.into_inner().0,
        to: to.ok_or_else(|| missing("to"))?.into_inner(),
    }))
}

/// Transparent listeners have neither address of their own nor a fixed server.
fn only_of_forward(
    source: &Source,
    listen: Option<Spanned<Address>>,
    to: Option<Spanned<To>>,
) -> Result<(), Located> {
    let places = [listen.map(|key| key.span()), to.map(|key| key.span())];
    for (key, place) in ["listen", "to"].into_iter().zip(places) {
        if let Some(place) = place {
            let message = match key {
                "to" => "`to` is for listeners of mode \"forward\"".to_owned(),
                _ => format!("`{key}` is not for listeners of mode \"transparent\""),
            };
            return Err(Located::new(source, place, message));
        }
    }
    Ok(())
}
