// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/pretokenizer.hpp"

#include <algorithm>

#include "analyzer/tokenizer/byte_alphabet.hpp"
#include "analyzer/tokenizer/text_growth.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace patterns {
const char* const kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kDigit = R"(\p{N})";
}  // namespace patterns

Pieces PreTokenizer::cut(std::string text, bool at_start) const {
  Pieces pieces{std::move(text), {}};
  if (pieces.text.empty()) return pieces;
  pieces.ranges.push_back({0, pieces.text.size(), at_start});
  const std::size_t most = most_bytes(pieces.text.size());
  for (const Step& step : steps_) {
    step(pieces);
    require_size(pieces.text.size(), most, "pre-tokenizer");
  }
  return pieces;
}

namespace cutting {

namespace {

/// A part of a piece: a separator, or what lies between two.
struct Part {
  std::size_t begin, end;
  bool separator;
};

/// Joins each separator that does not follow another to the part before it.
template <class Iterator, class Extend>
std::vector<Part> merged(Iterator first, Iterator last, Extend extend) {
  std::vector<Part> out;
  bool previous = false;
  for (; first != last; ++first) {
    if (first->separator && !previous && !out.empty()) {
      extend(out.back(), *first);
    } else {
      out.push_back(*first);
    }
    previous = first->separator;
  }
  return out;
}

std::vector<Part> behave(std::vector<Part> parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated:
      return parts;
    case SplitBehavior::removed:
      std::erase_if(parts, [](const Part& part) { return part.separator; });
      return parts;
    case SplitBehavior::merged_with_previous:
      return merged(parts.begin(), parts.end(),
                    [](Part& into, const Part& part) { into.end = part.end; });
    case SplitBehavior::merged_with_next: {
      auto out = merged(parts.rbegin(), parts.rend(),
                        [](Part& into, const Part& part) { into.begin = part.begin; });
      std::reverse(out.begin(), out.end());
      return out;
    }
    case SplitBehavior::contiguous: {
      std::vector<Part> out;
      for (const Part& part : parts) {
        if (!out.empty() && out.back().separator == part.separator) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
      }
      return out;
    }
  }
  return parts;
}

/// Cuts every piece by find(text, found), where found(begin, end) reports a separator.
template <class Find>
void split_pieces(Pieces& pieces, SplitBehavior behavior, bool invert, Find find) {
  std::vector<Pieces::Range> out;
  out.reserve(pieces.ranges.size());
  std::vector<Part> parts;
  for (const auto& range : pieces.ranges) {
    const std::string_view piece = pieces.piece(range);
    parts.clear();
    std::size_t done = 0;
    find(piece, [&](std::size_t begin, std::size_t end) {
      if (begin > done) parts.push_back({done, begin, invert});
      parts.push_back({begin, end, !invert});
      done = end;
    });
    if (done < piece.size()) parts.push_back({done, piece.size(), invert});
    if (behavior != SplitBehavior::isolated) parts = behave(std::move(parts), behavior);
    for (const Part& part : parts) {
      if (part.begin == part.end) continue;
      out.push_back(
          {range.begin + part.begin, range.begin + part.end, range.at_start && part.begin == 0});
    }
  }
  pieces.ranges = std::move(out);
}

/// Cuts every piece at each character that `test` takes.
template <class Test>
PreTokenizer::Step split_chars(Test test, SplitBehavior behavior) {
  return [test, behavior](Pieces& pieces) {
    split_pieces(pieces, behavior, false, [&](std::string_view text, auto&& found) {
      for (std::size_t at = 0; at < text.size();) {
        const Utf8Char c = read_utf8(text, at);
        if (test(c.code)) found(at, at + c.length);
        at += c.length;
      }
    });
  };
}

/// Rewrites the text of every piece: write(piece, range, out) appends to out.
template <class Write>
void rewrite(Pieces& pieces, Write write) {
  std::string out;
  out.reserve(pieces.text.size() * 2);
  for (auto& range : pieces.ranges) {
    const std::size_t begin = out.size();
    write(pieces.piece(range), range, out);
    range.begin = begin;
    range.end = out.size();
  }
  pieces.text = std::move(out);
}

}  // namespace

PreTokenizer::Step split(Regex pattern, SplitBehavior behavior, bool invert) {
  return [pattern = std::move(pattern), behavior, invert](Pieces& pieces) {
    split_pieces(pieces, behavior, invert,
                 [&](std::string_view text, auto&& found) { pattern.for_each(text, found); });
  };
}

PreTokenizer::Step split(CharTest separator, SplitBehavior behavior) {
  return split_chars(separator, behavior);
}

PreTokenizer::Step split(char32_t separator, SplitBehavior behavior) {
  return split_chars([separator](char32_t c) { return c == separator; }, behavior);
}

PreTokenizer::Step words_and_symbols() {
  return [](Pieces& pieces) {
    split_pieces(pieces, SplitBehavior::removed, true, [](std::string_view text, auto&& found) {
      enum class Kind { space, word, symbol } kind = Kind::space;
      std::size_t begin = 0;
      for (std::size_t at = 0; at < text.size();) {
        const Utf8Char c = read_utf8(text, at);
        const Kind next = is_word(c.code)    ? Kind::word
                          : is_space(c.code) ? Kind::space
                                             : Kind::symbol;
        if (next != kind) {
          if (kind != Kind::space) found(begin, at);
          begin = at;
          kind = next;
        }
        at += c.length;
      }
      if (kind != Kind::space) found(begin, text.size());
    });
  };
}

PreTokenizer::Step prefix_space() {
  return [](Pieces& pieces) {
    rewrite(pieces, [](std::string_view piece, const Pieces::Range&, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  };
}

PreTokenizer::Step byte_level() {
  return [&alphabet = ByteAlphabet::get()](Pieces& pieces) {
    rewrite(pieces, [&](std::string_view piece, const Pieces::Range&, std::string& out) {
      for (const char c : piece) out += alphabet.character(static_cast<unsigned char>(c));
    });
  };
}

PreTokenizer::Step metaspace(std::string replacement, PrependScheme scheme, bool split) {
  return [replacement = std::move(replacement), scheme, split](Pieces& pieces) {
    rewrite(pieces, [&](std::string_view piece, const Pieces::Range& range, std::string& out) {
      const bool has_prefix = piece.starts_with(' ') || piece.starts_with(replacement);
      const bool wanted =
          scheme == PrependScheme::always || (scheme == PrependScheme::first && range.at_start);
      if (wanted && !has_prefix) out += replacement;
      for (const char c : piece) {
        if (c == ' ') {
          out += replacement;
        } else {
          out += c;
        }
      }
    });
    if (!split) return;
    split_pieces(pieces, SplitBehavior::merged_with_next, false,
                 [&](std::string_view text, auto&& found) {
                   Regex::literal(replacement).for_each(text, found);
                 });
  };
}

bool is_separating_punctuation(char32_t code) {
  const bool ascii = (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
                     (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  return ascii || is_punctuation(code);
}

}  // namespace cutting

}  // namespace kvatlas::model
