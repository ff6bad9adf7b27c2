// SPDX-License-Identifier: Apache-2.0
// The settings of each part of a policy: listed once, for inline text, documents and help.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostLayers = 4096;

/// What is done with each setting in turn: read, written, described. A range includes its ends.
class Settings {
 public:
  virtual ~Settings() = default;
  virtual void whole(const char* key, std::int64_t& value, std::int64_t low, std::int64_t high,
                     const char* meaning) = 0;
  virtual void optional_whole(const char* key, std::optional<std::int64_t>& value, std::int64_t low,
                              std::int64_t high, const char* meaning) = 0;
  virtual void number(const char* key, double& value, double low, double high,
                      const char* meaning) = 0;
  virtual void seed(const char* key, std::uint64_t& value, const char* meaning) = 0;
  virtual void flag(const char* key, bool& value, const char* meaning) = 0;
  /// Free text; empty: not given.
  virtual void text(const char* key, std::string& value, const char* meaning) = 0;
  /// One of some words; `index` is its place.
  virtual void word(const char* key, std::size_t& index, std::span<const std::string_view> words,
                    const char* meaning) = 0;

  template <class T, std::size_t N>
  void choice(const char* key, T& value, const std::array<std::string_view, N>& words,
              const char* meaning) {
    auto index = static_cast<std::size_t>(value);
    word(key, index, words, meaning);
    value = static_cast<T>(index);
  }
};

struct PartName {
  std::string name, meaning;
  Part standard;  // with the settings that hold where none are given
};

/// All names that a part may be called by, in the order of the help.
const std::vector<PartName>& part_names();
/// nullptr for none of them.
const PartName* find_part(std::string_view name);
/// The name that says most about the part: "window" is streaming with initial 0.
std::string name_of(const Part& part);
/// Visits the settings that a part of this name has, in their fixed order.
void visit_settings(std::string_view name, Part& part, Settings& settings);
/// Error(usage) for settings that contradict each other.
void check_settings(const Part& part);
/// Into the order that they are applied in.
void order_parts(std::vector<Part>& parts);

}  // namespace kvatlas::calibrate
