// SPDX-License-Identifier: Apache-2.0
// Set-up and summary of one rank.
#include "node.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>

static std::vector<uint8_t> read_file(const std::string &path) {
    std::FILE *file = std::fopen(path.c_str(), "rb");
    if (!file) throw std::runtime_error("cannot read " + path);
    std::fseek(file, 0, SEEK_END);
    std::vector<uint8_t> bytes(static_cast<size_t>(std::ftell(file)));
    std::rewind(file);
    size_t got = bytes.empty() ? 0 : std::fread(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    if (got != bytes.size()) throw std::runtime_error("cannot read all of " + path);
    return bytes;
}

void Node::load(const std::string &base) {
    payload_ = read_file(base + ".payload");
    if (settings_.regions.count(rank_)) regions_ = settings_.regions.at(rank_);
    std::vector<uint8_t> program = read_file(base + ".program");
    if (program.size() % sizeof(Op)) throw std::runtime_error("program: not a whole number of operations");
    std::map<uint16_t, std::vector<Op>> by_thread;
    for (size_t at = 0; at < program.size(); at += sizeof(Op)) {
        Op op;
        std::memcpy(&op, program.data() + at, sizeof(Op));
        by_thread[op.thread].push_back(op);
    }
    for (auto &entry : by_thread) threads.emplace_back(&machine_, std::move(entry.second), entry.first);
    for (unsigned n = 0; n < threads.size(); n++)
        if (threads[n].stores_left()) storing_.push_back(n);
    if (settings_.dead_from.count(rank_)) dead_from_ = settings_.dead_from.at(rank_);
    reset_from_ = settings_.reset_of.count(rank_) ? settings_.reset_of.at(rank_) : settings_.reset_at;
}

// Everything around the hub as at power-up: nothing on its way, all figures 0. At a reset no CSR access and no command may be
// in flight, and programs must wait by WAIT_CYCLES; what memory holds stays.
void Node::attach() {
    uint64_t seed = settings_.seed * 4096 + rank_ * 128;
    lanes_.assign(settings_.lanes, LaneStores()), link_out.assign(settings_.links, LinkOut()), link_in.assign(settings_.links, LinkIn());
    for (unsigned n = 0; n < settings_.lanes; n++)
        lanes_[n].connect(pin_, n, &settings_.stores, &refusals_, &issues_, seed + n,
                          settings_.watch ? &stores_ : nullptr, rank_);
    for (unsigned n = 0; n < settings_.links; n++) {
        link_out[n].connect(pin_, n, &settings_.link, seed + 32 + n, settings_.watch ? &sent_ : nullptr);
        link_in[n].connect(pin_, n, &packets_);
    }
    writes_.assign(settings_.lanes + settings_.loop_lanes, WritePort());
    for (unsigned n = 0; n < writes_.size(); n++)
        writes_[n].connect(pin_, "m_axi_mem" + std::to_string(n), &arena_, &memory_model_, seed + 64 + n,
                           settings_.watch ? &beats_ : nullptr, n);
    spill_write_ = WritePort(), spill_read_ = ReadPort(), expert_ = Expert();
    spill_write_.connect(pin_, "m_axi_spill", &arena_, &memory_model_, seed + 126, settings_.watch ? &beats_ : nullptr,
                         static_cast<unsigned>(writes_.size()));
    spill_read_.connect(pin_, "m_axi_spill", &arena_, &memory_model_, seed + 127);
    expert_.connect(&settings_.expert, &arena_, &lanes_, settings_.ranks);
    std::fill(std::begin(counts_), std::end(counts_), 0);
    ends_.clear(), marks_.clear();
}

void Node::connect(const PinTable &pin) {
    csr_.connect(pin), command_.connect(pin, &refusals_, settings_.watch ? &commands_ : nullptr);
    if (settings_.planted) pin("planted_bug") = settings_.planted;
    machine_ = {&lanes_, &csr_, &command_, &expert_, &arena_, &payload_, counts_, &reads_,
                &ends_, &marks_, &regions_,
                settings_.lanes, settings_.packet_bytes};
    if (settings_.record == static_cast<int>(rank_)) {
        pins_ = pin.in_order();
        recording_ = std::fopen((settings_.folder + "/rank" + std::to_string(rank_) + ".pins").c_str(), "wb");
        if (!recording_) throw std::runtime_error("cannot write the pins");
    }
    for (unsigned n = 0; n < settings_.lanes; n++) pools_.push_back(pin.inner("pool" + std::to_string(n)));
    idle_.assign(settings_.lanes, LinkUse::NOTHING);
    slice_links_ = settings_.links / settings_.lanes;
    bins_from_ = settings_.bin_from ? NEVER : 0;
    own_clock_ = pin.has("link_clk");
    if (own_clock_) link_clk_ = pin("link_clk"), link_rst_ = pin("link_rst");
    clk_ = pin("clk"), rst_ = pin("rst"), cleared_ = pin("cleared"), irq_ = pin("irq");
    event_valid_ = pin("m_event_valid"), event_ready_ = pin("m_event_ready"), event_kind_ = pin("m_event_kind");
    event_plain_ = pin("m_event_plain"), event_region_ = pin("m_event_region"), event_epoch_ = pin("m_event_epoch");
    event_group_ = pin("m_event_group"), event_rows_ = pin("m_event_rows"), event_status_ = pin("m_event_status");
    event_refused_ = pin("m_event_refused");
    alloc_en_ = pin("obs_alloc_en"), alloc_region_ = pin("obs_alloc_region"), alloc_bank_ = pin("obs_alloc_bank");
    alloc_rowid_ = pin("obs_alloc_rowid"), alloc_slot_ = pin("obs_alloc_slot"), alloc_overflow_ = pin("obs_alloc_overflow");
}

void Node::summary(std::FILE *file) const {
    auto put = [file](const char *name, uint64_t value) { std::fprintf(file, "\"%s\": %" PRIu64 ", ", name, value); };
    std::fprintf(file, "    {\"rank\": %u, ", rank_);
    put("cycles", cycles_), put("cleared_cycle", cleared_cycle_), put("dead", dead_), put("irq_cycles", irq_cycles_);
    uint64_t stores = 0, store_bytes = 0, refused = 0, congested = 0, bad = 0, first_accept = ~0ull, last_accept = 0;
    for (auto &lane : lanes_) {
        stores += lane.accepted, store_bytes += lane.accepted_bytes, refused += lane.refused;
        congested += lane.congested, bad += lane.bad;
        if (lane.accepted) first_accept = std::min(first_accept, lane.first_accept);
        last_accept = std::max(last_accept, lane.last_accept);
    }
    put("stores", stores), put("store_bytes", store_bytes), put("stores_refused", refused), put("congested_cycles", congested);
    put("bad_responses", bad), put("first_accept", stores ? first_accept : 0), put("last_accept", last_accept);
    uint64_t tx_flits = 0, tx_packets = 0, tx_bad = 0, rx_flits = 0, rx_refused = 0, first_flit = ~0ull, last_flit = 0;
    for (auto &link : link_out) {
        tx_flits += link.flits, tx_packets += link.packets, tx_bad += link.bad;
        if (link.flits) first_flit = std::min(first_flit, link.first_flit);
        last_flit = std::max(last_flit, link.last_flit);
    }
    for (auto &link : link_in) rx_flits += link.flits, rx_refused += link.refused;
    put("tx_flits", tx_flits), put("tx_packets", tx_packets), put("tx_bad", tx_bad), put("first_flit", tx_flits ? first_flit : 0), put("last_flit", last_flit);
    put("rx_flits", rx_flits), put("rx_refused", rx_refused);
    uint64_t writes = 0, mem_bad = 0, failed = 0, first_write = ~0ull, last_write = 0, last_answer = 0;
    for (auto &port : writes_) {
        writes += port.writes, mem_bad += port.bad, failed += port.failed;
        if (port.writes) first_write = std::min(first_write, port.first_write);
        last_write = std::max(last_write, port.last_write), last_answer = std::max(last_answer, port.last_answer);
    }
    put("mem_writes", writes), put("mem_bad", mem_bad), put("mem_failed", failed), put("first_write", writes ? first_write : 0);
    put("last_write", last_write), put("last_answer", last_answer), put("bytes_written", arena_.written);
    put("bytes_rewritten", arena_.rewritten), put("spill_writes", spill_write_.writes), put("spill_reads", spill_read_.reads);
    put("spill_bad", spill_write_.bad + spill_read_.bad), put("csr_errors", csr_.errors);
    put("tiles", expert_.tiles), put("expert_rows", expert_.rows), put("expert_lost", expert_.lost);
    std::fprintf(file, "\"events\": [");
    for (unsigned n = 0; n < 8; n++) std::fprintf(file, "%s%" PRIu64, n ? ", " : "", counts_[n]);
    std::fprintf(file, "], \"pc\": [");
    for (size_t n = 0; n < threads.size(); n++) std::fprintf(file, "%s%zu", n ? ", " : "", threads[n].pc());
    std::fprintf(file, "]}");
}
