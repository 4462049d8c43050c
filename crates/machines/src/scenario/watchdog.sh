# A helper that is stopped (SIGSTOP) is replaced by systemd's watchdog; meanwhile connections pass.
network
gateway | install_service
start
intercepts
before=$(systemctl show --property MainPID --value midspan)
kill -STOP "$before"
is_replaced() {
    local now
    now=$(systemctl show --property MainPID --value midspan)
    [ "$now" != 0 ] && [ "$now" != "$before" ] && systemctl is-active --quiet midspan
}
wait_until is_replaced
intercepts
download
journalctl --unit midspan --no-pager | grep --ignore-case 'watchdog' || fail "no word of the watchdog"
finding "a stopped helper" "replaced by systemd's watchdog"
# Both processes, without a warning.
kill -KILL "$(systemctl show --property MainPID --value midspan)"
wait_until systemctl is-active midspan
intercepts
finding "a killed helper" "replaced by systemd"
