// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <chrono>
#include <optional>

#include <pcre2.h>

#include "base/error.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

constexpr std::size_t kMostPatternBytes = 1 << 16;

// What \s and \w mean in Oniguruma; PCRE2's own differ (U+180E is a space, marks are no word).
constexpr std::string_view kSpaces =
    "\\t-\\r "
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHex = "0-9a-fA-F";

/// Rewrites an Oniguruma pattern to one that means the same to PCRE2, or fails by name.
class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        plain_character(c);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    fail(ErrorCode::unsupported, "pattern ", quoted(pattern_, 200), ": ", what,
         " is not supported");
  }

  void copy(std::size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }

  void escape() {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (kind) {
      case 's':
        return shorthand(kSpaces, false);
      case 'w':
        return shorthand(kWord, false);
      case 'h':
        return shorthand(kHex, false);
      case 'S':
        return shorthand(kSpaces, true);
      case 'W':
        return shorthand(kWord, true);
      case 'H':
        return shorthand(kHex, true);
      case 'b':
        return in_class_ ? copy(2) : boundary(true);
      case 'B':
        return boundary(false);
      case 'C':
      case 'E':
      case 'K':
      case 'Q':
      case 'g':
      case 'k':
        refuse("\\C, \\E, \\K, \\Q, \\g or \\k");
      default:
        copy(2);
    }
  }

  void shorthand(std::string_view members, bool negated) {
    if (!in_class_) {
      out_ += negated ? "[^" : "[";
      out_ += members;
      out_ += ']';
    } else if (!negated) {
      out_ += members;
    } else if (members == kSpaces) {
      out_ += "\\S\\x{180E}";
    } else {
      refuse("\\W or \\H inside a character class");
    }
    at_ += 2;
  }

  /// Where a word begins or ends, or everywhere else.
  void boundary(bool at_boundary) {
    const std::string word = "[" + std::string(kWord) + "]";
    const char* after = at_boundary ? "!" : "=";
    const char* before = at_boundary ? "=" : "!";
    out_ +=
        "(?:(?<=" + word + ")(?" + after + word + ")|(?<!" + word + ")(?" + before + word + "))";
    at_ += 2;
  }

  void class_character(char c) {
    if (c == '&' && pattern_.substr(at_, 2) == "&&") refuse("the class intersection '&&'");
    if (c == '[') refuse("a character class inside another");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void plain_character(char c) {
    if (c == '[') {
      in_class_ = true;
      copy(1);
      if (pattern_.substr(at_, 1) == "^") copy(1);
      if (pattern_.substr(at_, 1) == "]") copy(1);  // first in a class it is a character
    } else if (c == '{') {
      interval();
    } else {
      if (c == '(') group();
      copy(1);
    }
  }

  /// Of the groups that begin with '?' those that both know alike are let through.
  void group() const {
    const std::string_view rest = pattern_.substr(at_ + 1);
    if (rest.starts_with('*')) refuse("a verb '(*'");
    if (!rest.starts_with('?')) return;
    const auto kind = rest.find_first_not_of("i-", 1);
    const char c = kind == std::string_view::npos ? '\0' : rest[kind];
    const bool options = kind != 1;
    if (options ? c != ':' && c != ')'
                : std::string_view(":=!><").find(c) == std::string_view::npos) {
      refuse("this kind of group '(?'");
    }
  }

  /// "{1,3}+" repeats in Oniguruma and is possessive in PCRE2.
  void interval() {
    const std::size_t end = pattern_.find('}', at_);
    if (end != std::string_view::npos && end > at_ + 1 && pattern_.substr(end + 1, 1) == "+") {
      const auto inside = pattern_.substr(at_ + 1, end - at_ - 1);
      if (std::all_of(inside.begin(), inside.end(),
                      [](char c) { return c == ',' || (c >= '0' && c <= '9'); })) {
        refuse("an interval followed by '+'");
      }
    }
    copy(1);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

}  // namespace

struct Regex::Compiled {
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code;

  /// One pass over one text. A hostile pattern is stopped in two ways: PCRE2 limits the steps from
  /// one starting point, and since starting points are tried in windows, the clock is looked at
  /// between them.
  class Scan {
   public:
    Scan(const pcre2_code* code, const std::string& pattern, std::string_view text)
        : code_(code),
          pattern_(pattern),
          text_(text),
          context_(pcre2_match_context_create(nullptr)),
          data_(pcre2_match_data_create(1, nullptr)) {
      if (!context_ || !data_) no_memory();
      const std::size_t steps = std::min<std::size_t>(10'000 + 16 * text.size(), 1'000'000'000);
      pcre2_set_match_limit(context_.get(), static_cast<std::uint32_t>(steps));
      pcre2_set_heap_limit(context_.get(), 64 << 10);  // in KiB
    }

    struct Match {
      std::size_t begin, end;
    };

    std::optional<Match> next(std::size_t from) {
      for (std::size_t window = from;; window += kWindow) {
        const bool last = text_.size() - window <= kWindow;
        // No starting point lies at the limit itself, so windows do not overlap by more than one.
        pcre2_set_offset_limit(context_.get(), last ? PCRE2_UNSET : window + kWindow);
        int result = match_from(start_of_character(window));
        if (result == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
          // The machine stack's 32 KiB, which serve all common patterns, were not enough.
          stack_.reset(pcre2_jit_stack_create(64 << 10, 8 << 20, nullptr));
          if (!stack_) no_memory();
          pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
          result = match_from(start_of_character(window));
        }
        if (result >= 0) {
          const auto* ends = pcre2_get_ovector_pointer(data_.get());
          return Match{std::min(ends[0], ends[1]), ends[1]};
        }
        if (result != PCRE2_ERROR_NOMATCH) too_costly(pcre2_message(result));
        if (last) return std::nullopt;
        require_time();
      }
    }

    /// Called now and then, for a pattern can also be slow match by match.
    void require_time() const {
      const auto spent = std::chrono::steady_clock::now() - start_;
      if (spent > std::chrono::seconds(20) + std::chrono::microseconds(20) * text_.size()) {
        too_costly("out of time");
      }
    }

   private:
    static constexpr std::size_t kWindow = 256;

    [[noreturn]] void too_costly(const std::string& why) const {
      fail(ErrorCode::resource, "pattern ", quoted(pattern_, 200), " takes too long on a text of ",
           text_.size(), " bytes (", why, ")");
    }

    [[noreturn]] void no_memory() const {
      fail(ErrorCode::resource, "no memory to run pattern ", quoted(pattern_));
    }

    int match_from(std::size_t at) const {
      return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at,
                         PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
    }

    std::size_t start_of_character(std::size_t at) const {
      while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80) --at;
      return at;
    }

    const pcre2_code* code_;
    const std::string& pattern_;
    std::string_view text_;
    MatchContext context_;
    MatchData data_;
    JitStack stack_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };
};

Regex::Regex(std::string_view pattern) : pattern_(pattern) {
  if (pattern.size() > kMostPatternBytes) {
    fail(ErrorCode::unsupported, "a pattern of ", pattern.size(), " bytes; at most ",
         kMostPatternBytes, " are supported");
  }
  const std::string translated = Translation(pattern).run();
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) fail(ErrorCode::resource, "no memory to compile pattern ", quoted(pattern));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE where = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
      &error, &where, context.get()));
  if (!compiled->code) {
    fail(ErrorCode::unsupported, "pattern ", quoted(pattern, 200), ": ", pcre2_message(error),
         " (at byte ", where, " of its translation)");
  }
  // Without JIT (a system that forbids it) the interpreter runs the pattern.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  compiled_ = std::move(compiled);
}

Regex Regex::literal(std::string_view text) {
  Regex regex;
  regex.pattern_ = text;
  return regex;
}

void Regex::for_each(std::string_view text,
                     const std::function<void(std::size_t, std::size_t)>& found) const {
  if (text.empty()) return;
  if (!compiled_) {
    if (pattern_.empty()) return;
    for (auto at = text.find(pattern_); at != text.npos;
         at = text.find(pattern_, at + pattern_.size())) {
      found(at, at + pattern_.size());
    }
    return;
  }
  if (!is_utf8(text)) return;  // pieces of decoded characters: PCRE2 would read beyond them
  Compiled::Scan scan(compiled_->code.get(), pattern_, text);
  std::size_t from = 0;
  std::size_t last_end = text.size() + 1;  // none yet
  for (std::size_t round = 1;; ++round) {
    const auto match = scan.next(from);
    if (!match) return;
    if (match->begin == match->end && match->end == last_end) {
      // An empty match where the last one ended would be found for ever.
      if (from >= text.size()) return;
      from += read_utf8(text, from).length;
      continue;
    }
    found(match->begin, match->end);
    from = last_end = match->end;
    if (round % 1024 == 0) scan.require_time();
  }
}

std::string Regex::replaced(std::string_view text, std::string_view content,
                            std::size_t most_bytes) const {
  std::string out;
  std::size_t copied = 0;
  const auto take = [&](std::size_t begin, std::string_view instead) {
    out += text.substr(copied, begin - copied);
    out += instead;
    if (out.size() > most_bytes) {
      fail(ErrorCode::resource, "replacing ", quoted(pattern_, 200), " by ", quoted(content),
           " makes a text longer than ", most_bytes, " bytes");
    }
  };
  for_each(text, [&](std::size_t begin, std::size_t end) {
    take(begin, content);
    copied = end;
  });
  take(text.size(), {});
  return out;
}

}  // namespace kvatlas::model
