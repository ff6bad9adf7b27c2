// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/pipeline_tokenizer.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

std::vector<AddedToken> with_normalized(const std::vector<AddedToken>& tokens, bool normalized,
                                        const Normalizer& normalizer) {
  std::vector<AddedToken> out;
  for (AddedToken token : tokens) {
    if (token.normalized != normalized) continue;
    if (normalized) token.text = normalizer.apply(token.text);
    out.push_back(std::move(token));
  }
  return out;
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      raw_added_(with_normalized(parts_.added, false, parts_.normalizer)),
      normalized_added_(with_normalized(parts_.added, true, parts_.normalizer)),
      special_(static_cast<std::size_t>(parts_.vocabulary->size())) {
  for (const AddedToken& token : parts_.added) {
    if (token.special) special_[token.id] = true;
  }
}

std::vector<std::int64_t> PipelineTokenizer::encode(std::string_view text,
                                                    EncodeOptions options) const {
  std::string repaired;
  if (!is_utf8(text)) {
    repaired = repaired_utf8(text);
    text = repaired;
  }
  std::vector<std::int32_t> ids;
  if (options.add_special) ids = parts_.prefix;
  const auto add_token = [&](std::int32_t id) { ids.push_back(id); };
  raw_added_.cut(
      text, options.parse_special,
      [&](std::size_t begin, std::size_t end) {
        const std::string normal = parts_.normalizer.apply(text.substr(begin, end - begin));
        const bool at_start = begin == 0;
        normalized_added_.cut(
            normal, options.parse_special,
            [&](std::size_t part_begin, std::size_t part_end) {
              const Pieces pieces = parts_.pretokenizer.cut(
                  normal.substr(part_begin, part_end - part_begin), at_start && part_begin == 0);
              for (const auto& range : pieces.ranges) {
                parts_.model->encode(pieces.piece(range), ids);
              }
            },
            add_token);
      },
      add_token);
  if (options.add_special) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return {ids.begin(), ids.end()};
}

std::int32_t PipelineTokenizer::checked(std::int64_t id) const {
  if (id < 0 || id >= vocab_size()) {
    fail(ErrorCode::unreadable, "token id ", id, " is out of range: the vocabulary has ",
         vocab_size(), " tokens");
  }
  return static_cast<std::int32_t>(id);
}

std::string PipelineTokenizer::decode_bytes(std::span<const std::int64_t> ids, bool skip_special,
                                            bool at_start) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int64_t id : ids) {
    const std::string& text = parts_.vocabulary->text(checked(id));
    const bool skipped = skip_special && special_[id];
    if (!text.empty() && !skipped) tokens.push_back(text);
  }
  return tokens.empty() ? std::string() : parts_.decoder.apply(std::move(tokens), at_start);
}

bool PipelineTokenizer::is_special(std::int64_t id) const { return special_[checked(id)]; }

std::optional<std::int64_t> PipelineTokenizer::id_of(std::string_view token) const {
  const auto id = parts_.vocabulary->find(token);
  if (!id) return std::nullopt;
  return *id;
}

std::string PipelineTokenizer::token_text(std::int64_t id) const {
  return parts_.vocabulary->text(checked(id));
}

std::vector<std::int64_t> PipelineTokenizer::end_ids() const {
  return {parts_.ends.begin(), parts_.ends.end()};
}

void add_turn_ends(TokenizerParts& parts) {
  constexpr std::array<std::string_view, 5> kTurnEnds = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>",
                                                         "<|end|>", "<end_of_turn>"};
  for (const AddedToken& token : parts.added) {
    const bool ends_turn = token.special && std::find(kTurnEnds.begin(), kTurnEnds.end(),
                                                      token.text) != kTurnEnds.end();
    const bool known =
        std::find(parts.ends.begin(), parts.ends.end(), token.id) != parts.ends.end();
    if (ends_turn && !known) parts.ends.push_back(token.id);
  }
}

void Fingerprint::add(std::string_view text) {
  add(static_cast<std::int64_t>(text.size()));
  hash_.add(text);
}

void Fingerprint::add(std::int64_t number) { hash_.add(static_cast<std::uint64_t>(number)); }

void Fingerprint::add(const Vocabulary& vocabulary) {
  add(static_cast<std::int64_t>(vocabulary.size()));
  for (const std::string& text : vocabulary.texts()) add(text);
}

}  // namespace kvatlas::model
