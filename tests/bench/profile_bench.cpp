// SPDX-License-Identifier: Apache-2.0
// What capturing costs beside the plain forward pass, turn by turn in one process: the pass alone,
// with every statistic, and with column sums and maps too; each with its peak of memory in the
// first turn. Capturing includes the first decode step, and writing the sample to a file.
// tests/bench/profile_vs_transformers.py runs it beside its peer.
//
//   bench_profile MODEL LENGTH... [--rounds N] [--device cuda] [--dtype bfloat16]
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "analyzer/capture/device.hpp"
#include "analyzer/capture/profile_run.hpp"
#include "base/error.hpp"
#include "tests/bench/bench_program.hpp"

namespace {

using namespace kvatlas;
using bench::Clock;
using bench::cpu_seconds;
using bench::seconds_since;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The highest resident memory since the last call, in MB.
double peak_since_the_last_call() {
  double peak = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) peak = std::stod(line.substr(6)) / 1000;
  std::ofstream("/proc/self/clear_refs") << 5;
  return peak;
}

struct Mode {
  const char* name;
  bool statistics, maps;
  std::vector<double> took = {}, cpu = {};
  double peak = 0;
};

void profile(capture::Engine& engine, const capture::ProfilePlan& plan,
             const std::filesystem::path& folder) {
  profile::Writer writer(folder / "p.h5", capture::profile_header(plan, engine.model(), "{}"),
                         {.resume = false, .force = true});
  bool given = false;
  const auto next = [&]() -> std::optional<std::int64_t> {
    if (given) return std::nullopt;
    given = true;
    return 0;
  };
  capture::run_profile(engine, plan, writer, next, {});
  writer.finish();
}

void measure(capture::Engine& engine, const capture::Placement& placement, std::int64_t length,
             int rounds) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < length; ++i)
    tokens.push_back((i * 7919 + 13) % engine.model().config().vocab_size);
  const auto folder =
      std::filesystem::temp_directory_path() / ("bench_profile." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  Mode modes[] = {{"plain", false, false}, {"statistics", true, false}, {"maps", true, true}};
  for (int round = 0; round < rounds; ++round)
    for (Mode& mode : modes) {
      capture::ProfilePlan plan;
      plan.engine.placement = placement;
      plan.prompts.push_back({{}, tokens});
      plan.settings.columns = plan.settings.maps = mode.maps;
      peak_since_the_last_call();
      const auto begin = Clock::now();
      const double cpu = cpu_seconds();
      if (mode.statistics) {
        profile(engine, plan, folder);
      } else {
        capture::Sequence sequence = engine.sequence(false);
        const capture::Engine::Step step{&sequence, tokens};
        // The last token's logits are read, so that a GPU has done all of it.
        engine.run({&step, 1}, capture::Logits::last);
      }
      mode.took.push_back(seconds_since(begin));
      mode.cpu.push_back(cpu_seconds() - cpu);
      // Later rounds find memory that the allocator kept of the larger modes.
      if (round == 0) mode.peak = peak_since_the_last_call();
    }
  std::printf("{\"tokens\": %lld", static_cast<long long>(length));
  for (Mode& mode : modes) {
    std::vector<double> ratios, cpu_ratios;
    for (std::size_t i = 0; i < mode.took.size(); ++i) {
      ratios.push_back(mode.took[i] / modes[0].took[i]);
      cpu_ratios.push_back(mode.cpu[i] / modes[0].cpu[i]);
    }
    std::printf(
        ", \"%s\": {\"seconds\": %.3f, \"ratio\": %.3f, \"cpu_ratio\": %.3f, \"peak_mb\": %.0f}",
        mode.name, *std::min_element(mode.took.begin(), mode.took.end()), median(ratios),
        median(cpu_ratios), mode.peak);
  }
  std::printf("}\n");
  std::fflush(stdout);
  std::filesystem::remove_all(folder);
}

void run(int argc, char** argv) {
  std::vector<std::int64_t> lengths;
  int rounds = 3;
  std::string device = "cpu", dtype = "auto";
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--rounds" && i + 1 < argc)
      rounds = std::stoi(argv[++i]);
    else if (argument == "--device" && i + 1 < argc)
      device = argv[++i];
    else if (argument == "--dtype" && i + 1 < argc)
      dtype = argv[++i];
    else
      lengths.push_back(std::stoll(argument));
  }
  if (lengths.empty())
    fail(ErrorCode::usage,
         "bench_profile MODEL LENGTH... [--rounds N] [--device cuda] [--dtype bfloat16]");
  capture::use_threads(0);
  const auto placement = capture::choose_placement(device, dtype);
  capture::EngineOptions options;
  options.placement = placement;
  capture::Engine engine(model::ModelFile::open(argv[1]), options);
  capture::Sequence warm = engine.sequence(false);  // decodes the weights, starts the threads
  const capture::Engine::Step step{&warm, std::vector<std::int64_t>(16, 1)};
  engine.run({&step, 1}, capture::Logits::last);
  for (const auto length : lengths) measure(engine, placement, length, rounds);
}

}  // namespace

int main(int argc, char** argv) { return kvatlas::bench::run_bench(run, argc, argv); }
