// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "analyzer/checkpoint/tensor.hpp"
#include "base/mapped_file.hpp"

namespace kvatlas::model {

/// A GGUF file, version 2 or 3, mapped: its metadata and its tensors. Every count, length and
/// offset is checked against the file before it is used; whatever is wrong is an Error(unreadable)
/// that names the key or tensor. A tensor of an unknown type is an Error(unsupported) only when it
/// is asked for.
class GgufFile {
 public:
  using Value = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                             std::vector<double>, std::vector<bool>, std::vector<std::string>>;

  static GgufFile open(const std::filesystem::path& path);
  /// The header alone, from memory (fuzzing): tensors point into `bytes`.
  static GgufFile parse(std::span<const std::byte> bytes);

  std::uint32_t version() const { return version_; }
  const std::map<std::string, Value, std::less<>>& metadata() const { return metadata_; }
  /// The value of a key, or nullopt if absent; Error(unreadable) if it is there with another type.
  /// Integers of any width come as int64, float32 as double.
  template <class T>
  std::optional<T> get(std::string_view key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return std::nullopt;
    if (const T* value = std::get_if<T>(&found->second)) return *value;
    if constexpr (std::is_same_v<T, double>)
      if (const auto* whole = std::get_if<std::int64_t>(&found->second))
        return static_cast<double>(*whole);
    fail_type(key, T());
  }
  template <class T>
  T require(std::string_view key) const {  // Error(unreadable) also if it is absent
    if (auto value = get<T>(key)) return *std::move(value);
    fail_missing(key);
  }

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// nullptr if absent; Error(unsupported) if its type is one that kvatlas cannot decode.
  const StoredTensor* find(std::string_view name) const;
  const MappedFile* file() const { return file_ ? &*file_ : nullptr; }

 private:
  GgufFile() = default;
  [[noreturn]] static void fail_type(std::string_view key, const Value& expected);
  [[noreturn]] static void fail_missing(std::string_view key);
  void read_header(std::span<const std::byte> bytes);

  std::uint32_t version_ = 0;
  std::map<std::string, Value, std::less<>> metadata_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::optional<MappedFile> file_;
};

/// Which layers have the window that the file speaks of, by its keys, or by what llama.cpp does of
/// an architecture that kvatlas knows.
struct GgufLayerWindows {
  std::vector<std::int64_t> sizes;  // [layer], 0 where it has none; empty if nothing says it
  bool chunks = false;
};
GgufLayerWindows gguf_windows(const GgufFile& file, const std::string& architecture,
                              std::int64_t layers);

}  // namespace kvatlas::model
