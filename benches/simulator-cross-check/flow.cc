// One flow over a chain of links in ns-3, the scenario `single` of `src/scenario.rs`.
//
//     flow VARIANT LOSS SEED SECONDS [standard] [beyond]
//
// VARIANT is NewReno, Sack, or NewRenoLimited: NewReno with ns-3's limited transmit. With `standard`,
// ssthresh is that of the RFCs (settings.h). With `beyond`, it also prints on standard error how many
// segments left while more than cwnd and a segment was under way, outside recovery, and which part of
// cwnd ssthresh became.
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

#include "settings.h"

using namespace ns3;

// What the sender has under way, as its own segments and ACKs show it.
static struct
{
    uint32_t cwnd{0};
    uint32_t acknowledged{0};
    uint32_t sent{0};
    bool open{true};
    unsigned segments{0};
    unsigned beyond{0};
    unsigned thresholds{0};
    double shares{0};
} seen;

static void Watch()
{
    const std::string socket = "/NodeList/0/$ns3::TcpL4Protocol/SocketList/*/";
    auto connect = [&](const char* source, const CallbackBase& callback) {
        Config::ConnectWithoutContext(socket + source, callback);
    };
    connect("CongestionWindow", MakeCallback(+[](uint32_t, uint32_t now) { seen.cwnd = now; }));
    connect("SlowStartThreshold", MakeCallback(+[](uint32_t, uint32_t now) {
                // At first it is without bound.
                if (now < 1000000000)
                {
                    ++seen.thresholds;
                    seen.shares += double(now) / seen.cwnd;
                }
            }));
    connect("CongState",
            MakeCallback(+[](TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t now) {
                seen.open = now == TcpSocketState::CA_OPEN;
            }));
    connect("Rx", MakeCallback(+[](Ptr<const Packet>, const TcpHeader& header,
                                   Ptr<const TcpSocketBase>) {
                seen.acknowledged =
                    std::max(seen.acknowledged, header.GetAckNumber().GetValue());
            }));
    connect("Tx", MakeCallback(+[](Ptr<const Packet> packet, const TcpHeader& header,
                                   Ptr<const TcpSocketBase>) {
                if (packet->GetSize() == 0)
                {
                    return;
                }
                const uint32_t end = header.GetSequenceNumber().GetValue() + packet->GetSize();
                seen.sent = std::max(seen.sent, end);
                ++seen.segments;
                seen.beyond += seen.open && seen.sent - seen.acknowledged > seen.cwnd + 1000;
            }));
}

int main(int argc, char** argv)
{
    bool beyond = false;
    bool standard = false;
    bool known = argc >= 5;
    for (int option = 5; option < argc; ++option)
    {
        const std::string name = argv[option];
        beyond |= name == "beyond";
        standard |= name == "standard";
        known &= name == "beyond" || name == "standard";
    }
    if (!known)
    {
        std::cerr << "usage: flow VARIANT LOSS SEED SECONDS [standard] [beyond]" << std::endl;
        return 2;
    }
    const double loss = std::atof(argv[2]);
    RngSeedManager::SetRun(std::atoi(argv[3]));
    MatchNs2(argv[1], standard);

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
    if (beyond)
    {
        // The socket is there when the application has started.
        Simulator::Schedule(MilliSeconds(1), &Watch);
    }
    Simulator::Stop(Seconds(std::atof(argv[4])));
    Simulator::Run();
    std::cout << DynamicCast<PacketSink>(sinks.Get(0))->GetTotalRx() / 1000 << std::endl;
    if (beyond)
    {
        std::cerr << seen.beyond << " of " << seen.segments << " segments beyond cwnd; ssthresh was set "
                  << seen.thresholds << " times, on average to " << seen.shares / seen.thresholds
                  << " of cwnd" << std::endl;
    }
    Simulator::Destroy();
    return 0;
}
