//! The three sites of `docs/overlay.md`.
#![allow(missing_docs)]

use std::fs::Permissions;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_policy::overlay::{NodeKey, NodeSecret};
use midspan_proxy::client::{self, Place};
use midspan_testbed::program::Launch;
pub use midspan_testbed::testing::*;
pub use midspan_testbed::{kernel_test, skip};
use tempfile::NamedTempFile;

const DOCUMENT: &str = include_str!("../../../../../docs/overlay.md");
const MEMBERS: &str = "/etc/midspan/members.toml";
/// Keys of a small relay.
pub const RELAY: &str = "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n\
                     drain_timeout = \"0 s\"\n";

pub const SERVER: &str = "10.4.0.2";
pub const PORT: u16 = 80;

/// The blocks of TOML in the document: the members, and the configurations of ams, fra and sin.
pub fn blocks() -> [String; 4] {
    let blocks = DOCUMENT.split("```toml\n").skip(1);
    let blocks: Vec<String> = blocks
        .take(4)
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect();
    blocks.try_into().expect("four blocks of TOML")
}

pub struct Sites {
    pub client: NetworkNamespace,
    pub ams: NetworkNamespace,
    pub fra: NetworkNamespace,
    pub sin: NetworkNamespace,
    pub server: NetworkNamespace,
    pub listener: TcpListener,
    members: NamedTempFile,
    hosts: NamedTempFile,
    /// The private keys of ams, fra and sin, if they have any.
    keys: Vec<NodeFile>,
}

/// The private key of a node.
pub struct NodeFile {
    node: &'static str,
    pub secret: NodeSecret,
    file: NamedTempFile,
}

impl NodeFile {
    pub fn new(node: &'static str) -> Self {
        let secret = NodeSecret::new(midspan_tls::new_secret().unwrap());
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(secret.to_text().as_bytes()).unwrap();
        Self { node, secret, file }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The public key.
    pub fn key(&self) -> NodeKey {
        NodeKey::new(midspan_tls::public_key(self.secret.bytes()).unwrap())
    }
}

impl Sites {
    /// The five hosts; `more` is added to the file of members.
    pub fn new(more: &str) -> Self {
        let [client, ams, fra, sin, server] = ["client", "ams", "fra", "sin", "server"].map(node);
        link(&client, "eth", &ams, "clients", 1);
        link(&fra, "ams", &ams, "fra", 2);
        link(&sin, "fra", &fra, "sin", 3);
        link(&server, "eth", &sin, "servers", 4);
        let listener = listen(&server, PORT);
        let [members, ..] = blocks();
        Self {
            keys: Vec::new(),
            members: readable(&format!("{members}\n{more}")),
            hosts: readable(&format!("127.0.0.1 localhost\n{SERVER} www.site.test\n")),
            client,
            ams,
            fra,
            sin,
            server,
            listener,
        }
    }

    /// The file of members of all three nodes.
    pub fn members(&self) -> &Path {
        self.members.path()
    }

    /// The same with a key for each of the three nodes.
    pub fn encrypted(more: &str) -> Self {
        Self::with_keys(["ams", "fra", "sin"].map(NodeFile::new).into(), more)
    }

    /// The same with these keys.
    pub fn with_keys(keys: Vec<NodeFile>, more: &str) -> Self {
        let sites = Self::new("");
        let members = members_with(&keys);
        Self {
            members: readable(&format!("{members}\n{more}")),
            keys,
            ..sites
        }
    }

    /// The private key of a node.
    pub fn secret(&self, node: &str) -> NodeSecret {
        let mut keys = self.keys.iter();
        keys.find(|key| key.node == node).unwrap().secret
    }

    /// The public key of a node.
    pub fn key(&self, node: &str) -> NodeKey {
        let mut keys = self.keys.iter();
        keys.find(|key| key.node == node).unwrap().key()
    }

    /// The text of a configuration, with the file of members of this test, and the private key.
    pub fn text(&self, block: &str) -> String {
        self.text_with(block, &self.members, &self.keys)
    }

    /// The same with other files.
    pub fn text_with(&self, block: &str, members: &NamedTempFile, keys: &[NodeFile]) -> String {
        let members = members.path().to_str().unwrap();
        let mut text = block.replace(MEMBERS, members);
        for key in keys {
            let name = format!("[overlay]\nname = \"{}\"\n", key.node);
            let file = key.file.path().display();
            text = text.replace(&name, &format!("{name}private_key = \"{file}\"\n"));
        }
        assert_ne!(text, block);
        // Silence lasts a second.
        format!("{RELAY}{}", text.replace("\"10 s\"", "\"1 s\""))
    }

    pub fn ams(&self) -> Midspan {
        Midspan::ready(&self.ams, &self.text(&blocks()[1]))
    }

    pub fn fra(&self) -> Midspan {
        Midspan::ready(&self.fra, &self.text(&blocks()[2]))
    }

    /// The exit, which alone has the name of the server.
    pub fn sin(&self) -> Midspan {
        let launch = Launch::this_program("run")
            .configuration(&self.text(&blocks()[3]))
            .inside(&self.sin)
            .in_place_of(self.hosts.path(), "/etc/hosts");
        Midspan::of(launch)
    }

    pub fn all(&self) -> [Midspan; 3] {
        [self.sin(), self.fra(), self.ams()]
    }
}

/// The file of members of the document, with a key for each node.
pub fn members_with(keys: &[NodeFile]) -> String {
    let [members, ..] = blocks();
    let mut keys = keys.iter();
    let parts: Vec<&str> = members.split("security = \"network\"").collect();
    let mut text = parts[0].to_owned();
    for part in &parts[1..] {
        text += &format!("key = \"{}\"{part}", keys.next().unwrap().key());
    }
    text
}

/// A file that all users can read: the resolver has another user.
pub fn readable(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let readable = Permissions::from_mode(0o644);
    file.as_file().set_permissions(readable).unwrap();
    file
}

/// A connection from a host.
pub fn from(host: &NetworkNamespace, server: &str, port: u16) -> TcpStream {
    connect_from(host, server, port, Duration::from_secs(10)).unwrap()
}

/// A SOCKS5 client at the ingress that has requested `destination`, and the code of the reply.
pub fn socks(sites: &Sites, destination: &[u8]) -> (TcpStream, u8) {
    let mut client = from(&sites.client, "10.1.0.1", 1080);
    client.write_all(b"\x05\x01\x00").unwrap();
    assert_eq!(exactly::<2>(&mut client), *b"\x05\x00");
    let request = [b"\x05\x01\x00", destination].concat();
    client.write_all(&request).unwrap();
    let reply: [u8; 10] = exactly(&mut client);
    (client, reply[1])
}

/// The server as a destination of SOCKS5, with this last byte of its address and this port.
pub fn address(last: u8, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    vec![1, 10, 4, 0, last, high, low]
}

/// Both ends of a session from the client over all three nodes to the server.
pub fn session(sites: &Sites) -> (TcpStream, TcpStream) {
    let (client, code) = socks(sites, &address(2, PORT));
    assert_eq!(code, 0);
    (client, accept(&sites.listener).0)
}

/// Rules of a node that accepts no new hops.
pub const NO_NEW_ONES: &str = "table inet closed {\nchain in {\ntype filter hook input priority 0; \
     policy accept;\ntcp dport 7704 tcp flags & (syn | ack) == syn drop\n}\n}\n";

/// The text of a page of a running Midspan.
pub fn text_of(midspan: &Midspan, path: &str) -> String {
    let (status, text) = client::get(Place::Socket(midspan.socket()), path).unwrap();
    assert_eq!(status, 200, "{text}");
    text
}

/// The page of a running Midspan.
pub fn page<T: serde::de::DeserializeOwned>(midspan: &Midspan, path: &str) -> T {
    serde_json::from_str(&text_of(midspan, path)).unwrap()
}

/// Each end may end its direction first; the other direction continues.
pub fn assert_half_closes_pass(open: impl Fn() -> (TcpStream, TcpStream)) {
    let (mut client, mut server) = open();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut server), b"question");
    server.write_all(b"answer").unwrap();
    drop(server);
    assert_eq!(rest(&mut client), b"answer");
    let (mut client, mut server) = open();
    server.write_all(b"banner").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), b"banner");
    client.write_all(b"after").unwrap();
    drop(client);
    assert_eq!(rest(&mut server), b"after");
}

/// A reset by either end of such a session arrives at the other end.
#[track_caller]
pub fn assert_resets_pass(open: impl Fn() -> (TcpStream, TcpStream)) {
    let (mut client, mut server) = open();
    echoes(&mut client, &mut server);
    abort(server);
    assert!(is_reset(&mut client));
    let (mut client, mut server) = open();
    echoes(&mut client, &mut server);
    abort(client);
    assert!(is_reset(&mut server));
}
