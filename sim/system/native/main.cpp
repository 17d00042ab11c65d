// SPDX-License-Identifier: Apache-2.0
// Native harness: N verilated hubs, their memories and programs, joined by a switch. Driven by sim/system/system.py.
//
// Usage: harness FOLDER. Reads FOLDER/config (text, one setting per line), rank<n>.program, rank<n>.payload. Writes the logs
// of node.h, the memory images rank<n>.mem, rank<n>.bins and FOLDER/summary.json. Exit code 0: all programs ended; 2: the
// watchdog (max_cycles) ended the run; 1: error.
#include <chrono>
#include <cinttypes>
#include <condition_variable>
#include <ctime>
#include <fstream>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>

#include "node.h"

double sc_time_stamp() { return 0; }

static void read_stall(std::istream &line, Stall &stall) { line >> stall.pattern >> stall.percent; }

static bool read_memory(const std::string &key, std::istream &line, MemoryModel &memory) {
    if (key == "mem_latency") line >> memory.latency;
    else if (key == "mem_jitter") line >> memory.jitter;
    else if (key == "mem_stall") read_stall(line, memory.stall);
    else if (key == "mem_frozen") line >> memory.stall_from >> memory.stall_to;
    else if (key == "mem_spill") line >> memory.spill_low >> memory.spill_high;
    else if (key == "mem_error") {
        uint64_t low, high;
        line >> low >> high;
        memory.errors.push_back({low, high});
    } else return false;
    return true;
}

static Settings read_settings(const std::string &folder) {
    Settings s;
    s.folder = folder;
    std::ifstream file(folder + "/config");
    if (!file) throw std::runtime_error("cannot read " + folder + "/config");
    std::string text;
    while (std::getline(file, text)) {
        std::istringstream line(text);
        std::string key;
        if (!(line >> key)) continue;
        unsigned rank = 0;
        if (key == "ranks") line >> s.ranks;
        else if (key == "lanes") line >> s.lanes, s.stores.lanes = s.lanes;
        else if (key == "links") line >> s.links;
        else if (key == "loop_lanes") line >> s.loop_lanes;
        else if (key == "packet_bytes") line >> s.packet_bytes, s.stores.packet_bytes = s.packet_bytes;
        else if (key == "tag_width") line >> s.stores.tag_width;
        else if (key == "window") line >> s.window;
        else if (key == "latency") line >> s.latency;
        else if (key == "link_clock") line >> s.clocks.ticks >> s.clocks.cycles;
        else if (key == "threads") line >> s.threads;
        else if (key == "max_cycles") line >> s.max_cycles;
        else if (key == "drain") line >> s.drain;
        else if (key == "bin") line >> s.bin;
        else if (key == "bin_from") line >> s.bin_from;
        else if (key == "seed") line >> s.seed;
        else if (key == "record") line >> s.record;
        else if (key == "watch") line >> s.watch;
        else if (key == "planted") line >> s.planted;
        else if (key == "streams") line >> s.stores.streams;
        else if (key == "burst") line >> s.stores.burst;
        else if (key == "lookahead") line >> s.stores.window;
        else if (key == "weight") line >> s.stores.weight;
        else if (key == "use_can_accept") line >> s.stores.use_can_accept;
        else if (key == "store_idle") read_stall(line, s.stores.idle);
        else if (key == "response_stall") read_stall(line, s.stores.response);
        else if (key == "link_stall") read_stall(line, s.link);
        else if (key == "event_stall") read_stall(line, s.event);
        else if (key == "expert") line >> s.expert.cycles >> s.expert.units >> s.expert.out_bytes;
        else if (key == "dead") line >> rank, line >> s.dead_from[rank];
        else if (key == "reset") line >> s.reset_at;
        else if (key == "reset_of") line >> rank, line >> s.reset_of[rank];
        else if (key == "paused") line >> rank, line >> s.paused[rank].first >> s.paused[rank].second;
        else if (key == "events_held") line >> rank, line >> s.events_held[rank].first >> s.events_held[rank].second;
        else if (key == "arena") line >> rank, line >> s.arena[rank];
        else if (key == "memory_of") {      // rank, then one memory setting
            line >> rank >> key;
            if (!s.memory_of.count(rank)) s.memory_of[rank] = s.memory;
            if (!read_memory(key, line, s.memory_of[rank])) throw std::runtime_error("config: " + text);
        } else if (key == "region") {
            unsigned index;
            RegionPlace place;
            place.used = true;
            line >> rank >> index >> place.base[0] >> place.base[1] >> place.stride >> place.row_bytes >> place.group_base >>
                place.log2_tile >> place.expert;
            auto &regions = s.regions[rank];
            if (regions.size() <= index) regions.resize(index + 1);
            regions[index] = place;
        } else if (key == "fault") {
            int kind;
            Fault fault;
            line >> kind >> fault.dest >> fault.link >> fault.index >> fault.bit;
            fault.kind = static_cast<Fault::Kind>(kind);
            s.faults.push_back(fault);
        } else if (!read_memory(key, line, s.memory)) throw std::runtime_error("config: no such setting: " + text);
        if (line.fail()) throw std::runtime_error("config: bad value: " + text);
    }
    if (s.window > s.latency || s.window == 0) throw std::runtime_error("config: window must be 1..latency");
    return s;
}

// Runs every node over one window, on one or more threads; returns when all have.
class Crew {
  public:
    Crew(std::vector<std::unique_ptr<Node>> &nodes, unsigned threads) : nodes_(nodes), threads_(threads) {
        for (unsigned n = 1; n < threads_; n++) workers_.emplace_back([this, n] { work(n); });
    }
    ~Crew() {
        { std::lock_guard<std::mutex> hold(mutex_); stop_ = true; turn_++; }
        go_.notify_all();
        for (auto &worker : workers_) worker.join();
    }
    void run(uint64_t from, uint64_t to) {
        { std::lock_guard<std::mutex> hold(mutex_); from_ = from, to_ = to, left_ = threads_ - 1, turn_++; }
        go_.notify_all();
        share(0);
        std::unique_lock<std::mutex> hold(mutex_);
        done_.wait(hold, [this] { return left_ == 0; });
        if (!error_.empty()) throw std::runtime_error(error_);
    }

  private:
    void share(unsigned number) {
        try {
            for (size_t n = number; n < nodes_.size(); n += threads_) nodes_[n]->run(from_, to_);
        } catch (const std::exception &error) {
            std::lock_guard<std::mutex> hold(mutex_);
            error_ = error.what();
        }
    }
    void work(unsigned number) {
        uint64_t seen = 0;
        for (;;) {
            {
                std::unique_lock<std::mutex> hold(mutex_);
                go_.wait(hold, [&] { return turn_ != seen; });
                seen = turn_;
                if (stop_) return;
            }
            share(number);
            std::lock_guard<std::mutex> hold(mutex_);
            if (--left_ == 0) done_.notify_one();
        }
    }
    std::vector<std::unique_ptr<Node>> &nodes_;
    unsigned threads_, left_ = 0;
    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable go_, done_;
    uint64_t from_ = 0, to_ = 0, turn_ = 0;
    bool stop_ = false;
    std::string error_;
};

static void pass_barriers(std::vector<std::unique_ptr<Node>> &nodes) {
    size_t most = 0;
    for (auto &node : nodes) most = std::max(most, node->threads.size());
    for (size_t n = 0; n < most; n++) {
        bool all = true;
        for (auto &node : nodes) all &= n >= node->threads.size() || node->dead() || node->threads[n].at_barrier();
        for (auto &node : nodes)
            if (all && n < node->threads.size() && node->threads[n].at_barrier()) node->threads[n].pass_barrier();
    }
}

static int simulate(const Settings &settings) {
    std::vector<std::unique_ptr<Node>> nodes;
    for (unsigned rank = 0; rank < settings.ranks; rank++) nodes.push_back(std::make_unique<Node>(settings, rank));
    Switch fabric(settings.ranks, settings.links, settings.clocks.tick(settings.latency), settings.faults);
    auto begin = std::chrono::steady_clock::now();
    auto seconds = [begin] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    uint64_t cycle = 0, end = ~0ull;
    bool timed_out = false;
    double shown = 0;
    {
        Crew crew(nodes, static_cast<unsigned>(std::max<uint64_t>(1, std::min<uint64_t>(settings.threads, settings.ranks))));
        while (cycle < end) {
            crew.run(cycle, cycle + settings.window);
            if (settings.reset_at >= cycle && settings.reset_at < cycle + settings.window) fabric.reset();
            cycle += settings.window;
            fabric.exchange([&](unsigned rank, unsigned link) -> LinkOut & { return nodes[rank]->link_out[link]; },
                            [&](unsigned rank, unsigned link) -> LinkIn & { return nodes[rank]->link_in[link]; });
            pass_barriers(nodes);
            bool finished = true;
            for (auto &node : nodes) finished &= node->finished();
            if (finished && end == ~0ull) end = cycle + settings.drain;
            if (end == ~0ull && cycle >= settings.max_cycles) timed_out = true, end = cycle;
            if (seconds() - shown >= 0.5) {
                shown = seconds();
                unsigned idle = 0;
                for (auto &node : nodes) idle += node->finished();
                std::printf("progress %" PRIu64 " %u %.1f\n", cycle, idle, shown);
                std::fflush(stdout);
            }
        }
    }
    double took = seconds();
    std::FILE *file = std::fopen((settings.folder + "/summary.json").c_str(), "w");
    if (!file) throw std::runtime_error("cannot write the summary");
    std::fprintf(file, "{\"cycles\": %" PRIu64 ", \"seconds\": %.3f, \"cpu_seconds\": %.3f, \"hub_cycles_per_second\": %.0f, \"timed_out\": %s, \"lost\": %" PRIu64
                 ", \"faulted\": %" PRIu64 ", \"ranks\": [\n", cycle, took, double(std::clock()) / CLOCKS_PER_SEC,
                 double(cycle) * settings.ranks / (took > 0 ? took : 1),
                 timed_out ? "true" : "false", fabric.lost, fabric.faulted);
    for (size_t n = 0; n < nodes.size(); n++) {
        nodes[n]->close();
        nodes[n]->summary(file);
        std::fprintf(file, n + 1 < nodes.size() ? ",\n" : "\n");
        std::ofstream bins(settings.folder + "/rank" + std::to_string(n) + ".bins", std::ios::binary);
        bins.write(reinterpret_cast<const char *>(nodes[n]->bins.data()), static_cast<std::streamsize>(nodes[n]->bins.size() * 4));
    }
    std::fprintf(file, "]}\n");
    std::fclose(file);
    return timed_out ? 2 : 0;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: harness FOLDER\n";
        return 1;
    }
    try {
        return simulate(read_settings(argv[1]));
    } catch (const std::exception &error) {
        std::cerr << "harness: " << error.what() << "\n";
        return 1;
    }
}
