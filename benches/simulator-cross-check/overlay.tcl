# Networks in a row in ns-2, with Reno from end to end or split at one router, the scenario of
# `src/bin/maki-table-2.rs`.
#
#     ns overlay.tcl NETWORKS ROUTER LOSS WINDOW SEED SECONDS
#
# Each network has 10 Gbit/s and 5 ms one way and loses data packets with the probability LOSS. ROUTER is
# the router with the proxy, 0 for none. Windows have up to WINDOW packets. Prints the packets that the
# last receiver has acknowledged after a fifth of the time, and at the end.

foreach {networks router loss window seed seconds} $argv break
global defaultRNG
$defaultRNG seed [expr {12345 + 7919 * $seed}]
set simulator [new Simulator]
source [file join [file dirname [info script]] split.tcl]
Agent/TCP set minrto_ 1
set node(0) [$simulator node]
for {set last 0} {$last < $networks} {incr last} {
    set next [expr {$last + 1}]
    set node($next) [$simulator node]
    $simulator duplex-link $node($last) $node($next) 10Gb 5ms DropTail
    $simulator queue-limit $node($last) $node($next) 1000000
    $simulator queue-limit $node($next) $node($last) 1000000
    lose $node($last) $node($next) $loss
}
set proxy [expr {$router > 0 ? $node($router) : ""}]
set times [list [expr {$seconds / 5.0}] $seconds]
transfer $node(0) $proxy $node($networks) Agent/TCP/Reno Agent/TCPSink $window $times
