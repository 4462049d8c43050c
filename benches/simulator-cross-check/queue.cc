// Several flows over one link with a managed queue in ns-3, the scenario of `src/bin/managed-queues.rs`.
//
//     queue METHOD FLOWS SEED SECONDS [standard]
//
// METHOD is codel or fq_codel. With `standard`, ssthresh is that of the RFCs (settings.h). Prints the packets that arrived in order, and the 95th percentile of the
// time in seconds for which a packet with data waited, from the host's IP layer to its transmission.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include "settings.h"

using namespace ns3;

static std::map<uint64_t, Time> sent;
static std::vector<double> waits;

int main(int argc, char** argv)
{
    const bool standard = argc == 6 && std::string(argv[5]) == "standard";
    if (argc != (standard ? 6 : 5))
    {
        std::cerr << "usage: queue METHOD FLOWS SEED SECONDS [standard]" << std::endl;
        return 2;
    }
    const bool fair = std::string(argv[1]) == "fq_codel";
    const int flows = std::atoi(argv[2]);
    RngSeedManager::SetRun(std::atoi(argv[3]));
    MatchNs2("Sack", standard);
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1000000));

    NodeContainer nodes;
    nodes.Create(2);
    InternetStackHelper().Install(nodes);
    PointToPointHelper link;
    // Its links add two bytes of PPP to each packet of 1,040.
    const DataRate rate(10000000ULL * 1042 / 1040);
    const Time transmission = rate.CalculateBytesTxTime(1042);
    link.SetDeviceAttribute("DataRate", DataRateValue(rate));
    link.SetChannelAttribute("Delay", StringValue("25ms"));
    // One packet waits in the device, and all others in the queue that is managed.
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    NetDeviceContainer devices = link.Install(nodes);
    TrafficControlHelper managed;
    // The packet in the device has waited for one transmission more.
    const std::string target = std::to_string(5000000 - transmission.GetNanoSeconds()) + "ns";
    if (fair)
    {
        managed.SetRootQueueDisc("ns3::FqCoDelQueueDisc", "MaxSize", StringValue("1000p"), "Target",
                                 StringValue(target), "Interval", StringValue("100ms"));
    }
    else
    {
        managed.SetRootQueueDisc("ns3::CoDelQueueDisc", "MaxSize", StringValue("1000p"), "Target",
                                 StringValue(target), "Interval", StringValue("100ms"));
    }
    managed.Install(devices.Get(0));
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.0");
    const Ipv4Address end = addresses.Assign(devices).GetAddress(1);
    // Assigning addresses gives the other device a managed queue, too; its ACKs never wait.

    ApplicationContainer sinks;
    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    for (int flow = 0; flow < flows; ++flow)
    {
        const uint16_t port = 5000 + flow;
        const InetSocketAddress anywhere(Ipv4Address::GetAny(), port);
        sinks.Add(PacketSinkHelper("ns3::TcpSocketFactory", anywhere).Install(nodes.Get(1)));
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(end, port));
        source.Install(nodes.Get(0)).Start(Seconds(start->GetValue(0, 1)));
    }
    Config::ConnectWithoutContext(
        "/NodeList/0/$ns3::Ipv4L3Protocol/Tx",
        MakeCallback(+[](Ptr<const Packet> packet, Ptr<Ipv4>, uint32_t) {
            if (packet->GetSize() >= 1040)
            {
                sent[packet->GetUid()] = Simulator::Now();
            }
        }));
    static Time unavoidable;
    unavoidable = transmission + MilliSeconds(25);
    Config::ConnectWithoutContext(
        "/NodeList/1/$ns3::Ipv4L3Protocol/Rx",
        MakeCallback(+[](Ptr<const Packet> packet, Ptr<Ipv4>, uint32_t) {
            const auto found = sent.find(packet->GetUid());
            if (found != sent.end())
            {
                waits.push_back((Simulator::Now() - found->second - unavoidable).GetSeconds());
                sent.erase(found);
            }
        }));
    Simulator::Stop(Seconds(std::atof(argv[4])));
    Simulator::Run();
    uint64_t packets = 0;
    for (uint32_t index = 0; index < sinks.GetN(); ++index)
    {
        packets += DynamicCast<PacketSink>(sinks.Get(index))->GetTotalRx() / 1000;
    }
    std::sort(waits.begin(), waits.end());
    const double p95 = waits.empty() ? 0 : waits[size_t(0.95 * (waits.size() - 1))];
    std::cout << packets << " " << p95 << std::endl;
    Simulator::Destroy();
    return 0;
}
