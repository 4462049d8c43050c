# The clients' interface is in a routing domain of its own (VRF), which leaks into the main one. The
# listener names the interface, then the VRF's device, which is the input interface of forwarded packets.
network
ip link add customers type vrf table 100
ip link set customers up
ip link set eth1 master customers
ip address replace 192.168.10.1/24 dev eth1
ip route add table 100 default via 203.0.113.1 dev eth0
ip route add 192.168.10.0/24 dev customers
wait_until download

# What happens to clients if the listener names this interface.
clients_of() {
    slow_download
    for _ in $(seq 60); do
        if has_leg; then break; fi
        sleep 0.5
    done
    local what="pass untouched"
    if has_leg; then what="intercepted, and complete"; fi
    end_download
    # What cannot be intercepted must pass.
    download || what="do not reach the server"
    finding "clients in a VRF, interfaces = [\"$1\"]" "$what"
    [ "$what" != "do not reach the server" ] || fail "interfaces = [\"$1\"]"
}

gateway eth1 | install_service
start
clients_of eth1
gateway customers >/etc/midspan/midspan.toml
midspan check | grep -F "clients in the VRF customers pass untouched" || fail "check"
systemctl restart midspan || fail "restart"
clients_of customers
# Sockets without a VRF get the packets of every VRF.
sysctl -w net.ipv4.tcp_l3mdev_accept=1
systemctl reload midspan || fail "reload"
clients_of "customers, tcp_l3mdev_accept=1"
