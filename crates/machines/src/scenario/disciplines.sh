# Queueing disciplines that pace, delay, lose and reorder.
network
gateway | install_service
start
for discipline in "fq" "fq_codel" "cake" "netem delay 100ms 10ms" "netem delay 20ms loss 1% reorder 5%"; do
    modprobe "sch_${discipline%% *}"
    tc qdisc replace dev eth1 root $discipline
    intercepts
    download || fail "a download over $discipline"
    finding "tc qdisc $discipline" "downloads are complete"
done
# A paced leg is paced by fq itself.
tc qdisc replace dev eth1 root fq
gateway | sed 's/^policy.*/client_leg = { congestion_control = "bbr", pacing_rate = "20 Mbit\/s" }/' \
    >/etc/midspan/midspan.toml
reload
intercepts
download
finding "BBR, and a pacing rate over fq" "downloads are complete"
