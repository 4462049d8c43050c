# A kernel that was started with ipv6.disable=1.
[ ! -e /proc/net/if_inet6 ]
network
gateway | install_service
start
intercepts
download
midspan status
journalctl --unit midspan --no-pager | grep --ignore-case 'ipv6' || fail "no word of IPv6"
reload
intercepts
finding "ipv6.disable=1" "IPv4 is intercepted, and the log reports it"
slow_download
wait_until has_leg
before=$(helper)
midspan upgrade
midspan status --json | grep '"state": "done"' || fail "no upgrade: $(midspan status --json)"
[ "$(helper)" = "$before" ] || fail "the upgrade has restarted the service"
has_leg || fail "the upgrade has ended a session"
end_download
intercepts
finding "midspan upgrade with ipv6.disable=1" "the process stays, and sessions continue"
systemctl stop midspan
wait_until nothing_left
