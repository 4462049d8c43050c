# What the scenarios for ns-2 have in common. The file is read with `source` after `simulator` and the
# nodes have been made.

# Losses on the link from `from` to `to`, each packet with the probability `rate`.
proc lose {from to rate} {
    global simulator
    set errors [new ErrorModel]
    $errors unit pkt
    $errors set rate_ $rate
    $errors ranvar [new RandomVariable/Uniform]
    $errors drop-target [new Agent/Null]
    $simulator lossmodel $errors $from $to
}

# A connection between two nodes; sets `tcp` and `sink`.
proc connection {from to agent sinkAgent window} {
    global simulator tcp sink
    set tcp [new $agent]
    $tcp set packetSize_ 1000
    $tcp set window_ $window
    set sink [new $sinkAgent]
    $simulator attach-agent $from $tcp
    $simulator attach-agent $to $sink
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

# A transfer without end from `first` to `last`, split at the node `proxy` unless that is empty. Prints
# the packets that `last` has acknowledged at each of the times, and ends at the last of them.
proc transfer {first proxy last agent sinkAgent window times} {
    global simulator tcp sink outbound
    if {$proxy ne ""} {
        connection $proxy $last $agent $sinkAgent $window
        set outbound $tcp
        connection $first $proxy $agent $sinkAgent $window
        set relay [new Relay $outbound]
        $relay attach-agent $sink
        $simulator at 0 "$relay start"
    } else {
        connection $first $last $agent $sinkAgent $window
        set outbound $tcp
    }
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $simulator at 0 "$ftp start"
    foreach time $times {
        $simulator at $time {puts [$outbound set ack_]}
    }
    $simulator at [lindex $times end] {exit 0}
    $simulator run
}
