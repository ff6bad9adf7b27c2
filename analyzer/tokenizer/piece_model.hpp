// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "analyzer/tokenizer/literal_set.hpp"
#include "analyzer/tokenizer/token_model.hpp"
#include "analyzer/tokenizer/vocabulary.hpp"
#include "analyzer/tokenizer/word_cache.hpp"

namespace kvatlas::model {

/// What a piece of a SentencePiece vocabulary is; the numbers of tokenizer.model and of GGUF's
/// tokenizer.ggml.token_type.
enum class PieceType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

/// A vocabulary with scores, as SentencePiece models have it.
struct PieceTable {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<double> scores;          // by id
  std::vector<PieceType> types;        // by id
  std::int32_t unknown = -1;           // if negative, unknown text vanishes
  std::vector<std::int32_t> byte_ids;  // empty if there is no byte fallback

  PieceType type(std::int32_t id) const { return types[id]; }
  double score(std::int32_t id) const { return scores[id]; }
  /// Whether text can become this piece (it is normal, user defined or unused).
  bool is_plain(std::int32_t id) const;
  std::int32_t find_plain(std::string_view text) const;  // -1 if there is none
  std::vector<std::pair<std::string, std::int32_t>> user_defined() const;
  /// Error(unreadable) if a score is no finite number.
  void require_finite_scores() const;
};

/// SentencePiece's BPE: the neighbours that join to the piece of the highest score are joined
/// first. User-defined pieces are cut out before and joined with nothing.
class PieceBpe : public TokenModel {
 public:
  explicit PieceBpe(PieceTable table);
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  PieceTable table_;
  LiteralSet user_defined_;
  bool has_unused_;
  WordCutter cutter_;
  mutable WordCache cache_;
};

/// The unigram language model: the cut with the highest sum of scores.
class Unigram : public TokenModel {
 public:
  /// SentencePiece keeps sums of scores as float, though it compares the sum with a known piece
  /// before rounding it; the tokenizers library stays in double. This decides ties.
  enum class Sums { in_float, in_double };
  Unigram(PieceTable table, Sums sums);
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override;

 private:
  double rounded(double value) const;

  PieceTable table_;
  LiteralSet pieces_;
  Sums sums_;
  double unknown_score_ = 0;
  double highest_score_;
};

}  // namespace kvatlas::model
