# One flow over three hops in ns-2, the scenario of `examples/variants.rs`.
#
#     ns single_flow.tcl VARIANT LOSS SEED SECONDS
#
# VARIANT is Tahoe, Reno, Newreno or Sack1. Prints the packets acknowledged at the end.

foreach {variant loss seed seconds} $argv break
global defaultRNG
$defaultRNG seed [expr {12345 + 7919 * $seed}]
set simulator [new Simulator]
foreach index {0 1 2 3} { set node($index) [$simulator node] }
foreach {from to delay} {0 1 5ms 1 2 30ms 2 3 5ms} {
    $simulator duplex-link $node($from) $node($to) 10Mb $delay DropTail
    $simulator queue-limit $node($from) $node($to) 100
    $simulator queue-limit $node($to) $node($from) 100
}
if {$loss > 0} {
    set errors [new ErrorModel]
    $errors unit pkt
    $errors set rate_ $loss
    $errors ranvar [new RandomVariable/Uniform]
    $errors drop-target [new Agent/Null]
    $simulator lossmodel $errors $node(1) $node(2)
}
set agent(Tahoe) Agent/TCP
set agent(Reno) Agent/TCP/Reno
set agent(Newreno) Agent/TCP/Newreno
set agent(Sack1) Agent/TCP/Sack1
set tcp [new $agent($variant)]
$tcp set packetSize_ 1000
$tcp set window_ 100
if {$variant eq "Sack1"} { set sink [new Agent/TCPSink/Sack1] } else { set sink [new Agent/TCPSink] }
$simulator attach-agent $node(0) $tcp
$simulator attach-agent $node(3) $sink
$simulator connect $tcp $sink
set ftp [new Application/FTP]
$ftp attach-agent $tcp
proc report {} {
    global tcp
    puts [$tcp set ack_]
    exit 0
}
$simulator at 0 "$ftp start"
$simulator at $seconds report
$simulator run
