// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "analyzer/jinja/jinja_syntax_impl.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool continues_name(char c) { return starts_name(c) || is_digit(c); }

/// The text with "\n" for every end of a line, and without the last of them.
std::string with_newlines(std::string_view source, bool drop_last) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r') {
      text += '\n';
      if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
    } else {
      text += source[at];
    }
  }
  if (drop_last && text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_newlines(source, true)) {}

  std::vector<JinjaLexeme> run() {
    while (at_ < source_.size()) {
      const std::size_t open = next_opening();
      if (open == source_.npos) {
        add(JinjaToken::text, source_.substr(at_));
        go_to(source_.size());
        break;
      }
      read_part(open);
    }
    add(JinjaToken::end, "");
    return std::move(lexemes_);
  }

 private:
  void add(JinjaToken token, std::string text) {
    lexemes_.push_back({token, line_, std::move(text)});
  }

  void go_to(std::size_t at) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    if (at > at_) line_starts_ = source_[at - 1] == '\n';
    at_ = at;
  }

  bool has(std::string_view word) const {
    return std::string_view(source_).substr(at_).starts_with(word);
  }

  std::size_t next_opening() const {
    for (std::size_t open = source_.find('{', at_); open != source_.npos;
         open = source_.find('{', open + 1)) {
      const char next = open + 1 < source_.size() ? source_[open + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return open;
    }
    return source_.npos;
  }

  std::size_t after_spaces(std::size_t at) const {
    while (at < source_.size()) {
      const Utf8Char c = read_utf8(source_, at);
      if (!is_space(c.code) && !(c.code >= 0x1c && c.code <= 0x1f)) break;
      at += c.length;
    }
    return at;
  }

  /// The text before a tag that opens with `sign`, without the spaces that the tag swallows.
  std::string_view text_before(std::size_t open, char sign, bool is_output) const {
    const std::string_view text(source_.data() + at_, open - at_);
    if (sign == '-') {
      std::size_t end = 0;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t spaces = std::min(after_spaces(at_ + at) - at_, text.size());
        at = spaces;
        if (at < text.size()) end = at += read_utf8(text, at).length;
      }
      return text.substr(0, end);
    }
    if (sign == '+' || is_output) return text;
    const std::size_t line = text.rfind('\n') + 1;  // 0 if the text has but one line
    if ((line > 0 || line_starts_) && after_spaces(at_ + line) >= open) return text.substr(0, line);
    return text;
  }

  void read_part(std::size_t open) {
    const char kind = source_[open + 1];
    std::size_t inside = open + 2;
    char sign = '\0';
    if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+'))
      sign = source_[inside++];
    const std::string text(text_before(open, sign, kind == '{'));
    if (!text.empty()) add(JinjaToken::text, text);
    go_to(inside);
    if (kind == '#') {
      read_comment();
    } else if (kind == '%' && raw_begins()) {
      read_raw();
    } else {
      read_tag(kind == '{');
    }
  }

  /// Behind the end of a block: "-" swallows all spaces, "+" none, and else one newline goes.
  void close(std::size_t end, char sign) {
    if (sign == '-') return go_to(after_spaces(end));
    go_to(sign != '+' && end < source_.size() && source_[end] == '\n' ? end + 1 : end);
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail_at(line_, ErrorCode::unreadable, "the comment has no end");
    close(end + 2, end > at_ ? source_[end - 1] : '\0');
  }

  /// Whether "{%" begins a raw block, which is then passed over.
  bool raw_begins() {
    std::size_t at = after_spaces(at_);
    if (source_.compare(at, 3, "raw") != 0) return false;
    at = after_spaces(at + 3);
    const bool trims = source_.compare(at, 3, "-%}") == 0;
    if (!trims && source_.compare(at, 2, "%}") != 0) return false;
    go_to(trims ? after_spaces(at + 3) : at + 2);
    return true;
  }

  void read_raw() {
    for (std::size_t open = source_.find("{%", at_); open != source_.npos;
         open = source_.find("{%", open + 1)) {
      std::size_t inside = open + 2;
      char sign = '\0';
      if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+'))
        sign = source_[inside++];
      std::size_t end = after_spaces(inside);
      if (source_.compare(end, 6, "endraw") != 0) continue;
      end = after_spaces(end + 6);
      char end_sign = '\0';
      if (end < source_.size() && (source_[end] == '-' || source_[end] == '+'))
        end_sign = source_[end++];
      if (source_.compare(end, 2, "%}") != 0) continue;
      const std::string text(text_before(open, sign, false));
      if (!text.empty()) add(JinjaToken::text, text);
      return close(end + 2, end_sign);
    }
    fail_at(line_, ErrorCode::unreadable, "{% raw %} has no {% endraw %}");
  }

  void read_tag(bool is_output) {
    const int line = line_;
    add(is_output ? JinjaToken::output : JinjaToken::tag, "");
    const std::string_view ending = is_output ? "}}" : "%}";
    std::string open_brackets;
    while (true) {
      go_to(after_spaces(at_));
      if (at_ >= source_.size())
        fail_at(line, ErrorCode::unreadable, is_output ? "{{" : "{%", " has no end");
      if (open_brackets.empty()) {
        const char sign = source_[at_];
        const bool has_sign = sign == '-' || (sign == '+' && !is_output);
        if (source_.compare(at_ + (has_sign ? 1 : 0), 2, ending) == 0) {
          add(is_output ? JinjaToken::output_end : JinjaToken::tag_end, "");
          const std::size_t end = at_ + (has_sign ? 3 : 2);
          return is_output && sign != '-' ? go_to(end) : close(end, has_sign ? sign : '\0');
        }
      }
      read_lexeme(open_brackets);
    }
  }

  void read_lexeme(std::string& open_brackets) {
    const char c = source_[at_];
    if (is_digit(c)) return read_number();
    if (starts_name(c)) {
      std::size_t end = at_;
      while (end < source_.size() && continues_name(source_[end])) ++end;
      add(JinjaToken::name, source_.substr(at_, end - at_));
      return go_to(end);
    }
    if (c == '\'' || c == '"') return read_string(c);
    constexpr std::array<std::string_view, 25> kSigns = {
        "**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    const auto* sign =
        std::find_if(kSigns.begin(), kSigns.end(), [&](std::string_view one) { return has(one); });
    if (sign == kSigns.end())
      fail_at(line_, ErrorCode::unreadable, quoted(source_.substr(at_, 1)),
              " is not expected here");
    if (c == '(' || c == '[' || c == '{') open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c)
        fail_at(line_, ErrorCode::unreadable, "'", c, "' closes nothing");
      open_brackets.pop_back();
    }
    add(JinjaToken::sign, std::string(*sign));
    go_to(at_ + sign->size());
  }

  /// A number as it is written, without the underscores between its digits.
  void read_number() {
    std::string number;
    std::size_t at = at_;
    const auto digits = [&] {
      while (at < source_.size() && (is_digit(source_[at]) || source_[at] == '_')) {
        if (source_[at] != '_') number += source_[at];
        ++at;
      }
    };
    const auto digit_at = [&](std::size_t where) {
      return where < source_.size() && is_digit(source_[where]);
    };
    digits();
    // In a.0.5 there is no fraction.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && at < source_.size() && source_[at] == '.' && digit_at(at + 1)) {
      number += source_[at++];
      digits();
    }
    if (!after_dot && at < source_.size() && (source_[at] == 'e' || source_[at] == 'E')) {
      const bool has_sign =
          at + 1 < source_.size() && (source_[at + 1] == '+' || source_[at + 1] == '-');
      if (digit_at(at + (has_sign ? 2 : 1))) {
        number += 'e';
        if (has_sign) number += source_[at + 1];
        at += has_sign ? 2 : 1;
        digits();
      }
    }
    if (at < source_.size() && continues_name(source_[at]))
      fail_at(line_, ErrorCode::unreadable, "a number cannot go on with ",
              quoted(source_.substr(at, 1)));
    add(JinjaToken::number, number);
    go_to(at);
  }

  void read_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line_, ErrorCode::unreadable, "the string has no end");
    add(JinjaToken::string, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    go_to(end + 1);
  }

  /// The code of an escape of `digits` digits at `at`, which goes behind them.
  char32_t read_code(std::string_view literal, std::size_t& at, std::size_t digits) const {
    char32_t code = 0;
    for (std::size_t k = 0; k < digits; ++k, ++at) {
      const char c = at < literal.size() ? literal[at] : '\0';
      const int digit = is_digit(c)              ? c - '0'
                        : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                        : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                 : -1;
      if (digit < 0) fail_at(line_, ErrorCode::unreadable, "an escape of a string lacks digits");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
      fail_at(line_, ErrorCode::unreadable, "an escape of a string names no character");
    return code;
  }

  /// The escapes of Python; what is none stays as it is written.
  std::string unescaped(std::string_view literal) const {
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    std::string out;
    for (std::size_t at = 0; at < literal.size();) {
      if (literal[at] != '\\') {
        out += literal[at++];
        continue;
      }
      const char c = literal[++at];  // a literal does not end in a backslash
      if (const auto letter = kLetters.find(c); letter != kLetters.npos) {
        out += kMeanings[letter];
        ++at;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        append_utf8(out, read_code(literal, ++at, c == 'x' ? 2 : c == 'u' ? 4 : 8));
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        for (int k = 0; k < 3 && at < literal.size() && literal[at] >= '0' && literal[at] <= '7';
             ++k)
          code = code * 8 + static_cast<char32_t>(literal[at++] - '0');
        append_utf8(out, code);
      } else if (c == '\n') {
        ++at;
      } else if (c == 'N') {
        fail_at(line_, ErrorCode::unsupported, "characters by name (\\N{...}) are not supported");
      } else {
        out += '\\';
      }
    }
    return out;
  }

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // what was read ends in a newline, or nothing was read
  std::vector<JinjaLexeme> lexemes_;
};

}  // namespace

std::vector<JinjaLexeme> jinja_lexemes(std::string_view source) {
  if (source.size() > kMostTemplateBytes)
    fail(ErrorCode::unreadable, "it has ", source.size(), " bytes, at most ", kMostTemplateBytes,
         " are read");
  return Lexer(source).run();
}

}  // namespace kvatlas::model
