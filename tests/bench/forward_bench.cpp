// SPDX-License-Identifier: Apache-2.0
// The SmolLM2 forward pass, without KV cache and output head, as a program that a script can run
// beside its peer: prints one line of JSON for each length. tests/bench/forward_vs_transformers.py
// is that script.
//
//   bench_forward MODEL LENGTH... [--runs N] [--streaming] [--dtype bfloat16]
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "analyzer/capture/device.hpp"
#include "analyzer/capture/engine.hpp"
#include "base/error.hpp"
#include "tests/bench/bench_program.hpp"

namespace {

using namespace kvatlas;
using bench::Clock;
using bench::peak_megabytes;
using bench::seconds_since;

void run(int argc, char** argv) {
  std::vector<std::int64_t> lengths;
  int runs = 3;
  capture::EngineOptions options;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--runs" && i + 1 < argc)
      runs = std::stoi(argv[++i]);
    else if (argument == "--streaming")
      options.weights = capture::EngineOptions::Weights::streaming;
    else if (argument == "--dtype" && i + 1 < argc)
      options.placement.dtype = argv[++i];
    else
      lengths.push_back(std::stoll(argv[i]));
  }
  if (argc < 3 || lengths.empty())
    fail(ErrorCode::usage, "bench_forward MODEL LENGTH... [--runs N] [--streaming] [--dtype T]");

  const auto start = Clock::now();
  capture::use_threads(0);
  const auto model = model::ModelFile::open(argv[1]);
  capture::Engine engine(model, options);
  double first_layer = 0;
  const auto forward = [&](std::int64_t length) {
    std::vector<std::int64_t> tokens;
    for (std::int64_t i = 0; i < length; ++i)
      tokens.push_back((i * 7919 + 13) % model->config().vocab_size);
    capture::Sequence sequence = engine.sequence(false);
    const capture::Engine::Step step{&sequence, tokens};
    engine.run({&step, 1}, capture::Logits::none,
               {.attention = {}, .logits = {}, .progress = [&](std::int64_t) {
                  if (first_layer == 0) first_layer = seconds_since(start);
                }});
  };
  if (runs > 1) forward(16);  // decodes the weights, starts the threads
  for (const std::int64_t length : lengths) {
    double best = 1e30;
    for (int i = 0; i < runs; ++i) {
      const auto begin = Clock::now();
      forward(length);
      best = std::min(best, seconds_since(begin));
    }
    std::printf(
        "{\"tokens\": %lld, \"seconds\": %.3f, \"peak_mb\": %.0f, \"first_layer_seconds\": %.3f}\n",
        static_cast<long long>(length), best, peak_megabytes(), first_layer);
  }
}

}  // namespace

int main(int argc, char** argv) { return kvatlas::bench::run_bench(run, argc, argv); }
