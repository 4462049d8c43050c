# NewReno flows over three hops in ns-2, the scenario of `src/midspan.rs`.
#
#     ns speed.tcl FLOWS SECONDS
#
# Prints the data packets that were sent. Time it twice, once with 1 second, to take the start off.

foreach {flows seconds} $argv break
set simulator [new Simulator]
foreach index {0 1 2 3} { set node($index) [$simulator node] }
foreach {from to delay} {0 1 5ms 1 2 30ms 2 3 5ms} {
    $simulator duplex-link $node($from) $node($to) 10Mb $delay DropTail
    $simulator queue-limit $node($from) $node($to) 100
    $simulator queue-limit $node($to) $node($from) 100
}
set errors [new ErrorModel]
$errors unit pkt
$errors set rate_ 0.001
$errors ranvar [new RandomVariable/Uniform]
$errors drop-target [new Agent/Null]
$simulator lossmodel $errors $node(1) $node(2)
for {set flow 0} {$flow < $flows} {incr flow} {
    set tcp($flow) [new Agent/TCP/Newreno]
    $tcp($flow) set packetSize_ 1000
    $tcp($flow) set window_ 100
    set sink [new Agent/TCPSink]
    $simulator attach-agent $node(0) $tcp($flow)
    $simulator attach-agent $node(3) $sink
    $simulator connect $tcp($flow) $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($flow)
    $simulator at [expr {$flow / 1000.0}] "$ftp start"
}
proc report {} {
    global tcp flows
    set packets 0
    for {set flow 0} {$flow < $flows} {incr flow} {
        incr packets [$tcp($flow) set ndatapack_]
    }
    puts "$flows flows: $packets data packets"
    exit 0
}
$simulator at $seconds report
$simulator run
