// SPDX-License-Identifier: Apache-2.0
// Clock, reset and console of soc.v; ends with the program's own verdict, or with none in time.
#include <cstdio>

#include "Vsoc.h"
#include "verilated.h"

int main(int argc, char **argv) {
  VerilatedContext context;
  context.commandArgs(argc, argv);
  Vsoc soc{&context};
  for (int cycle = 0; cycle < 50000; cycle++) {
    soc.resetn = cycle >= 4;
    soc.clk = 0;
    soc.eval();
    // What the next edge will take.
    bool console = soc.resetn && soc.console_valid, exit = soc.resetn && soc.exit_valid;
    unsigned word = soc.console_or_exit;
    soc.clk = 1;
    soc.eval();
    if (console) std::putchar(word & 0xff);
    if (exit) {
      if (word == 0)
        std::printf("PASS, %d cycles\n", cycle);
      else
        std::printf("FAIL: %d\n", static_cast<int>(word));
      return 0;
    }
  }
  std::puts("FAIL: no verdict in 50,000 cycles");
}
