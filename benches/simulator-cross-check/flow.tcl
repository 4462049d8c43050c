# One flow over a chain of links in ns-2, the scenarios of `src/scenario.rs`.
#
#     ns flow.tcl SCENARIO VARIANT LOSS SEED SECONDS
#
# SCENARIO is single or split, VARIANT is Tahoe, Reno, NewReno or Sack. Prints the packets that the
# last receiver has acknowledged at the end.

foreach {scenario variant loss seed seconds} $argv break
global defaultRNG
$defaultRNG seed [expr {12345 + 7919 * $seed}]
set simulator [new Simulator]
source [file join [file dirname [info script]] split.tcl]
# Milliseconds of each link, and those that lose packets.
set delays(single) {5 30 5}
set delays(split) {5 15 15 5}
set lossy(single) {1}
set lossy(split) {1 2}
set node(0) [$simulator node]
set last 0
foreach delay $delays($scenario) {
    set from $last
    incr last
    set node($last) [$simulator node]
    $simulator duplex-link $node($from) $node($last) 10Mb ${delay}ms DropTail
    $simulator queue-limit $node($from) $node($last) 100
    $simulator queue-limit $node($last) $node($from) 100
}
foreach link $lossy($scenario) {
    if {$loss > 0} {
        lose $node($link) $node([expr {$link + 1}]) $loss
    }
}

set agent(Tahoe) Agent/TCP
set agent(Reno) Agent/TCP/Reno
set agent(NewReno) Agent/TCP/Newreno
set agent(Sack) Agent/TCP/Sack1
set sinkAgent Agent/TCPSink
if {$variant eq "Sack"} {
    set sinkAgent Agent/TCPSink/Sack1
}
set proxy [expr {$scenario eq "split" ? $node(2) : ""}]
transfer $node(0) $proxy $node($last) $agent($variant) $sinkAgent 100 [list $seconds]
