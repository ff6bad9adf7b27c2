// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/piece_model.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "analyzer/tokenizer/bpe_merge.hpp"
#include "base/error.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

constexpr double kUnknownPenalty = 10;
// SentencePiece trains no longer ones; this bounds the time per character.
constexpr std::size_t kMostPieceBytes = 4096;

/// Appends the ids of a text that was cut into pieces one by one.
class Output {
 public:
  Output(const PieceTable& table, std::vector<std::int32_t>& ids) : table_(table), ids_(ids) {}

  /// id < 0: the text is unknown, and becomes its bytes or, with its unknown neighbours, one token.
  void add(std::string_view text, std::int32_t id) {
    const bool follows_unknown = std::exchange(after_unknown_, id < 0);
    if (id >= 0) {
      ids_.push_back(id);
    } else if (has_bytes(text)) {
      for (const char c : text) ids_.push_back(byte_id(c));
    } else if (!follows_unknown && table_.unknown >= 0) {
      ids_.push_back(table_.unknown);
    }
  }

 private:
  std::int32_t byte_id(char c) const { return table_.byte_ids[static_cast<unsigned char>(c)]; }
  bool has_bytes(std::string_view text) const {
    return !table_.byte_ids.empty() &&
           std::all_of(text.begin(), text.end(), [&](char c) { return byte_id(c) >= 0; });
  }

  const PieceTable& table_;
  std::vector<std::int32_t>& ids_;
  bool after_unknown_ = false;
};

}  // namespace

bool PieceTable::is_plain(std::int32_t id) const {
  const PieceType kind = type(id);
  return kind == PieceType::normal || kind == PieceType::user_defined || kind == PieceType::unused;
}

std::int32_t PieceTable::find_plain(std::string_view text) const {
  const auto id = vocabulary->find(text);
  return id && is_plain(*id) ? *id : -1;
}

std::vector<std::pair<std::string, std::int32_t>> PieceTable::user_defined() const {
  std::vector<std::pair<std::string, std::int32_t>> out;
  for (std::int32_t id = 0; id < vocabulary->size(); ++id) {
    if (type(id) == PieceType::user_defined) out.emplace_back(vocabulary->text(id), id);
  }
  return out;
}

void PieceTable::require_finite_scores() const {
  for (std::int32_t id = 0; id < vocabulary->size(); ++id) {
    if (!std::isfinite(score(id))) {
      fail(ErrorCode::unreadable, "token ", quoted(vocabulary->text(id)), " has the score ",
           score(id), ", expected a finite number");
    }
  }
}

PieceBpe::PieceBpe(PieceTable table)
    : table_(std::move(table)),
      user_defined_(table_.user_defined()),
      has_unused_(std::find(table_.types.begin(), table_.types.end(), PieceType::unused) !=
                  table_.types.end()),
      cutter_(*table_.vocabulary) {
  table_.require_finite_scores();
}

void PieceBpe::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  // How an unused piece comes apart depends on the whole text.
  if (has_unused_) return encode_word(piece, ids);
  cutter_.for_each(piece, [&](std::string_view word) {
    cache_.encode(word, ids, [this](std::string_view uncached, std::vector<std::int32_t>& out) {
      encode_word(uncached, out);
    });
  });
}

void PieceBpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  require_bpe_length(word);
  std::vector<BpeSymbol> symbols;
  symbols.reserve(word.size());
  for (std::size_t at = 0; at < word.size();) {
    BpeSymbol symbol{static_cast<std::uint32_t>(at), 0};
    if (const auto whole = user_defined_.longest(word, at); whole.length > 0) {
      symbol.length = static_cast<std::uint32_t>(whole.length);
      symbol.id = whole.number;
      symbol.frozen = true;
    } else {
      symbol.length = read_utf8(word, at).length;
      symbol.id = table_.find_plain(word.substr(at, symbol.length));
    }
    symbols.push_back(symbol);
    at += symbol.length;
  }
  link_symbols(symbols);

  // Where an unused piece was last seen to come apart: its length up to there.
  std::unordered_map<std::int32_t, std::uint32_t> unused_cuts;
  merge_symbols(symbols, [&](const BpeSymbol& left, const BpeSymbol& right) -> BpeJoin {
    const std::int32_t id = table_.find_plain(word.substr(left.begin, left.length + right.length));
    if (id < 0) return {};
    if (table_.type(id) == PieceType::unused) unused_cuts[id] = left.length;
    return {-table_.score(id), id};
  });

  Output out(table_, ids);
  std::vector<std::string_view> parts;  // of an unused piece, the next one last
  for (std::int32_t k = 0; k >= 0; k = symbols[k].next) {
    const BpeSymbol& symbol = symbols[k];
    const std::string_view text = word.substr(symbol.begin, symbol.length);
    if (symbol.id < 0 || table_.type(symbol.id) != PieceType::unused) {
      out.add(text, symbol.id);
      continue;
    }
    parts.assign(1, text);
    while (!parts.empty()) {
      const std::string_view part = parts.back();
      parts.pop_back();
      const std::int32_t id = table_.find_plain(part);
      const bool unused = id >= 0 && table_.type(id) == PieceType::unused;
      const auto cut = unused ? unused_cuts.find(id) : unused_cuts.end();
      if (cut == unused_cuts.end()) {
        out.add(part, id);
      } else {
        parts.push_back(part.substr(cut->second));
        parts.push_back(part.substr(0, cut->second));
      }
    }
  }
}

Unigram::Unigram(PieceTable table, Sums sums)
    : table_(std::move(table)), sums_(sums), highest_score_(FLT_MIN) {
  table_.require_finite_scores();
  std::vector<std::pair<std::string, std::int32_t>> pieces;
  double lowest = std::numeric_limits<float>::max();
  for (std::int32_t id = 0; id < table_.vocabulary->size(); ++id) {
    const std::string& text = table_.vocabulary->text(id);
    if (text.size() > kMostPieceBytes) {
      fail(ErrorCode::unsupported, "token ", quoted(text), " has ", text.size(), " bytes; at most ",
           kMostPieceBytes, " are supported");
    }
    if (table_.type(id) == PieceType::normal) {
      lowest = std::min(lowest, table_.score(id));
      highest_score_ = std::max(highest_score_, table_.score(id));
    }
    if (table_.is_plain(id) && table_.type(id) != PieceType::unused) pieces.emplace_back(text, id);
  }
  unknown_score_ = rounded(lowest - kUnknownPenalty);
  pieces_ = LiteralSet(std::move(pieces));
}

double Unigram::rounded(double value) const {
  return sums_ == Sums::in_float ? static_cast<float>(value) : value;
}

void Unigram::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  struct Node {  // the best way to cut the text before a place
    double score = 0;
    std::int32_t id = -1;  // of its last piece
    std::size_t begin = std::string_view::npos;
  };
  std::vector<Node> best(piece.size() + 1);
  best[0].begin = 0;
  for (std::size_t at = 0; at < piece.size();) {
    const double score_here = best[at].score;
    const auto offer = [&](std::size_t length, std::int32_t id, double sum) {
      Node& node = best[at + length];
      if (node.begin != std::string_view::npos && sum <= node.score) return;
      node = {rounded(sum), id, at};
    };
    const std::size_t character = read_utf8(piece, at).length;
    bool single = false;
    pieces_.for_each(piece, at, [&](LiteralSet::Found found) {
      single = single || found.length == character;
      const bool user_defined = table_.type(found.number) == PieceType::user_defined;
      offer(found.length, found.number,
            score_here + (user_defined
                              ? rounded(static_cast<double>(found.length) * highest_score_) - 0.1
                              : table_.score(found.number)));
    });
    if (!single) offer(character, -1, rounded(score_here + unknown_score_));
    at += character;
  }

  std::vector<std::size_t> ends;
  for (std::size_t at = piece.size(); at > 0; at = best[at].begin) ends.push_back(at);
  Output out(table_, ids);
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Node& node = best[*end];
    out.add(piece.substr(node.begin, *end - node.begin), node.id);
  }
}

}  // namespace kvatlas::model
