// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kvatlas::model {

/// The tokens by id and the ids by token. An empty text is an id without a token. If a text occurs
/// twice, its last id counts.
class Vocabulary {
 public:
  explicit Vocabulary(std::vector<std::string> texts);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;  // ids_ points into texts_

  std::int32_t size() const { return static_cast<std::int32_t>(texts_.size()); }
  const std::string& text(std::int32_t id) const { return texts_[id]; }
  const std::vector<std::string>& texts() const { return texts_; }
  std::optional<std::int32_t> find(std::string_view text) const;
  std::int32_t require(std::string_view text) const;  // Error(unreadable) if it is absent

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

/// Puts `text` at `id`, growing the list. Error(unreadable) if the id is negative, taken by another
/// text, or beyond what the `entries` of the file can mean.
void put_token(std::vector<std::string>& texts, std::int64_t id, const std::string& text,
               std::size_t entries);

/// The ids of the tokens "<0x00>" to "<0xFF>"; -1 stands for a token that does not exist.
std::vector<std::int32_t> byte_tokens(const Vocabulary& vocabulary);

}  // namespace kvatlas::model
