// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/kv_format.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

std::optional<KvFormat> kv_format_called(std::string_view word) {
  const auto known = std::find_if(kKvFormats.begin(), kKvFormats.end(),
                                  [&](const KvFormatFacts& one) { return one.word == word; });
  if (known == kKvFormats.end()) return std::nullopt;
  return static_cast<KvFormat>(known - kKvFormats.begin());
}

std::string lack_of_format(KvFormat format, std::int64_t head_dim) {
  const KvFormatFacts& facts = facts_of(format);
  for (const KvSide side : {KvSide::keys, KvSide::values})
    if (const auto& rows = facts.stored(side).rows)
      if (const auto lack = kernels::lacking_head_size(*rows, head_dim); !lack.empty())
        return str(facts.word, " takes heads of ", lack, ", and those of the model have ", head_dim,
                   " numbers");
  return "";
}

std::vector<std::int64_t> skipped_layers(std::string_view skip) {
  constexpr std::int64_t kMostLayers = 4096;
  std::vector<std::int64_t> out;
  while (!skip.empty()) {
    const std::string_view piece = skip.substr(0, skip.find(':'));
    std::int64_t layer = 0;
    const auto [end, error] = std::from_chars(piece.data(), piece.data() + piece.size(), layer);
    if (error != std::errc() || end != piece.data() + piece.size() || layer < -kMostLayers ||
        layer >= kMostLayers)
      fail(ErrorCode::usage, "skip: ", quoted(piece),
           " is no layer: expected whole numbers as in 0:1:-2:-1");
    out.push_back(layer);
    skip.remove_prefix(piece.size());
    if (skip == ":")
      fail(ErrorCode::usage, "skip ends with a colon: expected whole numbers as in 0:1:-2:-1");
    if (!skip.empty()) skip.remove_prefix(1);
  }
  return out;
}

std::vector<KvFormats> layer_formats(const Precision& part, std::int64_t layers) {
  std::vector<KvFormats> out = part.fixed.value_or(
      std::vector<KvFormats>(static_cast<std::size_t>(layers), part.everywhere));
  for (const std::int64_t layer : skipped_layers(part.skip)) {
    const std::int64_t from_first = layer < 0 ? layer + std::ssize(out) : layer;
    if (from_first < 0 || from_first >= std::ssize(out))
      fail(ErrorCode::usage, "skip names layer ", layer, ", and the model has ", out.size());
    out[static_cast<std::size_t>(from_first)] = {};
  }
  return out;
}

std::string skip_text(const std::vector<KvFormats>& formats) {
  std::string out;
  for (std::size_t l = 0; l < formats.size(); ++l)
    if (formats[l].plain()) out += str(out.empty() ? "" : ":", l);
  return out;
}

}  // namespace kvatlas::calibrate
