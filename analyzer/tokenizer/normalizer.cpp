// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/normalizer.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>

#include "analyzer/tokenizer/byte_alphabet.hpp"
#include "analyzer/tokenizer/regex.hpp"
#include "analyzer/tokenizer/text_growth.hpp"
#include "base/error.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

template <class Keep>
std::string filtered(std::string_view text, Keep keep) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    if (keep(c.code)) out += text.substr(at, c.length);
    at += c.length;
  }
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

}  // namespace

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    out = step(std::move(out));
    require_size(out.size(), most_bytes(text.size()), "normalizer");
  }
  return out;
}

namespace normalizing {

Normalizer::Step unicode_form(UnicodeForm form) {
  const bool compose = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));
  return [options](std::string text) {
    if (is_ascii(text)) return text;
    utf8proc_uint8_t* mapped = nullptr;
    const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, std::free);
    if (size < 0) {
      fail(ErrorCode::resource, "the text cannot be normalised: ", utf8proc_errmsg(size));
    }
    return std::string(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
  };
}

Normalizer::Step lowercase() {
  return [](const std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = read_utf8(text, at);
      if (c.code == 0x130) {  // the one letter whose lower case is two characters
        out += "i\xCC\x87";
      } else {
        append_utf8(out,
                    static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
      }
      at += c.length;
    }
    return out;
  };
}

Normalizer::Step strip_accents() {
  return [](const std::string& text) {
    return filtered(text, [](char32_t c) { return !is_mark(c); });
  };
}

Normalizer::Step strip_spaces(bool left, bool right) {
  return [left, right](std::string text) {
    std::size_t begin = text.size(), end = 0;  // of what is no space
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = read_utf8(text, at);
      if (!is_space(c.code)) {
        begin = std::min(begin, at);
        end = at + c.length;
      }
      at += c.length;
    }
    if (begin == text.size()) return left || right ? std::string() : text;
    if (right) text.resize(end);
    if (left) text.erase(0, begin);
    return text;
  };
}

Normalizer::Step prepend(std::string prefix) {
  return [prefix = std::move(prefix)](const std::string& text) {
    return text.empty() ? text : prefix + text;
  };
}

Normalizer::Step replace(Regex pattern, std::string content) {
  return [pattern = std::move(pattern), content = std::move(content)](const std::string& text) {
    return pattern.replaced(text, content, most_bytes(text.size()));
  };
}

Normalizer::Step byte_level() {
  return [](const std::string& text) { return ByteAlphabet::get().spelled(text); };
}

}  // namespace normalizing

}  // namespace kvatlas::model
