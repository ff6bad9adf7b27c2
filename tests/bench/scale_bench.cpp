// SPDX-License-Identifier: Apache-2.0
// What a profile of very many samples, or of very many ranks, costs beside the model's own work:
// the model is an array of made-up numbers, the files and the processes are real.
//
//   bench_scale assembly FOLDER SAMPLES...
//   bench_scale ranks FOLDER RANKS SAMPLES MILLISECONDS
//
// `assembly` adds samples of a small model's statistics one by one and puts the file together.
// `ranks` starts so many processes that take samples from each other's list. The slowest takes
// twice as long for one as the quickest, which takes MILLISECONDS, asleep. With tests/faults/shim.c
// preloaded and KVATLAS_FAULT_SLOW set every operation on the files takes longer
// (tests/bench/scale.sh).
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "analyzer/profile/statistics.hpp"
#include "tests/bench/bench_program.hpp"
#include "tests/support/profile_header.hpp"

namespace kvatlas::bench {
namespace {

namespace fs = std::filesystem;

profile::Header header_for(std::int64_t samples) {
  profile::CaptureSettings settings;
  settings.maps = false;
  return testing_support::header_of({.layers = 8,
                                     .heads = 8,
                                     .kv_heads = 2,
                                     .head_dim = 128,
                                     .vocab_size = 128000,
                                     .context_length = 131072,
                                     .name = "8 layers of 8 heads"},
                                    settings, samples);
}

/// Every array whose sizes the model alone decides, with numbers that do not compress to nothing.
profile::Sample sample_of(const profile::Header& header, std::int64_t index) {
  profile::Sample sample;
  sample.index = index;
  sample.id = "sample " + std::to_string(index);
  sample.task = "needle";
  sample.tokens.assign(32768, 1);
  for (const auto& described : header.arrays) {
    if (described.sizes.empty()) continue;
    profile::Array array(described.type, described.sizes);
    std::uint32_t noise = static_cast<std::uint32_t>(index) * 2654435761U + 1;
    for (std::size_t i = 0; i < array.bytes.size(); i += 4) {
      noise = noise * 1664525U + 1013904223U;
      array.bytes[i] = static_cast<std::byte>(noise >> 24);
    }
    sample.arrays[described.name] = std::move(array);
  }
  return sample;
}

/// Runs `work` in a process of its own, so that memory is its own.
pid_t in_a_process(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    try {
      work();
      std::fflush(stdout);
      _exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
  }
  return child;
}
void wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0)
    throw std::runtime_error("a process of the bench failed");
}

void assembly(const fs::path& folder, std::int64_t samples) {
  wait_for(in_a_process([&] {
    const auto path = folder / "assembly.h5";
    const auto header = header_for(samples);
    profile::Writer writer(path, header, {.resume = false, .force = true});
    const auto start = Clock::now();
    for (std::int64_t index = 0; index < samples; ++index) writer.add(sample_of(header, index));
    const double added = seconds_since(start);
    writer.finish();
    const double took = seconds_since(start);
    std::printf(
        "{\"samples\": %lld, \"seconds\": %.2f, \"of_it_at_the_end\": %.2f, \"ms_a_sample\": %.2f, "
        "\"peak_mb\": %.0f, \"file_mb\": %.1f}\n",
        static_cast<long long>(samples), took, took - added,
        1000 * took / static_cast<double>(samples), peak_megabytes(RUSAGE_SELF),
        static_cast<double>(fs::file_size(path)) / 1e6);
    fs::remove(path);
  }));
}

/// What the processes share.
struct Shared {
  std::atomic<std::int64_t> next = 0, joined = 0, working = 0;
  std::atomic<double> first_idle = 0, last_idle = 0;  // seconds after the start
};

void ranks(const fs::path& folder, int count, std::int64_t samples, double milliseconds) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  auto& shared = *new (memory) Shared;
  shared.working = count;
  const auto path = folder / "ranks.h5";
  const auto header = header_for(samples);
  profile::Writer writer(path, header, {.resume = false, .force = true});
  const auto start = Clock::now();
  const auto work = [&](int rank, profile::Writer& own) {
    const double each = milliseconds * (1 + static_cast<double>(rank) / std::max(1, count - 1));
    for (std::int64_t index; (index = shared.next++) < samples;) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(each));
      own.add(sample_of(header, index));
    }
    const double now = seconds_since(start);
    if (shared.working-- == count) shared.first_idle = now;
    shared.last_idle = now;
  };
  std::vector<pid_t> children;
  for (int rank = 1; rank < count; ++rank)
    children.push_back(in_a_process([&, rank] {
      const auto joined = profile::Writer::join(path, header);
      work(rank, *joined);
    }));
  const double before = cpu_seconds();
  work(0, writer);
  const double of_rank_0 = cpu_seconds() - before;
  for (const pid_t child : children) wait_for(child);
  const double computed = seconds_since(start);
  writer.finish();
  const double took = seconds_since(start);
  double rate = 0;  // samples a second, if no rank ever waited
  for (int rank = 0; rank < count; ++rank)
    rate += 1000 / (milliseconds * (1 + static_cast<double>(rank) / std::max(1, count - 1)));
  std::printf(
      "{\"ranks\": %d, \"samples\": %lld, \"seconds\": %.2f, \"at_best\": %.2f, "
      "\"first_rank_idle_after\": %.2f, \"last_after\": %.2f, \"assembled_in\": %.2f, "
      "\"rank_0_processor\": %.2f, \"peak_mb_a_rank\": %.0f}\n",
      count, static_cast<long long>(samples), took, static_cast<double>(samples) / rate,
      shared.first_idle.load(), shared.last_idle.load(), took - computed, of_rank_0,
      peak_megabytes(RUSAGE_CHILDREN));
  fs::remove(path);
}

void run(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "assembly" && argc > 3) {
    for (int i = 3; i < argc; ++i) assembly(argv[2], std::stoll(argv[i]));
  } else if (what == "ranks" && argc == 6) {
    ranks(argv[2], std::stoi(argv[3]), std::stoll(argv[4]), std::stod(argv[5]));
  } else {
    throw std::runtime_error(
        "bench_scale assembly FOLDER SAMPLES... | ranks FOLDER RANKS SAMPLES MILLISECONDS");
  }
}

}  // namespace
}  // namespace kvatlas::bench

int main(int argc, char** argv) {
  return kvatlas::bench::run_bench(kvatlas::bench::run, argc, argv);
}
