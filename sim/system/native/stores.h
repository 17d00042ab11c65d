// SPDX-License-Identifier: Apache-2.0
// The GPU side of one lane: what the crossbar would deliver. Several streams (think of SMs) each work on one row or block of
// stores; they take turns after `burst` stores, and one whose peer has no room (can_accept) lets the others pass.
#pragma once
#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "formats.h"
#include "pins.h"
#include "support.h"

// A store to `addr` of rank `rank`.
inline uint64_t plain_operand(uint64_t rank, uint64_t addr) {
    return operand_plain::plain.put(1) | operand_plain::rank.put(rank) | operand_plain::addr.put(addr);
}

struct Job {                    // one row (or part of it), or one run of bytes to an address, seen by one lane
    bool plain = false, explicit_mask = false;
    uint8_t cls = 0, owner = 0, source = 0;
    uint16_t rank = 0;
    uint64_t operand = 0;       // of the first byte; plain: the address part moves, row-sparse: row_off moves
    const uint8_t *data = nullptr;
    const uint8_t *tail = nullptr;                  // bytes behind those of `data`, of class .nop
    uint32_t bytes = 0, mask = 0, tail_bytes = 0;
    std::shared_ptr<std::vector<uint8_t>> buffer;   // keeps `data` alive when it was made on the fly
    uint32_t at = 0;            // next byte, from the start of the first sector
    uint32_t unanswered = 0;
    uint32_t width = SECTOR_BYTES;  // of a store
    bool issued = false;
    // Byte that an operand names: in memory, or in its row.
    uint64_t byte_of(uint64_t word) const {
        return plain ? operand_plain::addr.get(word) : operand_row::row_off.get(word) * FLIT_BYTES;
    }
    uint64_t sector() const { return byte_of(operand) / width * width; }
    // The operand `bytes` further on.
    uint64_t further(uint64_t count) const {
        return operand + (plain ? operand_plain::addr.put(count) : operand_row::row_off.put(count / FLIT_BYTES));
    }
    uint32_t start() const {    // bytes between the sector's begin and the first byte
        return static_cast<uint32_t>(byte_of(operand) % width);
    }
    uint32_t end() const { return start() + bytes + tail_bytes; }
    void fetch(uint32_t from, uint32_t count, uint8_t *to) const {
        uint32_t head = from < bytes ? std::min(count, bytes - from) : 0;
        std::memcpy(to, data + from, head);
        if (head < count) std::memcpy(to + head, tail + (from + head - bytes), count - head);
    }
};
using JobPtr = std::shared_ptr<Job>;

struct StoreSettings {
    unsigned lanes = 1, packet_bytes = 128, tag_width = 8;
    unsigned streams = 4, burst = 4, window = 32;
    unsigned weight = 3;        // jobs of the program for each one of the expert stand-in
    bool use_can_accept = true;
    Stall idle;                 // cycles without a store offered
    Stall response;             // back-pressure on the answers
};

class LaneStores {
  public:
    static constexpr unsigned SOURCES = 2;  // 0: the program, 1: the expert stand-in

    void connect(const PinTable &pin, unsigned lane, const StoreSettings *settings, Log<RefusalRecord> *refusals,
                 Log<IssueRecord> *issues, uint64_t seed, Log<StoreRecord> *watch, unsigned rank) {
        lane_ = lane, rank_ = rank, settings_ = settings, refusals_ = refusals, issues_ = issues, random_ = Random(seed), watch_ = watch;
        std::string name = "s_store" + std::to_string(lane), answer = "m_response" + std::to_string(lane);
        valid_ = pin(name + "_valid"), ready_ = pin(name + "_ready"), operand_ = pin(name + "_operand");
        cls_ = pin(name + "_cls"), owner_ = pin(name + "_owner"), data_ = pin(name + "_data");
        mask_ = pin(name + "_mask"), tag_ = pin(name + "_tag");
        answer_valid_ = pin(answer + "_valid"), answer_ready_ = pin(answer + "_ready");
        answer_tag_ = pin(answer + "_tag"), answer_status_ = pin(answer + "_status");
        can_accept_ = pin("can_accept" + std::to_string(lane));
        active_.resize(settings->streams);
        width_ = mask_.bits();
    }

    void push(JobPtr job) {
        if (job->explicit_mask && width_ < SECTOR_BYTES) throw std::runtime_error("program: a store is wider than a slice");
        job->width = width_;
        pending[job->source]++;
        queue_[job->source].push_back(std::move(job));
    }

    void drive(uint64_t cycle) {
        answer_ready_ = !settings_->response.held(cycle, random_);
        held_back = false;
        if (offered_) return;
        valid_ = 0;
        if (settings_->idle.held(cycle, random_)) return;
        int stream = choose();
        if (stream < 0) return;
        offer(stream);
    }

    void sample(uint64_t cycle) {
        if (offered_ && ready_) accept(cycle);
        else held_back |= offered_;
        if (answer_valid_ && answer_ready_) answered(cycle);
    }

    bool busy() const { return offered_ || !sent_.empty() || pending[0] || pending[1]; }
    uint64_t pending[SOURCES] = {0, 0};  // jobs not yet answered to the last store
    uint64_t accepted = 0, refused = 0, waited = 0, congested = 0, bad = 0, accepted_bytes = 0;
    uint64_t first_accept = 0, last_accept = 0;
    uint64_t remote_bytes = 0;  // accepted for other ranks and not refused
    bool held_back = false;     // in this cycle a store waited at the port, or can_accept was 0 for the peers of all

  private:
    using Mask = unsigned __int128;
    struct Sent { JobPtr job; uint64_t operand; uint32_t tag, remote_bytes; StoreRecord record; };

    uint64_t lane_of_block(uint64_t addr) const { return addr / settings_->packet_bytes % (1u << LANE_KEY) % settings_->lanes; }

    // Moves a plain job to the next sector that belongs to this lane; false at its end.
    bool settle(Job &job) const {
        uint32_t end = job.end();
        if (job.plain && !job.explicit_mask) {
            uint64_t base = job.sector();
            while (job.at < end && lane_of_block(base + job.at) != lane_) {
                uint64_t next = (base + job.at) / settings_->packet_bytes * settings_->packet_bytes + settings_->packet_bytes;
                job.at = static_cast<uint32_t>(next - base);
            }
        }
        return job.at < end;
    }

    // May the job's next store go? The crossbar asks can_accept once per packet-sized block, as a warp's 128 bytes are one
    // request: what follows in the block merges into the place that its first store was promised.
    bool room(const Job &job) const {
        bool inside = job.at && !job.explicit_mask && (job.sector() + job.at) % settings_->packet_bytes;
        return inside || !settings_->use_can_accept || can_accept_.bit(job.rank);
    }

    // The queued job to start next. Of the first `window` jobs of a source: one for a peer that has room and that no active
    // stream works for; else one with room; else the first. Sources take turns by `weight`; one without room lets the other pass.
    JobPtr next_job() {
        unsigned favoured = turn_ < settings_->weight ? 0 : 1, best_source = 0;
        size_t best = 0;
        int best_rank = 3;
        for (unsigned n = 0; n < SOURCES; n++) {
            unsigned source = n ? 1 - favoured : favoured;
            auto &queue = queue_[source];
            for (size_t i = 0; i < queue.size() && i < settings_->window && best_rank; i++) {
                bool shared = false;
                for (auto &job : active_) shared |= job && job->rank == queue[i]->rank;
                int rank = room(*queue[i]) ? (shared ? 1 : 0) : 2;
                if (rank < best_rank) best = i, best_rank = rank, best_source = source;
            }
            if (best_rank < 2) break;
        }
        if (best_rank == 3) return nullptr;
        auto &queue = queue_[best_source];
        JobPtr job = queue[best];
        queue.erase(queue.begin() + static_cast<long>(best));
        if (best_source == favoured) turn_ = (turn_ + 1) % (settings_->weight + 1);
        return job;
    }

    void finish(const JobPtr &job) {
        job->issued = true;
        if (job->unanswered == 0) pending[job->source]--;
    }

    int choose() {
        unsigned streams = static_cast<unsigned>(active_.size());
        bool any = false;
        for (unsigned n = 0; n < streams; n++) {
            unsigned stream = (current_ + n) % streams;
            JobPtr &job = active_[stream];
            if (!job && !(job = next_job())) continue;
            if (!settle(*job)) {
                finish(job);
                job = nullptr;
                continue;
            }
            any = true;
            if (room(*job)) {
                if (n) current_ = stream, in_burst_ = 0;
                return static_cast<int>(stream);
            }
        }
        congested += any, held_back = any;
        return -1;
    }

    void offer(int stream) {
        Job &job = *active_[static_cast<unsigned>(stream)];
        uint8_t data[sizeof(StoreRecord::data)] = {0};
        Mask mask = job.mask;
        uint32_t start = job.start(), cls = job.cls;
        if (job.explicit_mask) {
            uint32_t low = start / SECTOR_BYTES * SECTOR_BYTES;
            std::memcpy(data + low, job.data, SECTOR_BYTES);
            mask <<= low;
            offered_bytes_ = static_cast<unsigned>(__builtin_popcount(job.mask));
            offered_operand_ = job.operand;
        } else {
            uint32_t low = job.at < start ? start - job.at : 0;
            uint32_t high = std::min(job.end() - job.at, width_);
            job.fetch(job.at + low - start, high - low, data + low);
            if (job.at + low - start >= job.bytes) cls = 1;
            offered_bytes_ = high - low;
            mask = ~Mask(0) >> (8 * sizeof(Mask) - offered_bytes_) << low;
            offered_operand_ = job.further(job.at + low - start);
        }
        operand_ = offered_operand_, cls_ = cls, owner_ = job.owner;
        tag_ = tag_next_ & tag_mask();
        data_.write(data, width_), mask_.write(&mask, width_ / 8);
        offered_record_ = {0, 0, offered_operand_, tag_next_ & tag_mask(), 0, static_cast<uint16_t>(lane_), job.owner, 0, {0}, {0}, {0}};
        std::memcpy(offered_record_.data, data, width_), std::memcpy(offered_record_.mask, &mask, sizeof(mask));
        valid_ = 1;
        offered_ = true, offered_stream_ = static_cast<unsigned>(stream);
    }

    void accept(uint64_t cycle) {
        JobPtr job = active_[offered_stream_];
        offered_ = false;
        if (accepted == 0) first_accept = cycle;
        last_accept = cycle;
        accepted++, accepted_bytes += offered_bytes_;
        uint32_t remote = job->rank == rank_ ? 0 : offered_bytes_;
        remote_bytes += remote;
        if (!job->plain && job->at == 0) issues_->add({cycle, offered_operand_});
        job->unanswered++;
        offered_record_.accepted = cycle;
        sent_.push_back({job, offered_operand_, tag_next_++ & tag_mask(), remote, offered_record_});
        job->at += width_;
        if (job->explicit_mask || !settle(*job)) {
            finish(job);
            active_[offered_stream_] = nullptr;
            current_ = (offered_stream_ + 1) % static_cast<unsigned>(active_.size()), in_burst_ = 0;
        } else if (++in_burst_ >= settings_->burst) {
            current_ = (offered_stream_ + 1) % static_cast<unsigned>(active_.size()), in_burst_ = 0;
        }
    }

    void answered(uint64_t cycle) {
        if (sent_.empty()) {
            bad++;
            return;
        }
        Sent sent = sent_.front();
        sent_.pop_front();
        if (answer_tag_.get() != sent.tag) bad++;
        uint8_t status = static_cast<uint8_t>(answer_status_.get());
        if (watch_) {
            sent.record.answered = cycle, sent.record.status = status;
            sent.record.echo = static_cast<uint32_t>(answer_tag_.get());
            watch_->add(sent.record);
        }
        if (status) {
            refused++, remote_bytes -= sent.remote_bytes;
            refusals_->add({cycle, sent.operand, static_cast<uint16_t>(lane_), status, 0, {}});
        }
        if (--sent.job->unanswered == 0 && sent.job->issued) pending[sent.job->source]--;
    }

    uint32_t tag_mask() const { return settings_->tag_width >= 32 ? ~0u : (1u << settings_->tag_width) - 1; }

    unsigned lane_ = 0, rank_ = 0, width_ = SECTOR_BYTES;
    const StoreSettings *settings_ = nullptr;
    Log<RefusalRecord> *refusals_ = nullptr;
    Log<IssueRecord> *issues_ = nullptr;
    Random random_;
    Pin valid_, ready_, operand_, cls_, owner_, data_, mask_, tag_, answer_valid_, answer_ready_, answer_tag_, answer_status_;
    Pin can_accept_;
    std::deque<JobPtr> queue_[SOURCES];
    std::vector<JobPtr> active_;
    std::deque<Sent> sent_;
    unsigned current_ = 0, in_burst_ = 0, turn_ = 0, offered_stream_ = 0, offered_bytes_ = 0;
    uint32_t tag_next_ = 0;
    bool offered_ = false;
    uint64_t offered_operand_ = 0;
    StoreRecord offered_record_ = {};
    Log<StoreRecord> *watch_ = nullptr;
};
