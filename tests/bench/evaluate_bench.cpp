// SPDX-License-Identifier: Apache-2.0
// What trying policies costs: one prompt of a haystack, all policies together. Prints a line of
// JSON a turn; tests/bench/evaluate_vs_kvpress.py runs it beside its peer.
//
//   bench_evaluate MODEL TOKENS NEW TURNS [--device cuda] POLICY...
#include <cstdio>
#include <string>
#include <vector>

#include "analyzer/capture/device.hpp"
#include "base/error.hpp"
#include "calibrate/simulate/simulate.hpp"
#include "data/tasks.hpp"
#include "tests/bench/bench_program.hpp"

namespace {

using namespace kvatlas;

void run(int argc, char** argv) {
  const std::string option = argc > 6 ? argv[5] : "";
  const bool placed = option == "--device";
  if (argc < 6)
    fail(ErrorCode::usage, "bench_evaluate MODEL TOKENS NEW TURNS [--device cuda] POLICY...");
  capture::use_threads(0);
  const auto model = model::ModelFile::open(argv[1]);
  const auto& tokenizer = *model->tokenizer();
  const data::Prompt prompt =
      data::make_prompt({"needle", std::stoll(argv[2])}, [&](const data::Prompt& one) {
        return static_cast<std::int64_t>(tokenizer.encode(one.as_text()).size());
      });
  const auto tokens = tokenizer.encode(prompt.as_text());
  std::vector<calibrate::Policy> policies;
  for (int i = placed ? 7 : 5; i < argc; ++i) policies.push_back(calibrate::parse_policy(argv[i]));
  capture::EngineOptions where;
  if (placed) where.placement = capture::choose_placement(argv[6], "auto");
  capture::Engine engine(model, where);
  calibrate::SimulateOptions options;
  options.max_new = std::stoll(argv[3]);
  const std::string name = "the prompt";
  const calibrate::SimulatedPrompt one{tokens, options, name};
  const auto turn = [&](bool compare) {
    options.compare = compare;
    return std::move(calibrate::simulate(engine, {&one, 1}, policies).front());
  };
  turn(false);  // decodes the weights, starts the threads
  for (int i = 0; i < std::stoi(argv[4]); ++i) {
    const auto scores = turn(false), all = turn(true);
    std::printf(
        "{\"tokens\": %zu, \"policies\": %zu, \"prefill\": %.3f, \"decode\": %.3f, "
        "\"decode_and_compare\": %.3f}\n",
        tokens.size(), policies.size(), scores.prefill_seconds, scores.decode_seconds,
        all.decode_seconds);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) { return kvatlas::bench::run_bench(run, argc, argv); }
