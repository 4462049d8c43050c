// One flow over a chain of links in ns-3, the scenario `single` of `src/scenario.rs`.
//
//     flow VARIANT LOSS SEED SECONDS
//
// VARIANT is NewReno or Sack.
//
// Prints the packets that arrived in order. What ns-3 does otherwise by default is set as ns-2 has
// it.

#include <cstdlib>
#include <iostream>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static void MatchNs2(bool sack)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
    // The default, PRR, sends less in recovery.
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", StringValue("ns3::TcpClassicRecovery"));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
    // Twelve bytes in each header.
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    // Without SACK, a duplicate ACK that recovery does not follow counts as a segment received for
    // good: the sender then has more under way than cwnd.
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(sack));
    // Writes of 512 bytes, the default, leave small segments where the send buffer is full.
    Config::SetDefault("ns3::BulkSendApplication::SendSize", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MilliSeconds(10)));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(3)));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(100000));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1000000));
}

int main(int argc, char** argv)
{
    if (argc != 5)
    {
        std::cerr << "usage: flow VARIANT LOSS SEED SECONDS" << std::endl;
        return 2;
    }
    const double loss = std::atof(argv[2]);
    RngSeedManager::SetRun(std::atoi(argv[3]));
    MatchNs2(std::string(argv[1]) == "Sack");

    NodeContainer nodes;
    nodes.Create(4);
    InternetStackHelper().Install(nodes);
    const char* delays[] = {"5ms", "30ms", "5ms"};
    Ipv4Address end;
    for (int hop = 0; hop < 3; ++hop)
    {
        PointToPointHelper link;
        // Its links add two bytes of PPP to each packet of 1,040.
        link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(10000000ULL * 1042 / 1040)));
        link.SetChannelAttribute("Delay", StringValue(delays[hop]));
        link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100p"));
        NetDeviceContainer devices = link.Install(nodes.Get(hop), nodes.Get(hop + 1));
        if (hop == 1 && loss > 0)
        {
            Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
            errors->SetAttribute("ErrorRate", DoubleValue(loss));
            errors->SetAttribute("ErrorUnit", StringValue("ERROR_UNIT_PACKET"));
            devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
        }
        Ipv4AddressHelper addresses;
        addresses.SetBase(Ipv4Address(("10.0." + std::to_string(hop) + ".0").c_str()),
                          "255.255.255.0");
        end = addresses.Assign(devices).GetAddress(1);
        // ns-3 would put a second queue with active management before the link's.
        TrafficControlHelper().Uninstall(devices);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    const InetSocketAddress anywhere(Ipv4Address::GetAny(), 5000);
    ApplicationContainer sinks =
        PacketSinkHelper("ns3::TcpSocketFactory", anywhere).Install(nodes.Get(3));
    BulkSendHelper("ns3::TcpSocketFactory", InetSocketAddress(end, 5000)).Install(nodes.Get(0));
    Simulator::Stop(Seconds(std::atof(argv[4])));
    Simulator::Run();
    std::cout << DynamicCast<PacketSink>(sinks.Get(0))->GetTotalRx() / 1000 << std::endl;
    Simulator::Destroy();
    return 0;
}
