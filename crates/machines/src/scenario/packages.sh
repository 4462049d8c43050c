# The package: installed where nothing was, upgraded while it works, upgraded while the file is wrong,
# removed, purged. Each step is done by apt, as by an administrator.
new=$(package midspan)
old=$(package midspan old)
export DEBIAN_FRONTEND=noninteractive
install_package() { apt-get install --yes --allow-downgrades "$1" >/tmp/apt.log 2>&1 || fail "$(cat /tmp/apt.log)"; }
version() { dpkg-query --show --showformat '${Version}' midspan; }
network

install_package "$old"
! systemctl is-enabled midspan || fail "enabled by the installation"
! systemctl is-active midspan || fail "started by the installation"
[ ! -e /etc/midspan/midspan.toml ] || fail "the installation has written a configuration"
getent passwd midspan || fail "no user midspan"
mkdir /etc/midspan
gateway | tee /tmp/midspan.toml >/etc/midspan/midspan.toml
start
intercepts
finding "apt-get install" "starts nothing; with a configuration, systemctl starts it"

before=$(helper) from=$(version)
install_package "$new"
grep '^midspan: ' /tmp/apt.log || true
[ "$(version)" != "$from" ] || fail "the version has not changed"
[ "$(helper)" != "$before" ] || fail "the upgrade did not restart the service"
systemctl is-active midspan || fail "not active after the upgrade"
intercepts
download
cmp /etc/midspan/midspan.toml /tmp/midspan.toml || fail "the upgrade has changed the configuration"
finding "apt-get install of a newer version" "restarts the service once, and intercepts again"

# From a version that can execute another program, sessions continue.
slow_download
wait_until has_leg
before=$(helper)
apt-get install --yes --reinstall "$new" >/tmp/apt.log 2>&1 || fail "$(cat /tmp/apt.log)"
grep '^midspan: \|^upgraded' /tmp/apt.log || true
[ "$(helper)" = "$before" ] || fail "the upgrade has restarted the service: $(cat /tmp/apt.log)"
has_leg || fail "the upgrade has ended a session"
end_download
intercepts
midspan status --json | grep '"state": "done"' || fail "no upgrade: $(midspan status --json)"
finding "apt-get install over a version with midspan upgrade" "the process stays, and sessions continue"

# The other direction, with a file that the new program refuses: the running one continues.
echo 'wrong = true' >>/etc/midspan/midspan.toml
before=$(helper)
install_package "$old"
grep 'The old version continues to run' /tmp/apt.log || fail "no word of the wrong file: $(cat /tmp/apt.log)"
[ "$(helper)" = "$before" ] || fail "restarted with a wrong file"
intercepts
cp /tmp/midspan.toml /etc/midspan/midspan.toml
systemctl restart midspan || fail "systemctl restart midspan"
intercepts
finding "an upgrade while the file is wrong" "reports it; the old process continues to intercept"
install_package "$new"
intercepts

wait_until midspan bypass on 192.0.2.1
apt-get remove --yes midspan >/tmp/apt.log 2>&1 || fail "$(cat /tmp/apt.log)"
! systemctl is-active midspan || fail "active after apt-get remove"
wait_until nothing_left
download
cmp /etc/midspan/midspan.toml /tmp/midspan.toml || fail "the removal has changed the configuration"
[ -n "$(ls /var/lib/midspan)" ] || fail "the removal has deleted the state"
install_package "$new"
[ "$(systemctl is-enabled midspan)" = enabled ] || fail "not enabled after the next installation"
systemctl start midspan
intercepts
midspan status | grep 192.0.2.1 || fail "what was bypassed is forgotten"
finding "apt-get remove" "no rule and no route is left; the next installation finds configuration and state"

apt-get purge --yes midspan >/tmp/apt.log 2>&1 || fail "$(cat /tmp/apt.log)"
wait_until nothing_left
download
for left in /etc/midspan /var/lib/midspan /run/midspan /usr/bin/midspan /etc/systemd/system/*/midspan.service; do
    [ ! -e "$left" ] && [ ! -L "$left" ] || fail "left after apt-get purge: $left"
done
finding "apt-get purge" "nothing is left; connections pass"
