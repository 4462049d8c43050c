# The clients arrive through a tunnel of WireGuard.
network
modprobe wireguard
for side in near far; do
    wg genkey >/tmp/$side.key
    wg pubkey </tmp/$side.key >/tmp/$side.pub
done
ip link add wg0 type wireguard
wg set wg0 listen-port 51820 private-key /tmp/near.key peer "$(cat /tmp/far.pub)" allowed-ips 10.9.0.2/32
ip address add 10.9.0.1/24 dev wg0
ip link set wg0 up
ip --netns client link add wg0 type wireguard
ip netns exec client wg set wg0 private-key /tmp/far.key \
    peer "$(cat /tmp/near.pub)" endpoint 192.168.10.1:51820 allowed-ips 0.0.0.0/0
ip --netns client address add 10.9.0.2/24 dev wg0
ip --netns client link set wg0 up
ip --netns client route replace default dev wg0
wait_until download
gateway wg0 | install_service
start
intercepts
download
finding "clients behind WireGuard" "intercepted, and complete"
# The tunnel goes and comes back.
systemctl is-active midspan
