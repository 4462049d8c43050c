// One NewReno flow over three hops in ns-3, the scenario of `src/midspan.rs`.
//
//     speed FLOWS SECONDS
//
// Prints the data packets that arrived.

#include <cstdlib>
#include <iostream>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

int main(int argc, char** argv)
{
    const int flows = std::atoi(argv[1]);
    const double seconds = std::atof(argv[2]);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(100000));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(100000));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));

    NodeContainer nodes;
    nodes.Create(4);
    InternetStackHelper().Install(nodes);
    const char* delays[] = {"5ms", "30ms", "5ms"};
    Ipv4Address end;
    for (int hop = 0; hop < 3; ++hop)
    {
        PointToPointHelper link;
        link.SetDeviceAttribute("DataRate", StringValue("10Mbps"));
        link.SetChannelAttribute("Delay", StringValue(delays[hop]));
        link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100p"));
        NetDeviceContainer devices = link.Install(nodes.Get(hop), nodes.Get(hop + 1));
        if (hop == 1)
        {
            Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
            errors->SetAttribute("ErrorRate", DoubleValue(0.001));
            errors->SetAttribute("ErrorUnit", StringValue("ERROR_UNIT_PACKET"));
            devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
        }
        Ipv4AddressHelper addresses;
        addresses.SetBase(Ipv4Address(("10.0." + std::to_string(hop) + ".0").c_str()),
                          "255.255.255.0");
        end = addresses.Assign(devices).GetAddress(1);
        TrafficControlHelper().Uninstall(devices);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    ApplicationContainer sinks;
    for (int flow = 0; flow < flows; ++flow)
    {
        const uint16_t port = 5000 + flow;
        const InetSocketAddress there(end, port);
        sinks.Add(PacketSinkHelper("ns3::TcpSocketFactory",
                                   InetSocketAddress(Ipv4Address::GetAny(), port))
                      .Install(nodes.Get(3)));
        ApplicationContainer source =
            BulkSendHelper("ns3::TcpSocketFactory", there).Install(nodes.Get(0));
        source.Start(MilliSeconds(flow));
    }
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    uint64_t bytes = 0;
    for (uint32_t sink = 0; sink < sinks.GetN(); ++sink)
    {
        bytes += DynamicCast<PacketSink>(sinks.Get(sink))->GetTotalRx();
    }
    std::cout << flows << " flows: " << bytes / 1000 << " data packets" << std::endl;
    Simulator::Destroy();
    return 0;
}
