// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/tokenizer/pipeline_tokenizer.hpp"

namespace kvatlas::model {

/// What the files next to a tokenizer say about it (tokenizer_config.json, special_tokens_map.json,
/// chat_template.jinja, generation_config.json, config.json); what they do not say is absent.
struct TokenizerSettings {
  std::map<std::string, std::string> special_tokens;  // "bos_token" …
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> legacy;            // SentencePiece: a prefix space after every special token
  std::optional<bool> add_prefix_space;  // SentencePiece: a space before the text
  std::optional<std::string> chat_template;
  std::vector<std::int64_t> end_ids;
};
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder);

/// The parts that one file gives, without the settings.
TokenizerParts parts_from_json(std::string_view text);
TokenizerParts parts_from_sentencepiece(std::string_view bytes, const TokenizerSettings& settings);

void apply_settings(TokenizerParts& parts, const TokenizerSettings& settings);

}  // namespace kvatlas::model
