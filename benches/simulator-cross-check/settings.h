// TCP's settings in ns-3 that differ from its defaults, for every program here.

#include <algorithm>
#include <string>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"

namespace ns3
{
// NewReno that halves what RFC 5681 (equation 4) and RFC 6675 (section 5, step 4.2) halve: the data that is
// sent and not acknowledged, without the segments of limited transmit. ns-3 halves its bytes in flight, which
// exclude what is SACKed or lost.
class TcpStandardThreshold : public TcpNewReno
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("ns3::TcpStandardThreshold")
                               .SetParent<TcpNewReno>()
                               .SetGroupName("Internet")
                               .AddConstructor<TcpStandardThreshold>();
        return id;
    }

    std::string GetName() const override
    {
        return "TcpStandardThreshold";
    }

    uint32_t GetSsThresh(Ptr<const TcpSocketState> state, uint32_t) override
    {
        const uint32_t outstanding = state->m_highTxMark.Get() - state->m_lastAckedSeq;
        const uint32_t window = state->m_cWnd;
        return std::max(2 * state->m_segmentSize, std::min(outstanding, window) / 2);
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<TcpStandardThreshold>(this);
    }
};

NS_OBJECT_ENSURE_REGISTERED(TcpStandardThreshold);
} // namespace ns3

using namespace ns3;

static void MatchNs2(const std::string& variant, bool standard = false)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       StringValue(standard ? "ns3::TcpStandardThreshold" : "ns3::TcpNewReno"));
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
