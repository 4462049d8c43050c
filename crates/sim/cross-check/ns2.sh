#!/bin/sh
# Packets acknowledged in ns-2 for each variant and loss, mean of some seeds, to be laid beside
# `cargo run --release -p midspan-sim --example variants`. Needs Debian's package ns2.
set -eu
seeds=${1:-20}
seconds=${2:-200}
cd "$(dirname "$0")"
for variant in Tahoe Reno Newreno Sack1; do
    for loss in 0 0.0005 0.001 0.002 0.005 0.01 0.02 0.05; do
        seed=1
        while [ "$seed" -le "$seeds" ]; do
            ns single_flow.tcl "$variant" "$loss" "$seed" "$seconds"
            seed=$((seed + 1))
        done | awk -v variant="$variant" -v loss="$loss" '
            { sum += $1; squares += $1 * $1; n++ }
            END {
                mean = sum / n
                spread = n > 1 ? sqrt((squares - n * mean * mean) / (n - 1)) : 0
                printf "%-8s %-7s %9.0f packets ± %.0f\n", variant, loss, mean, 2.093 * spread / sqrt(n)
            }'
    done
done
