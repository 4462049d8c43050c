//! Interactions with other functions of a gateway, or with a second path.

use super::{CURL, NGINX, OPENSSL, PYTHON};
use crate::case::{Case, Sessions};
use crate::needed::Needed;

const IP: Needed = Needed::new("ip", "iproute2");
const MPTCP: &[Needed] = &[
    PYTHON,
    IP,
    CURL,
    NGINX,
    OPENSSL,
    Needed::new("mptcpize", "mptcpize"),
];
const TRACEROUTE: &[Needed] = &[
    Needed::new("/usr/bin/traceroute.db", "traceroute"),
    CURL,
    NGINX,
    OPENSSL,
];
const PY: &[Needed] = &[PYTHON];

/// A server that accepts every connection, at port 7000 by TCP and at port 7001 by MPTCP if the
/// kernel has MPTCP. It answers a connection to port 7100 with the number of bytes of each
/// connection that it has accepted since the last such answer.
const fn counting(name: &'static str, needs: &'static [Needed]) -> Case {
    Case::new(name, needs).server(
        r#"cat >"$DIR/server.py" <<'END'
import os, socket, threading
accepted = []
def serve(connection):
    number = len(accepted)
    accepted.append(0)
    connection.settimeout(60)
    try:
        while data := connection.recv(65536):
            accepted[number] += len(data)
            connection.sendall(data)
    except OSError as error:
        accepted[number] = f"{accepted[number]} {type(error).__name__}"
def listen(port, protocol):
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if protocol == 0:
        # The class CS2, for what is sent to either family's clients, whose class is CS1.
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x40)
        listener.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x40)
    listener.bind(("::", port))
    listener.listen(100)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
def tell():
    asked = socket.create_server(("127.0.0.1", 7100))
    while True:
        connection, _ = asked.accept()
        connection.sendall(f"accepted: {accepted}\n".encode())
        accepted.clear()
        connection.close()
for work, arguments in (tell, ()), (listen, (7000, 0)), (listen, (7001, 262)):
    threading.Thread(target=work, args=arguments).start()
END
        python3 "$DIR/server.py" &
        ready 7000 7100"#,
    )
}

pub(super) const CASES: &[Case] = &[
    Case::new("MPTCP: mptcpize curl to a server with MPTCP", MPTCP)
        .prepare("certificate\nweb_files")
        .server("nginx() { mptcpize run nginx \"$@\"; }\nweb_server")
        .client(
            r#"mptcpize run curl --silent --show-error "http://$HOST/large.bin" | digest
            payload 3000000 >up
            mptcpize run curl --silent --show-error --upload-file up "http://$HOST/upload/$FAMILY"
            digest "$DIR/upload/$FAMILY"
            at server nstat -asz MPTcpExtMPCapableSYNRX | awk '/MPCapable/ {
                print "the server has " ($2 > 0 ? "" : "not ") "got MP_CAPABLE" }'"#,
        ),
    counting("MPTCP: a subflow whose first one went elsewhere", MPTCP)
        .ipv4_only()
        .routed()
        .sessions(Sessions::None)
        .client(
            r#"at server ip mptcp limits set subflows 4 add_addr_accepted 4
            ip mptcp limits set subflows 4
            ip address add 10.1.0.3/24 dev eth
            # The first subflow passes by; it stands for one that takes another uplink.
            bypass() {
                test "$VIA" = direct || "$MIDSPAN" bypass "$@" --socket "$DIR/control.sock" >/dev/null
            }
            bypass on
            cat >client.py <<'END'
import socket, struct, os, time, subprocess
connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
connection.settimeout(30)
connection.bind((os.environ["CLIENT"], 0))
connection.connect((os.environ["SERVER"], 7001))
def ask():
    connection.sendall(b"x" * 10000)
    print(len(connection.recv(10000, socket.MSG_WAITALL)))
ask()
open("first", "w").close()
while not os.path.exists("second"):
    time.sleep(0.05)
time.sleep(6)
ask()
# struct mptcp_info begins with the number of subflows.
print("subflows in addition to the first:", connection.getsockopt(284, 1, 100)[0])
END
            python3 client.py &
            until_true test -e first
            bypass off
            ip mptcp endpoint add 10.1.0.3 dev eth subflow
            touch second
            wait $!
            at server python3 -c 'import socket; print(socket.create_connection(("127.0.0.1", 7100)).recv(1000).decode(), end="")'"#,
        ),
    counting("ct count: a limit of 5 connections in the forward chain", PY)
        .gateway(
            r#"nft -f - <<'END'
table inet filter {
    set counted { type ipv4_addr; flags dynamic; }
    set counted6 { type ipv6_addr; flags dynamic; }
}
insert rule inet filter forward tcp dport 7000 ct state new add @counted { ip saddr ct count over 5 } reject with tcp reset
insert rule inet filter forward tcp dport 7000 ct state new add @counted6 { ip6 saddr ct count over 5 } reject with tcp reset
END"#,
        )
        .client(
            r#"python3 - <<'END'
import os, socket
connections = []
refused = 0
for _ in range(12):
    try:
        connections.append(socket.create_connection((os.environ["SERVER"], 7000), timeout=20))
    except ConnectionRefusedError:
        refused += 1
print("the limit holds" if (len(connections), refused) == (5, 7) else "the limit does not hold")
END"#,
        ),
    counting("a rule that drops, added to the forward chain while a session runs", PY)
        .client(
            r#"cat >client.py <<'END'
import os, socket, time
connection = socket.create_connection((os.environ["SERVER"], 7000), timeout=6)
def ask(name):
    connection.sendall(b"x" * 1000)
    try:
        print(name, "an answer of", len(connection.recv(1000, socket.MSG_WAITALL)))
    except TimeoutError:
        print(name, "no answer")
ask("first:")
open("first", "w").close()
while not os.path.exists("second"):
    time.sleep(0.05)
ask("second:")
try:
    socket.create_connection((os.environ["SERVER"], 7000), timeout=4)
    print("a new one is open")
except TimeoutError:
    print("a new one is not answered")
END
            python3 client.py &
            until_true test -e first
            at gateway nft insert rule inet filter forward tcp dport 7000 drop
            at gateway nft insert rule inet filter forward tcp sport 7000 drop
            touch second
            wait $!
            at gateway nft delete rule inet filter forward handle \
                "$(at gateway nft -a list chain inet filter forward | sed -n 's/.*tcp dport 7000 drop # handle //p')"
            at gateway nft delete rule inet filter forward handle \
                "$(at gateway nft -a list chain inet filter forward | sed -n 's/.*tcp sport 7000 drop # handle //p')""#,
        ),
    counting("DSCP of the client, of the server", PY).client(
        r#"for place in client server; do
            at $place nft -f - <<'END'
table inet classes {
    chain input {
        type filter hook input priority 0
        tcp dport 7000 ip dscp cs1 counter
        tcp dport 7000 ip6 dscp cs1 counter
        tcp sport 7000 ip dscp cs2 counter
        tcp sport 7000 ip6 dscp cs2 counter
    }
}
END
        done
        python3 - <<'END'
import os, socket
six = ":" in os.environ["SERVER"]
connection = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
connection.setsockopt(*((socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if six else (socket.IPPROTO_IP, socket.IP_TOS)), 0x20)
connection.settimeout(20)
connection.connect((os.environ["SERVER"], 7000))
connection.sendall(b"x" * 1000)
print(len(connection.recv(1000, socket.MSG_WAITALL)))
END
        for place in client server; do
            if at $place nft list table inet classes | grep -q 'packets [1-9]'; then
                echo "$place: segments have the other end's class"
            else
                echo "$place: no segment has the other end's class"
            fi
            at $place nft delete table inet classes
        done"#,
    ),
    Case::new("traceroute -T", TRACEROUTE)
        .prepare("certificate\nweb_files")
        .server("web_server")
        .routed()
        .sessions(Sessions::Any)
        .client(
            r#"traceroute.db -T -n -q 1 -w 3 -p 80 "$SERVER" | awk '
                NR == 1 { next }
                $2 == server { hops = hops " server"; next }
                $2 ~ /^(10\.4\.0\.1|fd04::1)$/ { hops = hops " gateway"; next }
                $2 ~ /^(10\.2\.0\.2|fd02::2)$/ { hops = hops " router"; next }
                $1 > 1 { hops = hops " " $2 }
                END { print "hops:" hops }' server="$SERVER""#,
        ),
];
