# The service intercepts, reloads, is bypassed and stopped.
network
gateway | install_service
midspan check --config /etc/midspan/midspan.toml --json >/tmp/check.json || true
# Each check and what it has found, in the order of the list.
jq --raw-output '.checks[] | "finding: \(.check): \(.found)"' /tmp/check.json
start
intercepts
download
finding "connections through a gateway" "intercepted, and complete"
slow_download
wait_until has_leg
gateway | sed 's/^interfaces/except_ports = [22]\n&/' >/etc/midspan/midspan.toml
reload
[ "$(journalctl --unit midspan --no-pager | grep --count 'INFO reloaded')" = 1 ] || fail "not reloaded once"
has_leg || fail "a reload has ended a session"
kill "$DOWNLOAD"
wait_until not has_leg
intercepts
echo 'wrong = true' >>/etc/midspan/midspan.toml
! systemctl reload midspan || fail "a wrong file was reloaded"
intercepts
finding "systemctl reload" "running sessions continue; a wrong file is refused, and the old one stays"
wait_until midspan bypass on
slow_download
wait_until sh -c "ss -Htn state established '( dport = :80 )' | grep -q . || conntrack -L 2>/dev/null | grep -q ESTABLISHED"
! has_leg || fail "bypass on, but intercepted"
kill "$DOWNLOAD"
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
