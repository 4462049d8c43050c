# systemd's MemoryMax= is the limit of a cgroup (version 2).
[ "$(stat --file-system --format %T /sys/fs/cgroup)" = cgroup2fs ]
network
gateway | install_service
mkdir --parents /etc/systemd/system/midspan.service.d
printf '[Service]\nMemoryMax=200M\n' >/etc/systemd/system/midspan.service.d/memory.conf
systemctl daemon-reload
start
intercepts
journalctl --unit midspan --no-pager | grep --ignore-case 'memory' || true
download
systemctl show --property OOMPolicy,MemoryPeak,MemoryCurrent midspan || true
finding "MemoryMax= of systemd" "sessions work within it"
