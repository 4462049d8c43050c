//! How connections begin and end, and socket options of hosts.

use super::{CURL, NC, NGINX, OPENSSL, PYTHON};
use crate::case::{Case, Sessions};
use crate::gateway::Gateway::{Http, Socks5};
use crate::needed::Needed;

const SOCAT: Needed = Needed::new("socat", "socat");
const NC_ALONE: &[Needed] = &[NC, PYTHON];
const SOCAT_ALONE: &[Needed] = &[SOCAT, PYTHON];
const PY: &[Needed] = &[PYTHON];
const WEB: &[Needed] = &[CURL, NGINX, OPENSSL];

/// A server that treats the connections of each port in a different way.
const fn ends(name: &'static str, needs: &'static [Needed]) -> Case {
    Case::new(name, needs).server(
        r#"cat >"$DIR/server.py" <<'END'
import fcntl, hashlib, os, socket, struct, termios, threading, time
def seen(*words):
    with open(os.environ["DIR"] + "/seen", "a") as file:
        print(*words, file=file)
def read_all(connection):
    hash, length = hashlib.sha256(), 0
    while data := connection.recv(65536):
        hash.update(data)
        length += len(data)
    return f"{length} {hash.hexdigest()[:24]}"
def answers_at_the_end(connection):
    connection.sendall(read_all(connection).encode() + b"\n")
def speaks_first(connection):
    connection.sendall(b"hello\n")
    connection.sendall(connection.recv(1000).upper())
def ends_first(connection):
    connection.sendall(b"y" * 1000000)
    connection.shutdown(socket.SHUT_WR)
    seen("after its own end:", read_all(connection))
def resets_after_the_answer(connection):
    connection.sendall(b"an answer to " + connection.recv(1000))
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
def waits_for_the_end(connection):
    try:
        seen("the end after", read_all(connection))
    except OSError as error:
        seen(type(error).__name__)
def tells_the_address(connection):
    connection.sendall(str(connection.getpeername()[:2]).encode())
def echoes(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
def counts_urgent(connection):
    data = read_all(connection)
    connection.sendall(data.encode())
def closes_behind_data(connection):
    connection.sendall(b"0123456789" * 1000000)
def resets_behind_data(connection):
    connection.recv(1)
    connection.sendall(b"0123456789" * 4000)
    # Until the last byte is acknowledged: then the reset follows at once.
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0] > 0:
        time.sleep(0.0005)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
def serve(port, how):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1000)
    def one(connection):
        connection.settimeout(60)
        try:
            how(connection)
        except OSError as error:
            seen(port, type(error).__name__)
        connection.close()
        open(os.environ["DIR"] + f"/ended{port}", "a").close()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=one, args=(connection,), daemon=True).start()
ways = [answers_at_the_end, speaks_first, ends_first, resets_after_the_answer, waits_for_the_end,
        tells_the_address, echoes, counts_urgent, closes_behind_data, resets_behind_data]
for number, how in enumerate(ways):
    threading.Thread(target=serve, args=(7001 + number, how)).start()
END
        python3 "$DIR/server.py" &
        ready 7001 7002 7003 7004 7005 7006 7007 7008 7009 7010"#,
    )
}

/// nginx with files.
const fn web(name: &'static str) -> Case {
    Case::new(name, WEB)
        .prepare("certificate\nweb_files")
        .server("web_server")
}

pub(super) const CASES: &[Case] = &[
    ends("nc: half-close by the client, by the server", NC_ALONE)
        .explicit(&[Socks5, Http])
        .client(
            r#"case "$VIA" in
                socks5) by="-X 5 -x $PROXY_HOST:$PROXY_PORT" ;;
                http) by="-X connect -x $PROXY_HOST:$PROXY_PORT" ;;
                *) by= ;;
            esac
            payload 3000000 | succeeds nc.openbsd $by -N "$SERVER" 7001
            echo greetings | succeeds nc.openbsd $by -N "$SERVER" 7002
            { sleep 2; payload 100000; } | nc.openbsd $by -N "$SERVER" 7003 | digest
            until_true grep -q 100000 "$DIR/seen""#,
        ),
    ends("socat: half-close by the client, by the server", SOCAT_ALONE).client(
        r#"payload 3000000 | socat -t 20 - "TCP:$HOST:7001"
        { sleep 1; payload 50000; } | socat -t 20 - "TCP:$HOST:7003,shut-down" | digest
        until_true grep -q 50000 "$DIR/seen""#,
    ),
    ends("reset by the server after its answer, reset by the client", PY)
        .client(
            r#"rm -f "$DIR"/ended*
            cat >client.py <<'END'
import os, socket, struct
server = os.environ["SERVER"]
connection = socket.create_connection((server, 7004), timeout=30)
connection.sendall(b"this")
print(connection.recv(1000))
connection.sendall(b"!")
try:
    print(connection.recv(1000))
except OSError as error:
    print(type(error).__name__)
connection = socket.create_connection((server, 7005), timeout=30)
connection.sendall(b"x" * 1000)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
connection.close()
END
            python3 client.py
            until_true test -e "$DIR/ended7005""#,
        ),
    ends("slow readers of what a server sends before it closes", PY).client(
        r#"python3 - <<'END'
import hashlib, os, socket, time
six = ":" in os.environ["SERVER"]
connections = []
for _ in range(10):
    connection = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.settimeout(60)
    connection.connect((os.environ["SERVER"], 7009))
    connections.append(connection)
time.sleep(2)
for connection in connections:
    hash, length = hashlib.sha256(), 0
    while data := connection.recv(65536):
        hash.update(data)
        length += len(data)
    print(length, hash.hexdigest()[:24])
END"#,
    ),
    ends("100 resets right behind data", PY).client(
        r#"python3 - <<'END'
import os, socket
whole = 0
for _ in range(100):
    connection = socket.create_connection((os.environ["SERVER"], 7010), timeout=30)
    connection.sendall(b"!")
    length = 0
    try:
        while data := connection.recv(4096):
            length += len(data)
    except ConnectionResetError:
        whole += length == 40000
print(whole)
END"#,
    ),
    ends("the server sees the client's address and port", PY)
        .routed()
        .client(
            r#"python3 - <<'END'
import os, socket
connection = socket.create_connection((os.environ["SERVER"], 7006), timeout=30)
print(connection.recv(1000).decode().replace("::ffff:", "") == str(connection.getsockname()[:2]))
print(connection.getpeername()[:2])
END"#,
        ),
    ends("a client port below 1024 passes untouched", PY)
        .sessions(Sessions::None)
        .client(
            r#"python3 - <<'END'
import os, socket
# A port for each protocol: the first one is in TIME_WAIT when the second connection begins.
port = 901 if ":" in os.environ["SERVER"] else 900
connection = socket.create_connection((os.environ["SERVER"], 7007), timeout=30, source_address=("", port))
connection.sendall(b"x" * 1000)
print(len(connection.recv(1000, socket.MSG_WAITALL)))
END"#,
        ),
    ends("urgent data", PY).client(
        r#"python3 - <<'END'
import os, socket
connection = socket.create_connection((os.environ["SERVER"], 7008), timeout=30)
connection.sendall(b"x" * 1000)
connection.send(b"!", socket.MSG_OOB)
connection.sendall(b"x" * 1000)
connection.shutdown(socket.SHUT_WR)
print("bytes in line:", connection.recv(1000).split()[0].decode())
END"#,
    ),
    ends("one source port again and again, either end closing first", PY).client(
        r#"python3 - <<'END'
import os, socket, time
def use(port, to, first):
    connection = socket.socket(socket.AF_INET6 if ":" in os.environ["SERVER"] else socket.AF_INET)
    connection.settimeout(30)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.bind(("", port))
    try:
        connection.connect((os.environ["SERVER"], to))
        if first == "server":
            connection.recv(1000)
            print("server first:", connection.recv(1000))
        else:
            connection.sendall(b"x")
            print("client first:", connection.recv(1000))
    except OSError as error:
        print(type(error).__name__, error.errno)
    connection.close()
for _ in range(5):
    use(40001, 7006, "server")
for _ in range(3):
    use(40002, 7007, "client")
    # Its own kernel lets a client use the port again once the clock shows another second.
    time.sleep(1.2)
END"#,
    ),
    ends("1,500 short connections", PY).client(
        r#"python3 - <<'END'
import os, socket
done = 0
for _ in range(1500):
    with socket.create_connection((os.environ["SERVER"], 7002), timeout=30) as connection:
        connection.sendall(b"x")
        data = b""
        while part := connection.recv(1000):
            data += part
        done += data == b"hello\nX"
print(done)
END"#,
    ),
    ends("keep-alive of the kernel each second, 6 s of idleness", PY).client(
        r#"python3 - <<'END'
import os, socket, time
connection = socket.create_connection((os.environ["SERVER"], 7007), timeout=30)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option, value in (socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 2):
    connection.setsockopt(socket.IPPROTO_TCP, option, value)
for _ in range(2):
    connection.sendall(b"x" * 1000)
    print(len(connection.recv(1000, socket.MSG_WAITALL)))
    time.sleep(6)
END"#,
    ),
    ends("a client with an MSS of 536", PY).client(
        r#"python3 - <<'END'
import hashlib, os, socket
family = socket.AF_INET6 if ":" in os.environ["SERVER"] else socket.AF_INET
connection = socket.socket(family)
connection.settimeout(30)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
connection.connect((os.environ["SERVER"], 7003))
hash = hashlib.sha256()
while data := connection.recv(65536):
    hash.update(data)
connection.sendall(b"z" * 500000)
print(hash.hexdigest())
connection.close()
END
        until_true grep -q 500000 "$DIR/seen""#,
    ),
    web("options of TCP switched off, ECN, at either end").client(
        r#"for place in client server; do
            for setting in tcp_timestamps=0 tcp_sack=0 tcp_window_scaling=0 tcp_ecn=1 tcp_mtu_probing=2; do
                file="/proc/sys/net/ipv4/${setting%=*}"
                before=$(at $place cat "$file")
                at $place sh -c "echo ${setting#*=} >$file"
                curl --silent --show-error --range 0-2999999 "http://$HOST/large.bin" | digest
                payload 1000000 >up
                curl --silent --show-error --upload-file up --write-out '%{http_code}' \
                    "http://$HOST/upload/$place.$setting.$FAMILY" >/dev/null
                digest "$DIR/upload/$place.$setting.$FAMILY"
                at $place sh -c "echo $before >$file"
            done
        done"#,
    ),
    web("a path that drops packets above 1,300 bytes without a word").client(
        r#"# Routes with a smaller MTU, and no report of what does not fit.
        at router ip route replace 10.3.0.0/24 dev out mtu lock 1300
        at router ip route replace default via 10.2.0.1 dev in mtu lock 1300
        at router ip -6 route replace fd03::/64 dev out mtu lock 1300
        at router ip -6 route replace default via fd02::1 dev in mtu lock 1300
        at router nft -f - <<'END'
table inet hole {
    chain output {
        type filter hook output priority 0
        icmp type destination-unreachable drop
        icmpv6 type packet-too-big drop
    }
}
END
        for place in client gateway server; do
            at $place sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_mtu_probing'
        done
        succeeds curl --silent --show-error --max-time 60 --range 0-999999 --output down "http://$HOST/large.bin"
        digest down
        payload 500000 >up
        succeeds curl --silent --show-error --max-time 60 --upload-file up "http://$HOST/upload/hole.$FAMILY"
        digest "$DIR/upload/hole.$FAMILY"
        at router nft delete table inet hole"#,
    ),
];
