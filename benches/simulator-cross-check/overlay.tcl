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
set node(0) [$simulator node]
for {set last 0} {$last < $networks} {incr last} {
    set next [expr {$last + 1}]
    set node($next) [$simulator node]
    $simulator duplex-link $node($last) $node($next) 10Gb 5ms DropTail
    $simulator queue-limit $node($last) $node($next) 1000000
    $simulator queue-limit $node($next) $node($last) 1000000
    set errors [new ErrorModel]
    $errors unit pkt
    $errors set rate_ $loss
    $errors ranvar [new RandomVariable/Uniform]
    $errors drop-target [new Agent/Null]
    $simulator lossmodel $errors $node($last) $node($next)
}

# A connection between two nodes; sets `tcp` and `sink`.
proc connection {from to} {
    global simulator node window tcp sink
    set tcp [new Agent/TCP/Reno]
    $tcp set packetSize_ 1000
    $tcp set window_ $window
    $tcp set minrto_ 1
    set sink [new Agent/TCPSink]
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

if {$router > 0} {
    connection $router $networks
    set outbound $tcp
    connection 0 $router
    set inbound $tcp
    set relay [new Relay $outbound]
    $relay attach-agent $sink
    $simulator at 0 "$relay start"
} else {
    connection 0 $networks
    set inbound $tcp
    set outbound $tcp
}
set ftp [new Application/FTP]
$ftp attach-agent $inbound
proc report {} {
    global outbound
    puts [$outbound set ack_]
}
$simulator at 0 "$ftp start"
$simulator at [expr {$seconds / 5.0}] report
$simulator at $seconds "report; exit 0"
$simulator run
