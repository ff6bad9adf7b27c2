// SPDX-License-Identifier: Apache-2.0
#include "tests/gui/map_profile.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "analyzer/profile/statistics.hpp"
#include "base/half.hpp"
#include "tests/support/profile_header.hpp"

namespace kvatlas::viewer::testing_gui {

namespace {

std::uint16_t log2_of(double share) {
  return float_to_f16(share > 0 ? static_cast<float>(std::log2(share))
                                : -std::numeric_limits<float>::infinity());
}

/// Attention of row `query` on `key`: the first key, the nearest ones, and a little everywhere.
double attention(std::int64_t number, std::int64_t query, std::int64_t key) {
  if (key > query) return 0;
  const double sink = 0.1 + 0.04 * static_cast<double>(number);
  const double near = std::exp2(-static_cast<double>(query - key) / 8.0) * 0.05;
  return (key == 0 ? sink : 0) + near + 0.2 / static_cast<double>(query + 1);
}

/// Fills an array [layers, heads, rows, columns] of `share(number of the head, row, column)`.
template <class Share>
profile::Array of_all_heads(std::int64_t rows, std::int64_t columns, Share share) {
  profile::Array array(profile::Type::f16, {kMapLayers, kMapHeads, rows, columns});
  auto value = array.values<std::uint16_t>().begin();
  for (std::int64_t number = 0; number < kMapLayers * kMapHeads; ++number)
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        *value++ = log2_of(share(number, row, column));
  return array;
}

void add_maps(profile::Sample& sample, std::int64_t n) {
  std::int64_t block = 1;
  while (n > 512 * block) block *= 2;
  profile::Array blocks(profile::Type::i32, {profile::kMapLevels});
  for (int level = 0; level < profile::kMapLevels; ++level) {
    const std::int64_t tokens = block << level;
    blocks.values<std::int32_t>()[level] = static_cast<std::int32_t>(tokens);
    const std::int64_t side = (n + tokens - 1) / tokens;
    for (const bool maximum : {false, true})
      sample.arrays[profile::map_name(maximum, level)] =
          of_all_heads(side, side, [=](std::int64_t number, std::int64_t row, std::int64_t column) {
            if (column > row) return 0.0;
            // A block's middle stands for it; its first key is the sink.
            const std::int64_t query = row * tokens + tokens / 2;
            if (column > 0) return attention(number, query, column * tokens + tokens / 2);
            return attention(number, query, 0) / static_cast<double>(maximum ? 1 : tokens);
          });
  }
  sample.arrays[profile::name::kMapBlocks] = std::move(blocks);
}

void add_texts(profile::Sample& sample, const std::string& word) {
  const auto n = static_cast<std::int64_t>(sample.tokens.size());
  const auto length = static_cast<std::int64_t>(word.size());
  profile::Array bytes(profile::Type::u8, {n * length}), ends(profile::Type::i32, {n});
  for (std::int64_t token = 0; token < n; ++token) {
    std::copy(word.begin(), word.end(), bytes.values<std::uint8_t>().begin() + token * length);
    ends.values<std::int32_t>()[token] = static_cast<std::int32_t>((token + 1) * length);
  }
  sample.arrays[profile::name::kTextBytes] = std::move(bytes);
  sample.arrays[profile::name::kTextEnds] = std::move(ends);
}

void add_kept(profile::Sample& sample, std::size_t selections, std::int64_t n) {
  const std::int64_t bytes = (n + 7) / 8;
  profile::Array mask(profile::Type::u8,
                      {static_cast<std::int64_t>(selections), kMapLayers, kMapKvHeads, bytes});
  const auto bits = mask.values<std::uint8_t>();
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t divisor = 2 + at / (bytes * kMapLayers * kMapKvHeads);
    for (std::int64_t bit = 0; bit < 8; ++bit) {
      const std::int64_t key = at % bytes * 8 + bit;
      if (key < n && key % divisor == 0) bits[i] |= static_cast<std::uint8_t>(1 << bit);
    }
  }
  sample.arrays[profile::name::kKeptMask] = std::move(mask);
}

}  // namespace

void write_map_profile(const std::filesystem::path& path, const std::vector<std::int64_t>& lengths,
                       bool kept, const std::string& word) {
  profile::CaptureSettings settings;
  settings.lazy = settings.js = settings.scores = settings.norms = settings.next =
      settings.columns = false;
  settings.kept = kept;
  settings.map_type = profile::Type::f16;
  settings.proximities = {{4, 64}};
  settings.window_kinds = {{}};
  settings.budgets = {64};
  settings.lags = {64};
  settings.ratios = {"1/2"};
  auto header = testing_support::header_of({kMapLayers, kMapHeads, kMapKvHeads}, settings,
                                           static_cast<std::int64_t>(lengths.size()));
  if (!word.empty())
    for (const auto& description : profile::text_descriptions())
      header.arrays.push_back(description);
  profile::Writer writer(path, header, {});
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    profile::Sample sample;
    sample.index = static_cast<std::int64_t>(i);
    sample.id = "sample " + std::to_string(i) + word;
    sample.task = "needle";
    sample.tokens.assign(static_cast<std::size_t>(lengths[i]), 7);
    if (lengths[i] <= 4096) add_maps(sample, lengths[i]);
    if (!word.empty()) add_texts(sample, word);
    if (kept) add_kept(sample, settings.selections().size(), lengths[i]);
    const std::int64_t first = lengths[i] - kLastRows;
    sample.arrays[profile::name::kRows] = of_all_heads(
        kLastRows, lengths[i], [first](std::int64_t number, std::int64_t row, std::int64_t key) {
          return attention(number, first + row, key);
        });
    writer.add(sample);
  }
  writer.finish();
}

}  // namespace kvatlas::viewer::testing_gui
