// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <utility>

#include "base/unicode_text.hpp"
#include "data/said_call_impl.hpp"

namespace kvatlas::data {
namespace {

using nlohmann::json;

constexpr int kDeepest = 32;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Reads literals of Python one after the other. What is none ends the reading: failed() from then
/// on.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : left_(text) {}

  bool failed() const { return failed_; }

  /// Steps over the mark, if it comes next.
  bool take(char mark) {
    const auto next = left_.find_first_not_of(" \t\r\n");
    if (next == left_.npos || left_[next] != mark) return false;
    left_.remove_prefix(next + 1);
    return true;
  }
  bool at_end() { return left_.find_first_not_of(" \t\r\n") == left_.npos; }

  /// A name with its dots; "" if none comes next.
  std::string name() {
    skip_blanks();
    std::size_t end = 0;
    while (end < left_.size() && (is_word(left_[end]) || (end > 0 && left_[end] == '.'))) ++end;
    const std::string_view found = left_.substr(0, end);
    if (end == 0 || std::isdigit(static_cast<unsigned char>(found.front()))) return {};
    left_.remove_prefix(end);
    return std::string(found);
  }

  /// The arguments behind an opening bracket, which all have names.
  json arguments() {
    json out = json::object();
    while (!failed_ && !take(')')) {
      const std::string key = name();
      if (key.empty() || !take('=')) return fail();
      out[key] = value(0);
      if (!take(',') && !comes(')')) return fail();
    }
    return failed_ ? json() : out;
  }

 private:
  void skip_blanks() {
    left_.remove_prefix(std::min(left_.find_first_not_of(" \t\r\n"), left_.size()));
  }
  bool comes(char mark) {
    skip_blanks();
    return left_.starts_with(mark);
  }
  json fail() {
    failed_ = true;
    return {};
  }

  json value(int depth) {
    skip_blanks();
    if (left_.empty() || depth > kDeepest) return fail();
    const char first = left_.front();
    if (first == '"' || first == '\'') return string(first);
    if (first == '[' || first == '(') return list(first == '[' ? ']' : ')', depth);
    if (first == '{') return dictionary(depth);
    if (std::isdigit(static_cast<unsigned char>(first)) || first == '-' || first == '+' ||
        first == '.')
      return number();
    const std::string word = name();
    if (word == "True" || word == "true") return true;
    if (word == "False" || word == "false") return false;
    return word == "None" || word == "null" ? json() : fail();
  }

  json number() {
    if (left_.starts_with('+')) left_.remove_prefix(1);
    const char* begin = left_.data();
    const char* all = begin + left_.size();
    std::int64_t whole = 0;
    double any = 0;
    const auto as_whole = std::from_chars(begin, all, whole);
    const auto as_any = std::from_chars(begin, all, any);
    if (as_any.ec != std::errc()) return fail();
    left_.remove_prefix(static_cast<std::size_t>(as_any.ptr - begin));
    return as_whole.ptr == as_any.ptr && as_whole.ec == std::errc() ? json(whole) : json(any);
  }

  json list(char end, int depth) {
    json out = json::array();
    left_.remove_prefix(1);
    while (!failed_ && !take(end)) {
      out.push_back(value(depth + 1));
      if (!take(',') && !comes(end)) return fail();
    }
    return out;
  }

  json dictionary(int depth) {
    json out = json::object();
    left_.remove_prefix(1);
    while (!failed_ && !take('}')) {
      const json key = value(depth + 1);
      if (!key.is_string() || !take(':')) return fail();
      out[key.get<std::string>()] = value(depth + 1);
      if (!take(',') && !comes('}')) return fail();
    }
    return out;
  }

  json string(char quote) {
    std::string out;
    for (std::size_t i = 1; i < left_.size(); ++i) {
      const char c = left_[i];
      if (c == quote) {
        left_.remove_prefix(i + 1);
        return out;
      }
      if (c != '\\') {
        out += c;
        continue;
      }
      if (++i == left_.size()) break;
      constexpr std::string_view kEscapes = "ntrbf0", kMeant{"\n\t\r\b\f\0", 6};
      const std::size_t digits = left_[i] == 'x' ? 2 : left_[i] == 'u' ? 4 : 0;
      if (digits > 0) {
        std::uint32_t code = 0;
        const char* begin = left_.data() + i + 1;
        const char* end = begin + std::min(digits, left_.size() - i - 1);
        if (std::from_chars(begin, end, code, 16).ptr != begin + digits) return fail();
        append_utf8(out, code);
        i += digits;
      } else if (const auto letter = kEscapes.find(left_[i]); letter != kEscapes.npos) {
        out += kMeant[letter];
      } else {
        out += left_[i];  // a quotation mark or a backslash
      }
    }
    return fail();
  }

  std::string_view left_;
  bool failed_ = false;
};

/// The text without what stands around calls alone, and whether there was any of that.
std::pair<std::string_view, bool> unwrapped(std::string_view text) {
  bool marked = false;
  const auto trim = [&] {
    constexpr std::string_view kBlanks = " \t\r\n";
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    text.remove_suffix(text.size() - 1 - std::min(text.find_last_not_of(kBlanks), text.size() - 1));
  };
  trim();
  for (const std::string_view begin :
       {"<|python_start|>", "<|python_tag|>", "<|tool_call_start|>", "```tool_code", "```python"})
    if (text.starts_with(begin)) {
      text.remove_prefix(begin.size());
      marked = true;
    }
  for (const std::string_view end :
       {"<|im_end|>", "<|eot|>", "<|eom|>", "<|python_end|>", "<|tool_call_end|>", "```"}) {
    trim();
    if (text.ends_with(end)) text.remove_suffix(end.size());
  }
  return {text, marked};
}

}  // namespace

std::vector<SaidCall> python_calls(std::string_view text) {
  const auto [words, marked] = unwrapped(text);
  PythonReader reader(words);
  const bool listed = reader.take('[');
  std::vector<SaidCall> calls;
  do {
    std::string name = reader.name();
    if (name.empty() || !reader.take('(')) return {};
    calls.push_back({std::move(name), reader.arguments()});
    // Of words that only begin like a call nothing is known.
    if (reader.failed()) return listed || marked ? calls : std::vector<SaidCall>();
  } while (reader.take(',') || (!listed && marked && !reader.at_end()));
  const bool whole = (!listed || reader.take(']')) && reader.at_end();
  return whole ? calls : std::vector<SaidCall>();
}

}  // namespace kvatlas::data
