// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/tokenizer/added_tokens.hpp"
#include "analyzer/tokenizer/normalizer.hpp"
#include "analyzer/tokenizer/pretokenizer.hpp"
#include "analyzer/tokenizer/token_decoder.hpp"
#include "analyzer/tokenizer/token_model.hpp"
#include "analyzer/tokenizer/tokenizer.hpp"
#include "analyzer/tokenizer/vocabulary.hpp"
#include "base/hash.hpp"

namespace kvatlas::model {

/// What a tokenizer is made of, whatever file it came from. Text goes through added tokens,
/// normalizer, pretokenizer and model; ids go through the decoder.
struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pretokenizer;
  std::unique_ptr<const TokenModel> model;
  TokenDecoder decoder;
  /// What add_special puts around a prompt.
  std::vector<std::int32_t> prefix, suffix;
  std::optional<std::int32_t> bos;
  std::vector<std::int32_t> ends;
  std::optional<std::string> chat_template;
  std::map<std::string, std::string> special_tokens;  // by what they are for: "bos_token" …
  std::string fingerprint;
};

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts);

  using Tokenizer::encode;
  std::vector<std::int64_t> encode(std::string_view text, EncodeOptions options) const override;
  std::string decode_bytes(std::span<const std::int64_t> ids, bool skip_special,
                           bool at_start) const override;
  bool is_special(std::int64_t id) const override;
  std::int64_t vocab_size() const override { return parts_.vocabulary->size(); }
  std::optional<std::int64_t> id_of(std::string_view token) const override;
  std::string token_text(std::int64_t id) const override;
  std::optional<std::int64_t> bos_id() const override { return parts_.bos; }
  std::vector<std::int64_t> end_ids() const override;
  std::optional<std::string> chat_template() const override { return parts_.chat_template; }
  const std::map<std::string, std::string>& special_tokens() const override {
    return parts_.special_tokens;
  }
  std::string fingerprint() const override { return parts_.fingerprint; }

 private:
  std::int32_t checked(std::int64_t id) const;

  TokenizerParts parts_;
  AddedTokens raw_added_, normalized_added_;
  std::vector<bool> special_;  // by id
};

/// Special tokens that end a turn in the chat formats we know, as far as the vocabulary has them.
void add_turn_ends(TokenizerParts& parts);

/// A hash of a sequence of texts and numbers.
class Fingerprint {
 public:
  void add(std::string_view text);
  void add(std::int64_t number);
  void add(const Vocabulary& vocabulary);
  std::string text() const { return hash_.hex(); }

 private:
  Fnv1a hash_;
};

}  // namespace kvatlas::model
