// SPDX-License-Identifier: Apache-2.0
#include "analyzer/profile/checked_arrays.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/half.hpp"
#include "base/share_code.hpp"
#include "base/str.hpp"

namespace kvatlas::profile {

std::vector<float> floats_of(const Reader& profile, std::size_t position, const char* array,
                             std::initializer_list<std::int64_t> at,
                             const std::vector<std::int64_t>& leading_sizes) {
  const Array values = profile.array(position, array, at);
  if (values.type != Type::f32)
    fail(ErrorCode::unreadable, "array ", array, " of the profile is ", type_name(values.type),
         ", expected float32");
  const std::size_t known = leading_sizes.size();
  if (values.shape.size() < known || values.shape.size() > known + 1 || values.bytes.empty() ||
      !std::equal(leading_sizes.begin(), leading_sizes.end(), values.shape.begin()))
    fail(ErrorCode::unreadable, "array ", array, " of the profile has sizes ",
         list_str(values.shape), " in a sample, expected ", list_str(leading_sizes),
         " and at most one more");
  const auto floats = values.values<float>();
  return {floats.begin(), floats.end()};
}

std::vector<float> shares_of(const Array& stored, const std::string& name) {
  static const std::vector<float> of_halves = [] {
    std::vector<float> shares(65536);
    for (std::size_t half = 0; half < shares.size(); ++half)
      shares[half] = std::exp2(f16_to_float(static_cast<std::uint16_t>(half)));
    return shares;
  }();
  static const std::array of_codes = [] {
    std::array<float, 256> shares{};
    for (std::size_t code = 0; code < shares.size(); ++code)
      shares[code] = share_code::share_of(static_cast<std::uint8_t>(code));
    return shares;
  }();
  std::vector<float> shares(stored.bytes.size() /
                            static_cast<std::size_t>(type_bytes(stored.type)));
  if (stored.type == Type::u8)
    std::ranges::transform(stored.values<std::uint8_t>(), shares.begin(),
                           [](std::uint8_t code) { return of_codes[code]; });
  else if (stored.type == Type::f16)
    std::ranges::transform(stored.values<std::uint16_t>(), shares.begin(),
                           [](std::uint16_t half) { return of_halves[half]; });
  else if (stored.type == Type::f32)
    std::ranges::transform(stored.values<float>(), shares.begin(),
                           [](float log2) { return std::exp2(log2); });
  else
    fail(ErrorCode::unreadable, quoted(name), " is ", type_name(stored.type),
         ", expected uint8, float16 or float32");
  return shares;
}

namespace {

void require_integers(const Array& found, const char* array) {
  if (found.type != Type::i64)
    fail(ErrorCode::unreadable, "array ", array, " of the profile is ", type_name(found.type),
         ", expected int64");
}

}  // namespace

std::vector<std::int64_t> integers_of(const Reader& profile, std::size_t position,
                                      const char* array, const std::vector<std::int64_t>& sizes) {
  const Array found = profile.array(position, array);
  require_integers(found, array);
  if (found.shape != sizes)
    fail(ErrorCode::unreadable, "array ", array, " of the profile has sizes ",
         list_str(found.shape), " in a sample, expected ", list_str(sizes));
  const auto values = found.values<std::int64_t>();
  return {values.begin(), values.end()};
}

std::vector<std::int64_t> layer_integers(const Reader& profile, std::size_t position,
                                         const char* array,
                                         std::initializer_list<std::int64_t> at) {
  const Array found = profile.array(position, array, at);
  require_integers(found, array);
  const auto values = found.values<std::int64_t>();
  if (static_cast<std::int64_t>(values.size()) != profile.header().n_layers)
    fail(ErrorCode::unreadable, "array ", array, " of the profile has ", values.size(),
         " counts, and the model has ", profile.header().n_layers, " layers");
  return {values.begin(), values.end()};
}

std::optional<std::vector<std::int64_t>> window_counts(const Reader& profile, std::size_t position,
                                                       const CountsAt& at) {
  auto counts = layer_integers(profile, position, name::kCounts, {at.kind_row, at.budget_row});
  if (std::all_of(counts.begin(), counts.end(), [](auto count) { return count < 0; }))
    return std::nullopt;
  const auto& sample = profile.samples()[position];
  const std::int64_t heads = profile.header().n_heads, positions = sample.n_tokens - at.window;
  std::int64_t sum = 0;
  bool sound = true;
  for (const auto count : counts) {
    sound = sound && count >= 0 && count <= positions * heads;
    sum += sound ? count : 0;
  }
  const std::int64_t expected =
      std::min(at.budget - at.window, positions) * heads * static_cast<std::int64_t>(counts.size());
  if (!sound || sum != expected)
    fail(ErrorCode::unreadable, "counts of sample ", sample.index, " for a budget of ", at.budget,
         " sum to ", sum, ", expected ", expected);
  return counts;
}

const AxisTable& axis_of(const Header& header, const std::string& name) {
  static const AxisTable kNone;
  for (const auto& table : header.axes)
    if (table.axis == name) return table;
  return kNone;
}

std::optional<std::int64_t> row_of(const AxisTable& table,
                                   std::initializer_list<std::int64_t> values) {
  const std::size_t columns = table.columns.size();
  if (columns != values.size()) return std::nullopt;
  for (std::size_t row = 0; row < table.labels.size(); ++row)
    if (std::equal(values.begin(), values.end(),
                   table.values.begin() + static_cast<std::ptrdiff_t>(row * columns)))
      return static_cast<std::int64_t>(row);
  return std::nullopt;
}

}  // namespace kvatlas::profile
