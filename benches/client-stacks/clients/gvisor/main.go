// A download through gVisor's netstack.
//
// Arguments: own address, address and port of the server. Standard input is a TUN device: a read or
// a write is one IP packet. Sends "get" and writes what comes to standard output until the server
// closes.
package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	device = 0
	mtu    = 1500
	nic    = 1
)

func main() {
	if err := download(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func download(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: client OWN-ADDRESS SERVER PORT")
	}
	own, err := netip.ParseAddr(arguments[0])
	if err != nil {
		return err
	}
	server, err := netip.ParseAddr(arguments[1])
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(arguments[2], 10, 16)
	if err != nil {
		return err
	}

	netstack := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	link, err := fdbased.New(&fdbased.Options{FDs: []int{device}, MTU: mtu})
	if err != nil {
		return err
	}
	if err := netstack.CreateNIC(nic, link); err != nil {
		return fmt.Errorf("interface: %s", err)
	}
	protocol, everything := ipv4.ProtocolNumber, header.IPv4EmptySubnet
	if own.Is6() {
		protocol, everything = ipv6.ProtocolNumber, header.IPv6EmptySubnet
	}
	address := tcpip.ProtocolAddress{
		Protocol:          protocol,
		AddressWithPrefix: tcpip.AddrFromSlice(own.AsSlice()).WithPrefix(),
	}
	if err := netstack.AddProtocolAddress(nic, address, stack.AddressProperties{}); err != nil {
		return fmt.Errorf("address: %s", err)
	}
	netstack.SetRouteTable([]tcpip.Route{{Destination: everything, NIC: nic}})

	to := tcpip.FullAddress{
		NIC:  nic,
		Addr: tcpip.AddrFromSlice(server.AsSlice()),
		Port: uint16(port),
	}
	connection, err := gonet.DialTCP(netstack, to, protocol)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if _, err := connection.Write([]byte("get")); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if _, err := io.Copy(os.Stdout, connection); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	connection.Close()
	// The last FIN and ACKs leave before the device goes.
	time.Sleep(100 * time.Millisecond)
	return nil
}
