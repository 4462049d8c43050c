# The machine's clock steps forward and back: sessions continue, and no time limit ends early or late.
network
gateway | sed '1i [limits]\nidle_timeout = "10 min"\n' | install_service
start
intercepts
before=$(systemctl show --property MainPID --value midspan)
slow_download
wait_until has_leg
# NTP would put the clock right again.
timedatectl set-ntp false || true
for step in '+1 day' '-2 days' '+10 years' '-10 years' '+1 day'; do
    date --set "$step" >&2
    sleep 20
    has_leg || fail "the step of $step has ended a session"
    download || fail "no new connection after the step of $step"
    end_download
    intercepts
    slow_download
    wait_until has_leg
done
[ "$(systemctl show --property MainPID --value midspan)" = "$before" ] || fail "Midspan was started again"
end_download
# What was learned has times of a clock that is now behind.
date --set '-1 year' >&2
systemctl restart midspan
intercepts
systemctl stop midspan
wait_until nothing_left
! journalctl --unit midspan | grep --ignore-case 'refused call\|panicked' || fail "see above"
finding "steps of the clock by a day and by ten years" "sessions continue, and new ones are intercepted"
