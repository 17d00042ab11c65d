// Binary formats between sim/system.py (NumPy) and the harness: operations in, logs out. All little endian, no padding.
#pragma once
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

enum OpKind : uint16_t {
    OP_ROW = 1,      // row-sparse stores: a = operand of the first byte, b = payload offset, n = bytes; then a tail of d bytes
                     // from payload offset c, whose own sectors are of class .nop
    OP_PLAIN,        // plain stores: a = address, the rest as above
    OP_STORE,        // one store as given: a = operand, b = payload offset of its 32 bytes, n = byte mask, m = lane
    OP_COMMAND,      // a = CommandOp, b = handle, c = epoch; waits for the answer
    OP_SYNC,         // wait until every store of this thread has been answered
    OP_CSR_WRITE,    // a = address, c = value
    OP_CSR_READ,     // a = address; the value goes to the log
    OP_CSR_POLL,     // a = address, c = mask: until (value & mask) == d
    OP_WAIT_CYCLES,  // a = cycles
    OP_WAIT_EVENTS,  // until the events of kind a (EventKind + 4 * plain) number at least b
    OP_WAIT_MEMORY,  // a = address (8-byte aligned), c = mask: until (word & mask) == d, or != 0 when d is all ones
    OP_BARRIER,      // until every rank's thread of this number has come here
    OP_MARK,         // a = number; the cycle goes to the log
    OP_EXPERT,       // expert stand-in: a = address of the first row, n = rows, m = region, c = signals to wait for (bit mask)
    OP_SIGNAL,       // signal a (0..63) to the expert stand-in
};

struct Op {
    uint16_t kind;
    uint8_t cls, owner;
    uint16_t rank, thread;
    uint64_t a, b;
    uint32_t n, m;
    uint64_t c, d;
};
static_assert(sizeof(Op) == 48, "Op is 48 bytes");

struct EventRecord {    // o_event as taken
    uint64_t cycle;
    uint8_t kind, plain, epoch, status, refused, pad[3];
    uint32_t region, group, rows, pad2;
};
struct AllocRecord {    // obs_alloc
    uint64_t cycle;
    uint32_t rowid, slot;
    uint16_t region;
    uint8_t bank, overflow;
    uint32_t pad;
};
struct PacketRecord {   // a packet as received: cycles of its first and last flit, header flit, bytes it carries
    uint64_t first, last, low, high;
    uint16_t lane, bytes;
    uint32_t flits;
};
struct RefusalRecord {  // a store or command that was not answered OK
    uint64_t cycle, operand;
    uint16_t lane;
    uint8_t status, command;
    uint32_t pad;
};
struct ReadRecord {     // CSR_READ and MARK (address = mark number, flag 1)
    uint64_t cycle, address, value;
    uint32_t mark, thread;
};
struct IssueRecord {    // first store of a row job accepted
    uint64_t cycle, operand;
};

// Append-only file of records, written in blocks.
template <typename T> class Log {
  public:
    Log() = default;
    Log(const Log &) = delete;
    ~Log() { close(); }

    void open(const std::string &path) {
        file_ = std::fopen(path.c_str(), "wb");
        if (!file_) throw std::runtime_error("cannot write " + path);
    }
    void add(const T &record) {
        buffer_.push_back(record);
        if (buffer_.size() >= 4096) flush();
    }
    void close() {
        if (!file_) return;
        flush();
        std::fclose(file_);
        file_ = nullptr;
    }

  private:
    void flush() {
        if (std::fwrite(buffer_.data(), sizeof(T), buffer_.size(), file_) != buffer_.size())
            throw std::runtime_error("log: disk full?");
        buffer_.clear();
    }
    std::FILE *file_ = nullptr;
    std::vector<T> buffer_;
};

// Seeded pseudo-random numbers (xorshift64*), one generator per purpose and rank: results do not depend on threads.
class Random {
  public:
    explicit Random(uint64_t seed = 1) : state_(seed * 0x9E3779B97F4A7C15ull + 0x1234567) { next(); }
    uint32_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return static_cast<uint32_t>(state_ * 0x2545F4914F6CDD1Dull >> 32);
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(uint64_t(next()) * n >> 32); }

  private:
    uint64_t state_;
};

// Stall pattern of a handshake: percent of cycles held back, at random, or in a cycle of 4 (pattern 1).
struct Stall {
    int pattern = 0;    // 0 none, 1 cyclic (one cycle in four is open), 2 random
    int percent = 0;
    bool held(uint64_t cycle, Random &random) const {
        if (pattern == 0) return false;
        if (pattern == 1) return cycle % 4 != 3;
        return static_cast<int>(random.below(100)) < percent;
    }
};
