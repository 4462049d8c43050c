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
systemctl stop midspan
wait_until nothing_left
