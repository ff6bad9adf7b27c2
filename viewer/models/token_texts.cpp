// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/token_texts.hpp"

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::viewer {
namespace {

namespace name = profile::name;

/// Control characters, and those that would break or turn round the line they are shown in.
bool is_unshowable(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

}  // namespace

std::vector<std::string> read_token_texts(const profile::Reader& profile, std::size_t position) {
  if (!profile.has(position, name::kTextBytes) || !profile.has(position, name::kTextEnds))
    return {};
  const auto bytes = profile.array(position, name::kTextBytes);
  const auto ends = profile.array(position, name::kTextEnds);
  const auto n_tokens = profile.samples()[position].n_tokens;
  if (bytes.shape.size() != 1 || ends.shape.size() != 1 || ends.shape[0] != n_tokens)
    fail(ErrorCode::unreadable, "sample ", position, ": ", name::kTextEnds, " has ",
         ends.shape.empty() ? 0 : ends.shape[0], " entries, expected ", n_tokens);
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(n_tokens));
  const auto characters = bytes.values<std::uint8_t>();
  std::int32_t begin = 0;
  for (const std::int32_t end : ends.values<std::int32_t>()) {
    if (end < begin || end > bytes.shape[0])
      fail(ErrorCode::unreadable, "sample ", position, ": a token's text ends at byte ", end,
           " after one that ends at ", begin, ", of ", bytes.shape[0]);
    texts.emplace_back(characters.begin() + begin, characters.begin() + end);
    begin = end;
  }
  return texts;
}

std::string shown_text(std::string_view text) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const auto character = read_utf8(text, at);
    if (character.code == '\n')
      shown += "⏎";
    else if (character.code == '\t')
      shown += "⇥";
    else if (character.valid && !is_unshowable(character.code))
      shown += text.substr(at, character.length);
    else
      for (const char byte : text.substr(at, character.length)) {
        const auto value = static_cast<unsigned char>(byte);
        shown += {'\\', 'x', kDigits[value / 16], kDigits[value % 16]};
      }
    at += character.length;
  }
  return shown;
}

std::vector<std::string> read_shown_texts(const profile::Reader& profile, std::size_t position) {
  std::vector<std::string> texts = read_token_texts(profile, position);
  for (std::string& text : texts) text = shown_text(text);
  return texts;
}

}  // namespace kvatlas::viewer
