// SPDX-License-Identifier: Apache-2.0
// Which mutants are ever seen at the ports: replays the recorded run of a bench with each mutant in turn and compares every
// output at every falling edge with what the unmutated design gave.
//
// replay TRACE COUNT: one line per mutant 0..COUNT: its number and the tests in which an output differed; "?" when it does
// not settle. After a difference the rest of that test is skipped: its inputs were an answer to other outputs. The state that
// the skipped part leaves behind must not count in later tests: outputs are compared from the first reset of a test on; a test
// without one is named for every mutant. A trace is a sequence of records of 32-bit words: 1 for a rising edge or 0, number of the test,
// inputs, outputs. ports.h names INPUTS and OUTPUTS, in this order.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "Vtop.h"
#include "ports.h"
#include "verilated.h"

double sc_time_stamp() { return 0; }

template <class T> constexpr size_t words(const T&) { return (sizeof(T) + 3) / 4; }

static std::vector<uint32_t> load(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (!file) std::perror(path), std::exit(2);
    std::fseek(file, 0, SEEK_END);
    std::vector<uint32_t> data(std::ftell(file) / 4);
    std::rewind(file);
    if (std::fread(data.data(), 4, data.size(), file) != data.size()) std::exit(2);
    std::fclose(file);
    return data;
}

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const auto trace = load(argv[1]);
    const int count = std::atoi(argv[2]);
    for (int number = 0; number <= count; number++) {
        // In a process of its own: a loop that does not settle ends it.
        std::fflush(stdout);
        if (const pid_t child = fork()) {
            int status = 0;
            waitpid(child, &status, 0);
            if (status) std::printf("%d ?\n", number);
            continue;
        }
        VerilatedContext context;
        auto top = std::make_unique<Vtop>(&context);
        size_t size = 2;
#define ADD(port) size += words(top->port);
        INPUTS(ADD) OUTPUTS(ADD)
        std::set<uint32_t> seen;
        uint32_t test = 0;
        bool reset = true;  // in this test
        top->mutsel = number;
        for (size_t at = 0; at + size <= trace.size(); at += size) {
            const uint32_t *record = &trace[at], *value = record + 2;
            if (record[1] != test) {
                if (!reset && number) seen.insert(test);
                test = record[1], reset = false;
            }
            if (seen.count(test)) continue;
#define SET(port) std::memcpy(&top->port, value, sizeof(top->port)), value += words(top->port);
            INPUTS(SET)
            top->clk = 0;
            top->eval();
            if (record[0]) {
                top->clk = 1;
                top->eval();
                reset |= top->rst;
                continue;
            }
            if (!reset) continue;
            bool differs = false;
#define LOOK(port) differs |= std::memcmp(&top->port, value, sizeof(top->port)) != 0, value += words(top->port);
            OUTPUTS(LOOK)
            if (differs) seen.insert(test);
        }
        if (!reset && number) seen.insert(test);
        std::printf("%d", number);
        for (auto one : seen) std::printf(" %u", one);
        std::printf("\n");
        std::fflush(stdout);
        _exit(0);
    }
    return 0;
}
