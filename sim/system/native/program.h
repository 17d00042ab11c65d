// SPDX-License-Identifier: Apache-2.0
// One thread of a rank's program: operations in order, at most one CSR access in flight per rank.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "expert.h"
#include "formats.h"
#include "memory.h"
#include "stores.h"

// AXI4-Lite master for the registers; one transaction at a time.
class CsrMaster {
  public:
    void connect(const PinTable &pin) {
        std::string name = "s_axil_csr_";
        awaddr_ = pin(name + "awaddr"), awvalid_ = pin(name + "awvalid"), awready_ = pin(name + "awready");
        wdata_ = pin(name + "wdata"), wstrb_ = pin(name + "wstrb"), wvalid_ = pin(name + "wvalid"), wready_ = pin(name + "wready");
        bresp_ = pin(name + "bresp"), bvalid_ = pin(name + "bvalid"), bready_ = pin(name + "bready");
        araddr_ = pin(name + "araddr"), arvalid_ = pin(name + "arvalid"), arready_ = pin(name + "arready");
        rdata_ = pin(name + "rdata"), rresp_ = pin(name + "rresp"), rvalid_ = pin(name + "rvalid"), rready_ = pin(name + "rready");
    }
    void start(bool write, uint32_t addr, uint32_t value) {
        if (write) {
            awaddr_ = addr, wdata_ = value, wstrb_ = 15;
            awvalid_ = 1, wvalid_ = 1, bready_ = 1;
        } else {
            araddr_ = addr, arvalid_ = 1, rready_ = 1;
        }
        busy = true, done = false, write_ = write;
    }
    void sample() {
        if (!busy) return;
        bool finished = write_ ? bvalid_ && bready_ : rvalid_ && rready_;
        if (finished) {
            if (write_) bready_drop_ = true;
            else value = static_cast<uint32_t>(rdata_.get()), rready_drop_ = true;
            errors += (write_ ? bresp_ : rresp_).get() != 0;
        }
        aw_drop_ = awvalid_ && awready_, w_drop_ = wvalid_ && wready_, ar_drop_ = arvalid_ && arready_;
        done = finished;
    }
    void drive() {      // what was taken in the last cycle is withdrawn
        if (!busy) return;
        if (aw_drop_) awvalid_ = 0, aw_drop_ = false;
        if (w_drop_) wvalid_ = 0, w_drop_ = false;
        if (ar_drop_) arvalid_ = 0, ar_drop_ = false;
        if (bready_drop_) bready_ = 0, bready_drop_ = false;
        if (rready_drop_) rready_ = 0, rready_drop_ = false;
        if (done) busy = false;
    }
    bool busy = false, done = false;
    uint32_t value = 0;
    uint64_t errors = 0;

  private:
    Pin awaddr_, awvalid_, awready_, wdata_, wstrb_, wvalid_, wready_, bresp_, bvalid_, bready_;
    Pin araddr_, arvalid_, arready_, rdata_, rresp_, rvalid_, rready_;
    bool write_ = false, aw_drop_ = false, w_drop_ = false, ar_drop_ = false, bready_drop_ = false, rready_drop_ = false;
};

// Master of the command port: a tag for each command under way. Announcements with more behind them are only given, as a GPU
// posts them; of all others the program awaits the answer.
class CommandPort {
  public:
    struct Flight {
        Op op;
        uint64_t begun = 0;
        bool busy = false, done = false, posted = false;
        uint8_t status = 0;
    };

    // commands: null unless watched.
    void connect(const PinTable &pin, Log<RefusalRecord> *refusals, Log<CommandRecord> *commands) {
        valid_ = pin("s_command_valid"), ready_ = pin("s_command_ready"), op_ = pin("s_command_op");
        handle_ = pin("s_command_handle"), epoch_ = pin("s_command_epoch"), owner_ = pin("s_command_owner");
        abort_ = pin("s_command_abort"), replica_ = pin("s_command_replica");
        bytes16_ = pin("s_command_bytes16"), more_ = pin("s_command_more"), tag_ = pin("s_command_tag");
        answer_valid_ = pin("m_command_response_valid"), answer_ready_ = pin("m_command_response_ready");
        answer_status_ = pin("m_command_response_status"), answer_tag_ = pin("m_command_response_tag");
        refusals_ = refusals, commands_ = commands;
        flights_.assign(std::min<size_t>(MOST, size_t{1} << std::min(tag_.bits(), 8u)), Flight());
    }
    // The command on its way, or null: the one before has not been taken, or no tag is free.
    Flight *start(const Op &op, uint64_t cycle) {
        if (valid_) return nullptr;
        for (size_t tag = 0; tag < flights_.size(); tag++) {
            if (flights_[tag].busy) continue;
            op_ = op.a, handle_ = op.b, epoch_ = op.c, owner_ = op.owner, tag_ = tag, valid_ = 1;
            abort_ = op.cls, replica_ = op.rank, bytes16_ = op.n, more_ = op.m;
            bool posted = op.a == CommandOp::ANNOUNCE && op.m;
            flights_[tag] = {op, cycle, true, false, posted, 0};
            return &flights_[tag];
        }
        return nullptr;
    }
    // Its answer was seen; the tag is free again.
    void end(Flight &flight, uint64_t cycle) {
        const Op &op = flight.op;
        if (commands_)
            commands_->add({flight.begun, cycle, static_cast<uint32_t>(op.a), static_cast<uint32_t>(op.b),
                            static_cast<uint8_t>(op.c), op.owner, flight.status, {0}});
        uint64_t refused = command_refusal::handle.put(op.b) | command_refusal::op.put(op.a);
        if (flight.status) refusals_->add({cycle, refused, 0, flight.status, 1, {}});
        flight.busy = false;
    }
    void drive(uint64_t cycle) {
        answer_ready_ = 1;
        if (taken_) valid_ = 0, taken_ = false;
        for (auto &flight : flights_)
            if (flight.busy && flight.done && flight.posted) end(flight, cycle);
    }
    void sample() {
        taken_ = valid_ && ready_;
        if (!answer_valid_) return;
        Flight &flight = flights_.at(answer_tag_.get());
        flight.status = static_cast<uint8_t>(answer_status_.get()), flight.done = true;
    }

  private:
    static constexpr size_t MOST = 16;  // under way
    Pin valid_, ready_, op_, handle_, epoch_, owner_, tag_, abort_, replica_, bytes16_, more_;
    Pin answer_valid_, answer_ready_, answer_status_, answer_tag_;
    std::vector<Flight> flights_;
    Log<RefusalRecord> *refusals_ = nullptr;
    Log<CommandRecord> *commands_ = nullptr;
    bool taken_ = false;
};

// Number of an epoch of a region.
inline uint64_t end_of(uint64_t region, uint64_t epoch) { return region << EPOCH | epoch; }

struct Machine {                // what a program can touch
    std::vector<LaneStores> *lanes;
    CsrMaster *csr;
    CommandPort *command;
    Expert *expert;
    Arena *arena;
    const std::vector<uint8_t> *payload;
    const uint64_t *events;     // [kind + 4 * plain]
    Log<ReadRecord> *reads;
    const std::map<uint64_t, uint64_t> *ends;   // end_of() -> ALL and ERROR events taken
    std::set<uint64_t> *marks;      // passed by any thread
    const std::vector<RegionPlace> *regions;
    unsigned lane_count, packet_bytes;
};

class Thread {
  public:
    Thread(const Machine *machine, std::vector<Op> ops, uint16_t number) : machine_(machine), ops_(std::move(ops)), number_(number) {
        for (size_t n = 0; n < ops_.size(); n++)
            if (is_store(ops_[n])) stores_end_ = n + 1;
    }

    bool finished() const { return pc_ >= ops_.size(); }
    size_t pc() const { return pc_; }
    bool stores_left() const { return pc_ < stores_end_; }     // it waits before a store
    bool at_barrier() const { return !finished() && ops_[pc_].kind == OpKind::BARRIER; }
    void pass_barrier() { pc_++; }

    // Runs until an operation has to wait. Row and plain stores are handed to the lanes at once.
    void step(uint64_t cycle) {
        while (!finished() && execute(ops_[pc_], cycle)) {
            pc_ = ops_[pc_].kind == OpKind::AGAIN && (last_ & ops_[pc_].c) != ops_[pc_].d ? pc_ - ops_[pc_].a : pc_ + 1;
            begun_ = false;
        }
    }

  private:
    static bool is_store(const Op &op) { return op.kind == OpKind::ROW || op.kind == OpKind::PLAIN || op.kind == OpKind::STORE; }

    bool execute(const Op &op, uint64_t cycle) {
        switch (op.kind) {
        case OpKind::ROW: case OpKind::PLAIN: case OpKind::STORE: store(op); return true;
        case OpKind::COMMAND: return command(op, cycle);
        case OpKind::SYNC:
            for (auto &lane : *machine_->lanes)
                if (lane.pending[0]) return false;
            return true;
        case OpKind::CSR_WRITE: case OpKind::CSR_READ: case OpKind::CSR_POLL: return csr(op, cycle);
        case OpKind::WAIT_CYCLES:
            if (!begun_) begun_ = true, until_ = cycle + op.a;
            return cycle >= until_;
        case OpKind::WAIT_EVENTS: return machine_->events[op.a] >= op.b;
        case OpKind::WAIT_MEMORY: {
            uint64_t word = machine_->arena->word(op.a) & op.c;
            return op.d == ~0ull ? word != 0 : word == op.d;
        }
        case OpKind::BARRIER: return false;
        case OpKind::MARK:
            machine_->reads->add({cycle, op.a, op.c, 1, number_});
            machine_->marks->insert(op.a);
            return true;
        case OpKind::AGAIN: return true;     // step() jumps
        case OpKind::WAIT_MARK: return machine_->marks->count(op.a) != 0;
        case OpKind::WAIT_END: {
            auto found = machine_->ends->find(end_of(op.a, op.c));
            return found != machine_->ends->end() && found->second >= op.b;
        }
        case OpKind::EXPERT: {
            const RegionPlace &region = (*machine_->regions)[op.m];
            machine_->expert->tile_after(op.c, cycle, op.a, region, op.n);
            return true;
        }
        case OpKind::SIGNAL: machine_->expert->signal(cycle, op.a); return true;
        default: throw std::runtime_error("program: unknown operation");
        }
    }

    void store(const Op &op) {
        Job job;
        job.plain = op.kind == OpKind::PLAIN || operand_row::plain.get(op.a);
        job.explicit_mask = op.kind == OpKind::STORE;
        job.cls = op.cls, job.owner = op.owner, job.rank = op.rank, job.operand = op.a;
        if (op.kind == OpKind::PLAIN) job.operand = plain_operand(op.rank, op.a);
        uint64_t size = machine_->payload->size();
        if (op.b + (job.explicit_mask ? SECTOR_BYTES : op.n) > size || (!job.explicit_mask && op.c + op.d > size))
            throw std::runtime_error("program: payload is too short");
        if (!job.explicit_mask) job.tail = machine_->payload->data() + op.c, job.tail_bytes = static_cast<uint32_t>(op.d);
        job.data = machine_->payload->data() + op.b;
        job.bytes = job.explicit_mask ? SECTOR_BYTES : op.n;
        job.mask = op.n;
        if (op.kind == OpKind::PLAIN) {
            for (unsigned lane = 0; lane < machine_->lane_count; lane++) (*machine_->lanes)[lane].push(std::make_shared<Job>(job));
        } else {
            (*machine_->lanes)[op.m % machine_->lane_count].push(std::make_shared<Job>(job));
        }
    }

    bool command(const Op &op, uint64_t cycle) {
        CommandPort &port = *machine_->command;
        if (!begun_) {
            flight_ = port.start(op, cycle);
            begun_ = flight_ != nullptr;
            return begun_ && flight_->posted;
        }
        if (!flight_->done) return false;
        port.end(*flight_, cycle);
        return true;
    }

    bool csr(const Op &op, uint64_t cycle) {
        CsrMaster &master = *machine_->csr;
        if (!begun_) {
            if (master.busy) return false;
            master.start(op.kind == OpKind::CSR_WRITE, static_cast<uint32_t>(op.a), static_cast<uint32_t>(op.c));
            begun_ = true;
            return false;
        }
        if (!master.done) return false;
        last_ = master.value;
        if (op.kind == OpKind::CSR_READ) machine_->reads->add({cycle, op.a, master.value, 0, number_});
        if (op.kind == OpKind::CSR_POLL && (master.value & op.c) != op.d) {
            begun_ = false;
            return false;
        }
        return true;
    }

    const Machine *machine_;
    std::vector<Op> ops_;
    uint16_t number_;
    size_t pc_ = 0, stores_end_ = 0;    // after the last store
    bool begun_ = false;
    CommandPort::Flight *flight_ = nullptr;
    uint64_t until_ = 0;
    uint32_t last_ = 0;
};
