# One flow over a chain of links in ns-2, the scenarios of `src/scenario.rs`.
#
#     ns flow.tcl SCENARIO VARIANT LOSS SEED SECONDS
#
# SCENARIO is single or split, VARIANT is Tahoe, Reno, NewReno or Sack. Prints the packets that the
# last receiver has acknowledged at the end, as their sender knows.

foreach {scenario variant loss seed seconds} $argv break
global defaultRNG
$defaultRNG seed [expr {12345 + 7919 * $seed}]
set simulator [new Simulator]
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
        set errors [new ErrorModel]
        $errors unit pkt
        $errors set rate_ $loss
        $errors ranvar [new RandomVariable/Uniform]
        $errors drop-target [new Agent/Null]
        $simulator lossmodel $errors $node($link) $node([expr {$link + 1}])
    }
}

set agent(Tahoe) Agent/TCP
set agent(Reno) Agent/TCP/Reno
set agent(NewReno) Agent/TCP/Newreno
set agent(Sack) Agent/TCP/Sack1
# A connection between two nodes; sets `tcp` and `sink`.
proc connection {from to} {
    global simulator node agent variant tcp sink
    set tcp [new $agent($variant)]
    $tcp set packetSize_ 1000
    $tcp set window_ 100
    if {$variant eq "Sack"} {
        set sink [new Agent/TCPSink/Sack1]
    } else {
        set sink [new Agent/TCPSink]
    }
    $simulator attach-agent $node($from) $tcp
    $simulator attach-agent $node($to) $sink
    $simulator connect $tcp $sink
}

# A split proxy without limits: what a sink has received in order goes to the next sender.
Class Relay -superclass Application
Relay instproc init {outbound} {
    $self next
    $self instvar next received forwarded
    set next $outbound
    set received 0
    set forwarded 0
}
Relay instproc recv {bytes} {
    $self instvar next received forwarded
    incr received $bytes
    # With headers; the SYN has nothing else.
    set packets [expr {$received / 1040 - $forwarded}]
    if {$packets > 0} {
        incr forwarded $packets
        $next advanceby $packets
    }
}

if {$scenario eq "split"} {
    connection 2 4
    set outbound $tcp
    connection 0 2
    set inbound $tcp
    set relay [new Relay $outbound]
    $relay attach-agent $sink
    $simulator at 0 "$relay start"
} else {
    connection 0 3
    set inbound $tcp
    set outbound $tcp
}
set ftp [new Application/FTP]
$ftp attach-agent $inbound
proc report {} {
    global outbound
    puts [$outbound set ack_]
    exit 0
}
$simulator at 0 "$ftp start"
$simulator at $seconds report
$simulator run
