// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/vocabulary.hpp"

#include "base/error.hpp"

namespace kvatlas::model {

Vocabulary::Vocabulary(std::vector<std::string> texts) : texts_(std::move(texts)) {
  ids_.reserve(texts_.size());
  for (std::size_t id = 0; id < texts_.size(); ++id) {
    if (!texts_[id].empty()) ids_[texts_[id]] = static_cast<std::int32_t>(id);
  }
}

std::optional<std::int32_t> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::int32_t Vocabulary::require(std::string_view text) const {
  const auto id = find(text);
  if (!id) fail(ErrorCode::unreadable, "token ", quoted(text), " is not in the vocabulary");
  return *id;
}

void put_token(std::vector<std::string>& texts, std::int64_t id, const std::string& text,
               std::size_t entries) {
  // Real vocabularies have few gaps; this keeps one id from asking for gigabytes.
  const auto most = static_cast<std::int64_t>(8 * entries + 65536);
  if (id < 0 || id >= most) {
    fail(ErrorCode::unreadable, "token ", quoted(text), " has id ", id, ", expected 0 to ",
         most - 1, " in a vocabulary of ", entries, " entries");
  }
  const auto at = static_cast<std::size_t>(id);
  if (at >= texts.size()) texts.resize(at + 1);
  if (!texts[at].empty() && texts[at] != text) {
    fail(ErrorCode::unreadable, "tokens ", quoted(texts[at]), " and ", quoted(text),
         " share the id ", id);
  }
  texts[at] = text;
}

std::vector<std::int32_t> byte_tokens(const Vocabulary& vocabulary) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::vector<std::int32_t> ids(256);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string text{'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
    ids[byte] = vocabulary.find(text).value_or(-1);
  }
  return ids;
}

}  // namespace kvatlas::model
