// TCP's settings in ns-3 that differ from its defaults, for every program here.

#include <string>

#include "ns3/core-module.h"

using namespace ns3;

static void MatchNs2(const std::string& variant)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
    // The default, PRR, sends less in recovery.
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", StringValue("ns3::TcpClassicRecovery"));
    const bool sack = variant == "Sack";
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
    // Twelve bytes in each header.
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    // Without SACK, a duplicate ACK that recovery does not follow counts as a segment received for
    // good: the sender then has more under way than cwnd.
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit",
                       BooleanValue(variant != "NewReno"));
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
