# The clients' interface is in a routing domain of its own (VRF), which leaks into the main one.
network
ip link add customers type vrf table 100
ip link set customers up
ip link set eth1 master customers
ip address replace 192.168.10.1/24 dev eth1
ip route add table 100 default via 203.0.113.1 dev eth0
ip route add 192.168.10.0/24 dev customers
wait_until download
gateway | install_service
start
slow_download
for _ in $(seq 60); do
    if has_leg; then break; fi
    sleep 0.5
done
if has_leg; then
    kill "$DOWNLOAD"
    download
    finding "clients in a VRF" "intercepted, and complete"
else
    kill "$DOWNLOAD"
    # What cannot be intercepted must pass.
    download
    finding "clients in a VRF" "pass untouched"
fi
