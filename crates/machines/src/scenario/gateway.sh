# The service intercepts, reloads, is bypassed and stopped.
network
gateway | install_service
# While the kernel loads modules, a slow machine exceeds the time limit of the check.
for _ in $(seq 5); do
    midspan check --config /etc/midspan/midspan.toml --json >/tmp/check.json || true
    if ! grep --quiet 'not tried' /tmp/check.json; then break; fi
done
# Each check and what it has found, in the order of the list.
jq --raw-output '.checks[] | "finding: \(.check): \(.found)"' /tmp/check.json
has_bbr() { grep --quiet --word-regexp bbr /proc/sys/net/ipv4/tcp_available_congestion_control; }
# The check has loaded its module.
modprobe --remove tcp_bbr
! has_bbr || fail "BBR is no module"
start
has_bbr || fail "the service has not loaded BBR"
finding "policy = \"auto\" and BBR" "the service loads its module"
intercepts
download
finding "connections through a gateway" "intercepted, and complete"
slow_download
wait_until has_leg
gateway | sed 's/^interfaces/except_ports = [22]\n&/' >/etc/midspan/midspan.toml
reloads() { journalctl --unit midspan --no-pager | grep --count 'INFO reloaded'; }
reload
wait_until reloads
has_leg || fail "a reload has ended a session"
end_download
intercepts
[ "$(reloads)" = 1 ] || fail "not reloaded once"
echo 'wrong = true' >>/etc/midspan/midspan.toml
! systemctl reload midspan || fail "a wrong file was reloaded"
wait_until sh -c "journalctl --unit midspan --no-pager | grep 'the old configuration stays in force' | grep wrong"
intercepts
finding "systemctl reload" "running sessions continue; a wrong file is refused, and the old one stays"
wait_until midspan bypass on
slow_download
wait_until sh -c "ip netns exec client ss -Htn state established '( dport = :80 )' | grep -q ."
! has_leg || fail "bypass on, but intercepted"
end_download
wait_until midspan bypass off
intercepts
nft flush ruleset
wait_until sh -c 'nft list tables | grep -q midspan'
masquerade
intercepts
finding "nft flush ruleset" "the rules come back"
systemctl stop midspan
wait_until nothing_left
download
! journalctl --unit midspan | grep --ignore-case 'refused call\|panicked' || fail "see above"
finding "systemctl stop" "no rule and no route is left; connections pass"
