# What scenarios have in common: the network of the gateway guide around this machine, a web server,
# Midspan as a service, and functions that wait. WORKSPACE is set before.
set -euo pipefail
SERVER=198.51.100.80

# A line for the table of what Midspan does on each kernel.
finding() { echo "finding: $1: $2"; }

fail() {
    echo "FAILED: $*"
    journalctl --unit midspan --no-pager --lines 60 || true
    nft list tables || true
    exit 1
}

# Waits until a command succeeds, at most 5 minutes.
wait_until() {
    local end=$((SECONDS + 300))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "not within 5 minutes: $*"
        sleep 0.5
    done
}

not() { ! "$@"; }

# The process of the service.
helper() { systemctl show --property MainPID --value midspan; }

# The picture of the gateway guide: client 192.168.10.2 - eth1 gateway eth0 - 203.0.113.1 router -
# server 198.51.100.80. The gateway is this machine; its interfaces have no addresses yet.
hosts() {
    for node in client router server; do
        ip netns add "$node"
        ip --netns "$node" link set lo up
    done
    ip link add eth1 type veth peer name eth0 netns client
    ip link add eth0 type veth peer name near netns router
    ip --netns router link add far type veth peer name eth0 netns server
    ip --netns client address add 192.168.10.2/24 dev eth0
    ip --netns router address add 203.0.113.1/24 dev near
    ip --netns router address add 198.51.100.1/24 dev far
    ip --netns server address add $SERVER/24 dev eth0
    ip --netns client link set eth0 up
    ip --netns router link set near up
    ip --netns router link set far up
    ip --netns server link set eth0 up
    ip --netns client route add default via 192.168.10.1
    ip --netns server route add default via 198.51.100.1
    ip netns exec router sysctl --quiet net.ipv4.ip_forward=1
    mkdir --parents /srv/files /srv/web
    head --bytes 10000000 /dev/urandom >/srv/files/10000000.bin
    truncate --size 100000000 /srv/files/100000000.bin
    chmod --recursive a+rX /srv
    cat >/srv/web/nginx.conf <<-END
	pid /srv/web/pid;
	error_log /srv/web/error.log;
	events {}
	http { access_log off; server { listen 80; location / { root /srv/files; } } }
	END
    ip netns exec server nginx -c /srv/web/nginx.conf
}

masquerade() {
    nft 'add table ip nat; add chain ip nat postrouting { type nat hook postrouting priority srcnat; };
         add rule ip nat postrouting oifname "eth0" masquerade'
}

# The same with a working gateway.
network() {
    hosts
    ip address add 192.168.10.1/24 dev eth1
    ip address add 203.0.113.2/24 dev eth0
    ip link set eth1 up
    ip link set eth0 up
    ip route add default via 203.0.113.1
    sysctl --quiet net.ipv4.ip_forward=1
    masquerade
    wait_until download
}

# A download through the gateway is complete and correct.
download() {
    ip netns exec client curl --silent --show-error --max-time 240 --output /tmp/downloaded \
        "http://$SERVER/10000000.bin" && cmp /tmp/downloaded /srv/files/10000000.bin
}

# The file of the package with this name, in a folder below target/debian if it is named.
package() {
    find "$WORKSPACE/target/debian/${2:-}" -maxdepth 1 -name "$1_*_$(dpkg --print-architecture).deb" | sort | tail -n 1
}

# The service from the package, with the configuration of standard input.
install_service() {
    mkdir --parents /etc/midspan
    cat >/etc/midspan/midspan.toml
    dpkg --install "$(package midspan)" </dev/null >&2
}

# At the first rules, the kernel loads its modules. On a slow machine, nft may then be killed, and systemd
# starts Midspan again.
start() {
    if systemctl enable --now midspan; then return; fi
    journalctl --unit midspan --no-pager | grep 'is the machine overloaded' || fail "systemctl enable --now midspan"
    wait_until systemctl is-active midspan
}

# While the rules are being worked on, which takes a slow machine seconds, Midspan refuses a reload and
# asks to try again.
reload() { wait_until systemctl reload midspan; }

# A gateway whose clients are behind an interface.
gateway() {
    cat <<END
[[listener]]
name = "gateway"
mode = "transparent"
interfaces = ["${1:-eth1}"]
policy = "auto"
END
}

# Starts a download that takes as long as the scenario.
slow_download() {
    ip netns exec "${1:-client}" curl --silent --output /dev/null --limit-rate 20K \
        "http://$SERVER/10000000.bin" >/dev/null 2>&1 &
    DOWNLOAD=$!
}

# Whether a client's leg ends at this machine: only then a connection is intercepted.
has_leg() {
    ss --no-header --tcp --numeric state established "( sport = :80 )" | grep --quiet "$SERVER"
}

end_download() {
    kill "$DOWNLOAD" || true
    wait_until not has_leg
}

# Whether a new connection is intercepted. Right after a change, a slow machine may let one pass.
is_intercepted() {
    slow_download
    for _ in $(seq 30); do
        if has_leg; then
            end_download
            return 0
        fi
        sleep 1
    done
    kill "$DOWNLOAD" || true
    return 1
}

intercepts() {
    wait_until is_intercepted
}

# No rule and no route of Midspan is there.
nothing_left() {
    ! nft list tables | grep --quiet midspan &&
        ! ip rule | grep --quiet 7690 &&
        ! ip -6 rule | grep --quiet 7690 &&
        [ -z "$(ip route show table 7690 2>/dev/null)$(ip -6 route show table 7690 2>/dev/null)" ]
}
