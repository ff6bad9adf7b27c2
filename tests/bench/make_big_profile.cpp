// SPDX-License-Identifier: Apache-2.0
// Writes a profile of about a wanted size, to try the viewer on: maps of random numbers in the
// shape of attention, of all heads of a model.
//   make_big_profile FILE [GIGABYTES [LAYERS HEADS TOKENS]]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

#include "analyzer/profile/statistics.hpp"
#include "base/half.hpp"
#include "base/parallel.hpp"
#include "base/str.hpp"
#include "tests/bench/bench_program.hpp"
#include "tests/support/profile_header.hpp"

namespace kvatlas::bench {
namespace {

struct Size {
  std::int64_t layers = 32, heads = 32, tokens = 32768;
  /// Last rows of attention: 16, or as many as take as much room for a larger model.
  std::int64_t rows() const {
    return std::clamp<std::int64_t>(16 * 32 * 32 * 32768 / (layers * heads * tokens), 1, 16);
  }
};

/// A level of all heads: a sink, a recent window, and noise between them.
profile::Array map_level(const Size& size, std::int64_t side, int seed) {
  profile::Array map(profile::Type::f16, {size.layers, size.heads, side, side});
  const auto values = map.values<std::uint16_t>();
  parallel_for(size.layers * size.heads, [&](std::int64_t number, int /*thread*/) {
    // The upper bits alone carry noise: as compressible as what is captured.
    std::minstd_rand random(static_cast<unsigned>(seed * 7919 + number));
    std::vector<std::uint16_t> far(512);
    for (auto& value : far)
      value = static_cast<std::uint16_t>(
          float_to_f16(-12.0F - static_cast<float>(random() % 4096) / 512.0F) & 0xfff8U);
    const std::uint16_t none = float_to_f16(-std::numeric_limits<float>::infinity());
    const std::uint16_t sink = float_to_f16(-2.0F - static_cast<float>(number % 7));
    std::uint16_t* out = values.data() + number * side * side;
    for (std::int64_t row = 0; row < side; ++row)
      for (std::int64_t column = 0; column < side; ++column)
        *out++ = column > row       ? none
                 : column == 0      ? sink
                 : row - column < 3 ? float_to_f16(-4.0F - static_cast<float>(row - column))
                                    : far[(static_cast<std::size_t>(random()) >> 7) % far.size()];
  });
  return map;
}

void make(int argc, char** argv) {
  if (argc != 2 && argc != 3 && argc != 6)
    throw std::runtime_error("make_big_profile FILE [GIGABYTES [LAYERS HEADS TOKENS]]");
  const double wanted = argc > 2 ? std::atof(argv[2]) : 10;
  Size size;
  if (argc == 6) size = {std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[5])};
  const std::filesystem::path path = argv[1];
  profile::CaptureSettings settings;
  settings.lazy = settings.js = settings.scores = settings.kept = settings.norms = settings.next =
      settings.columns = false;
  settings.map_type = profile::Type::f16;
  profile::Sample sample;
  sample.task = "needle";
  sample.tokens.assign(static_cast<std::size_t>(size.tokens), 1);
  profile::Array blocks(profile::Type::i32, {profile::kMapLevels});
  for (int level = 0; level < profile::kMapLevels; ++level) {
    const std::int64_t side = std::int64_t{512} >> level;
    blocks.values<std::int32_t>()[level] = static_cast<std::int32_t>(size.tokens / side);
    for (const bool maximum : {false, true})
      sample.arrays[profile::map_name(maximum, level)] = map_level(size, side, 2 * level + maximum);
  }
  sample.arrays[profile::name::kMapBlocks] = std::move(blocks);
  profile::Array rows(profile::Type::f16, {size.layers, size.heads, size.rows(), size.tokens});
  std::minstd_rand random(1);
  for (auto& value : rows.values<std::uint16_t>())
    value = static_cast<std::uint16_t>(
        float_to_f16(-14.0F - static_cast<float>(random() % 4096) / 512.0F) & 0xffe0U);
  sample.arrays[profile::name::kRows] = std::move(rows);

  // One sample, then as many copies of its chunks as reach the size: merging moves them as stored.
  auto header =
      testing_support::header_of({.layers = size.layers,
                                  .heads = size.heads,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .vocab_size = 128000,
                                  .context_length = 131072,
                                  .name = str(size.layers, " layers of ", size.heads, " heads")},
                                 settings, 1);
  const auto one = std::filesystem::path(path.string() + ".one.h5");
  sample.id = str(size.tokens, " tokens");
  {
    profile::Writer writer(one, header, {false, true});
    writer.add(sample);
    writer.finish();
  }
  const double bytes = static_cast<double>(std::filesystem::file_size(one));
  const int copies = std::max(1, static_cast<int>(std::lround(wanted * 1e9 / bytes)));
  // Other plans of prompts: merging numbers the samples anew.
  std::vector<std::filesystem::path> inputs(static_cast<std::size_t>(copies), one);
  std::filesystem::path second(path.string() + ".two.h5");
  header.prompts = "{\"made\":\"again\"}";
  {
    profile::Writer writer(second, header, {false, true});
    writer.add(sample);
    writer.finish();
  }
  inputs.back() = second;
  profile::merge(inputs, path, true);
  std::filesystem::remove(one);
  std::filesystem::remove(second);
  std::printf("%s: %d samples, %.2f GB\n", path.c_str(), copies,
              static_cast<double>(std::filesystem::file_size(path)) / 1e9);
}

}  // namespace
}  // namespace kvatlas::bench

int main(int argc, char** argv) {
  return kvatlas::bench::run_bench(kvatlas::bench::make, argc, argv);
}
