// SPDX-License-Identifier: Apache-2.0
// Links and switch: every link is a plane of its own with one output queue per rank. A packet is stored, delayed by the link
// latency, and leaves with one flit per cycle; seq is stamped anew. Queues are bounded by the hubs' credits alone. Time is in
// ticks, cycles of the links' clock; what is told to others is in cycles of the hub's.
//
// The latency is also the lookahead: hubs run `window` <= latency cycles on their own between two exchanges, so the result
// does not depend on how many threads run them.
#pragma once
#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "formats.h"
#include "pins.h"
#include "support.h"

// Cycles of the hub's clock in ticks: so many ticks in so many cycles. The first tick in a cycle comes with the hub's edge.
struct Clocks {
    uint64_t ticks = 1, cycles = 1;
    uint64_t tick(uint64_t cycle) const { return (cycle * ticks + cycles - 1) / cycles; }      // the first one in a cycle
};

struct Packet {
    static constexpr unsigned MAX = 20;     // header, two mask flits, sixteen payload flits, one to see too long ones
    uint64_t time = 0;                      // sender: tick of the last flit; receiver: first tick it may arrive
    uint16_t count = 0, dest = 0;
    std::array<Flit, MAX> flits;
};

struct Fault {                  // of the packet number `index` (from 0) that link `link` delivers to rank `dest`
    enum Kind { DROP, DUPLICATE, CORRUPT, TRUNCATE, MUTE } kind;   // MUTE: and every later one is lost
    unsigned dest, link;
    uint64_t index;
    unsigned bit;               // CORRUPT: bit of the packet that flips
};

inline PacketRecord packet_record(const Packet &packet, uint64_t first, uint64_t last, unsigned link) {
    const Flit &head = packet.flits[0];
    uint64_t type = header::type.get(head), len = header::len.get(head), bytes = 0;
    if (type == PacketType::ROW || type == PacketType::PLAIN) {
        bytes = len * FLIT_BYTES;
        if (header::masked.get(head)) {
            bytes = 0;
            for (unsigned n = 1; n + len < packet.count; n++)
                bytes += static_cast<unsigned>(__builtin_popcountll(packet.flits[n].low) + __builtin_popcountll(packet.flits[n].high));
        }
    }
    return {first, last, head.low, head.high, static_cast<uint16_t>(link), static_cast<uint16_t>(bytes), packet.count};
}

// Transmit side of one link, in the rank's thread: gathers packets.
class LinkOut {
  public:
    void connect(const PinTable &pin, unsigned link, const Stall *stall, uint64_t seed, Log<PacketRecord> *watch) {
        stall_ = stall, random_ = Random(seed), link_ = link, watch_ = watch;
        std::string name = "m_axis_link" + std::to_string(link);
        data_ = pin(name + "_tdata"), valid_ = pin(name + "_tvalid"), ready_ = pin(name + "_tready");
        last_ = pin(name + "_tlast"), dest_ = pin(name + "_tdest");
    }
    void drive(uint64_t tick) { ready_ = !stall_->held(tick, random_); }
    bool sample(uint64_t tick, uint64_t cycle) {
        waiting += valid_ && !ready_;
        if (!(valid_ && ready_)) return false;
        if (packet_.count < Packet::MAX) data_.read(&packet_.flits[packet_.count], FLIT_BYTES);
        if (packet_.count++ == 0) first_ = cycle;
        if (flits++ == 0) first_flit = cycle;
        last_flit = cycle;
        if (last_) {
            if (packet_.count > Packet::MAX) bad++, packet_.count = Packet::MAX;
            packet_.time = tick, packet_.dest = static_cast<uint16_t>(dest_.get());
            done.push_back(packet_);
            PacketRecord record = packet_record(packet_, first_, cycle, link_);
            bytes += record.bytes;
            if (watch_) watch_->add(record);
            packet_.count = 0;
            packets++;
        }
        return true;
    }
    bool blocked() const { return bool(valid_); }     // after sample() was false: a flit waits for the fabric
    std::vector<Packet> done;   // of this window, taken by the fabric
    uint64_t flits = 0, bytes = 0, packets = 0, waiting = 0, bad = 0, first_flit = 0, last_flit = 0;

  private:
    const Stall *stall_ = nullptr;
    Random random_;
    unsigned link_ = 0;
    uint64_t first_ = 0;
    Log<PacketRecord> *watch_ = nullptr;
    Pin data_, valid_, ready_, last_, dest_;
    Packet packet_;
};

// Receive side of one link, in the rank's thread: plays packets, logs them.
class LinkIn {
  public:
    void connect(const PinTable &pin, unsigned link, Log<PacketRecord> *log) {
        link_ = link, log_ = log;
        std::string name = "s_axis_link" + std::to_string(link);
        data_ = pin(name + "_tdata"), valid_ = pin(name + "_tvalid"), ready_ = pin(name + "_tready"), last_ = pin(name + "_tlast");
    }
    void drive(uint64_t tick) {
        offered_ = !queue.empty() && (at_ > 0 || queue.front().time <= tick);
        valid_ = offered_;
        if (!offered_) return;
        const Packet &packet = queue.front();
        data_.write(&packet.flits[at_], FLIT_BYTES);
        last_ = at_ + 1u == packet.count;
    }
    bool sample(uint64_t cycle) {
        if (!offered_) return false;
        if (!ready_) {
            refused++;      // credits promise a place: only a hub that is still clearing its tables may do this
            return false;
        }
        if (at_ == 0) first_ = cycle;
        flits++;
        if (++at_ == queue.front().count) {
            log_->add(packet_record(queue.front(), first_, cycle, link_));
            queue.pop_front();
            at_ = 0;
        }
        return true;
    }
    std::deque<Packet> queue;
    uint64_t flits = 0, refused = 0;

  private:
    unsigned link_ = 0;
    Log<PacketRecord> *log_ = nullptr;
    Pin data_, valid_, ready_, last_;
    unsigned at_ = 0;
    bool offered_ = false;
    uint64_t first_ = 0;
};

class Switch {
  public:
    Switch(unsigned ranks, unsigned links, uint64_t latency, std::vector<Fault> faults)
        : ranks_(ranks), links_(links), latency_(latency), faults_(std::move(faults)), outputs_(ranks * links) {}

    // Moves the packets of one window from `out(rank, link)` to `in(rank, link)`, in the order of their last flits.
    template <typename Outs, typename Ins> void exchange(Outs out, Ins in) {
        for (unsigned link = 0; link < links_; link++) {
            order_.clear();
            for (unsigned rank = 0; rank < ranks_; rank++)
                for (auto &packet : out(rank, link).done) order_.push_back({packet.time, static_cast<unsigned>((rank + packet.time) % ranks_), &packet});
            std::sort(order_.begin(), order_.end(), [](const Entry &a, const Entry &b) {
                return a.time != b.time ? a.time < b.time : a.turn < b.turn;
            });
            for (auto &entry : order_) {
                if (entry.packet->dest >= ranks_) {
                    lost++;
                    continue;
                }
                deliver(*entry.packet, link, in(entry.packet->dest, link).queue);
            }
            for (unsigned rank = 0; rank < ranks_; rank++) out(rank, link).done.clear();
        }
    }
    // Every queue is empty and every number 0, as at power-up.
    void reset() { outputs_.assign(outputs_.size(), Output()); }
    uint64_t lost = 0, faulted = 0;

  private:
    struct Entry { uint64_t time; unsigned turn; const Packet *packet; };
    struct Output { uint64_t free = 0, index = 0; unsigned seq = 0; bool mute = false; };

    void deliver(const Packet &packet, unsigned link, std::deque<Packet> &queue) {
        Output &output = outputs_[packet.dest * links_ + link];
        Packet copy = packet;
        unsigned times = 1;
        for (auto &fault : faults_) {
            if (fault.dest != packet.dest || fault.link != link || fault.index != output.index) continue;
            faulted++;
            if (fault.kind == Fault::DROP) times = 0;
            if (fault.kind == Fault::DUPLICATE) times = 2;
            if (fault.kind == Fault::MUTE) output.mute = true;
            if (fault.kind == Fault::TRUNCATE && copy.count > 1) copy.count--;
            if (fault.kind == Fault::CORRUPT) {
                Flit &flit = copy.flits[fault.bit / FLIT % copy.count];
                (fault.bit % FLIT < 64 ? flit.low : flit.high) ^= 1ull << fault.bit % 64;
            }
        }
        output.index++;
        unsigned seq = output.seq;
        output.seq = static_cast<unsigned>(header::seq.wrap(seq + 1));  // a lost packet leaves a gap, a doubled one repeats its number
        if (output.mute) return;
        header::seq.set(copy.flits[0], seq);
        while (times--) {
            copy.time = std::max(output.free, packet.time + latency_);
            output.free = copy.time + copy.count;
            queue.push_back(copy);
        }
    }

    unsigned ranks_, links_;
    uint64_t latency_;
    std::vector<Fault> faults_;
    std::vector<Output> outputs_;
    std::vector<Entry> order_;
};
