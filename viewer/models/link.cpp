// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/link.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/models/head_filter.hpp"

namespace kvatlas::viewer {

namespace {

constexpr std::string_view kScheme = "kvatlas:";
constexpr std::size_t kLongest = 8192;
/// No sample has more tokens, no model more layers.
constexpr std::int64_t kMost = std::int64_t{1} << 40;

bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') ||
         std::string_view("-_./~").find(letter) != std::string_view::npos;
}

std::string escaped(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (is_plain(letter))
      out += letter;
    else
      (out += '%') += {digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') fail(ErrorCode::usage, "the link has a zero byte");
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    const auto digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2 || byte == 0)
      fail(ErrorCode::usage, "the link has ", quoted(text.substr(i, 3)),
           ", expected % and two hexadecimal digits");
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::int64_t number_of(std::string_view text, std::string_view part) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > kMost)
    fail(ErrorCode::usage, "the link has ", quoted(part), ", expected a whole number in it");
  return number;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto next = text.find(at);
    parts.push_back(text.substr(0, next));
    if (next == text.npos) return parts;
    text.remove_prefix(next + 1);
  }
}

template <std::size_t N>
std::array<std::int64_t, N> whole_numbers(std::string_view value, std::string_view part) {
  const auto texts = split(value, ',');
  if (texts.size() != N)
    fail(ErrorCode::usage, "the link has ", quoted(part), ", expected ", N, " numbers");
  std::array<std::int64_t, N> numbers{};
  for (std::size_t i = 0; i < N; ++i) numbers[i] = number_of(texts[i], part);
  return numbers;
}

void read_at(Place& place, std::string_view value, std::string_view part) {
  const auto halves = split(value, '.');
  if (halves.size() > 2 || halves[0].size() < 2 || halves[0][0] != 'L' ||
      (halves.size() == 2 && (halves[1].size() < 2 || halves[1][0] != 'H')))
    fail(ErrorCode::usage, "the link has ", quoted(part), ", expected a place such as at=L12.H3");
  place.layer = number_of(halves[0].substr(1), part);
  place.head = halves.size() == 2 ? number_of(halves[1].substr(1), part) : 0;
}

void read_part(Place& place, std::string_view part) {
  const auto equals = part.find('=');
  const auto name = part.substr(0, equals);
  const auto value = equals == part.npos ? std::string_view() : part.substr(equals + 1);
  if (name == "screen") {
    place.screen = unescaped(value);
    const auto is_ascii = [](char letter) { return static_cast<unsigned char>(letter) < 0x80; };
    if (!std::all_of(place.screen.begin(), place.screen.end(), is_ascii))
      fail(ErrorCode::usage, "the link has ", quoted(part), ", expected the name of a screen");
  }
  if (name == "at") read_at(place, value, part);
  if (name == "sample") place.sample = number_of(value, part);
  if (name == "q") place.query = number_of(value, part);
  if (name == "k") place.key = number_of(value, part);
  if (name == "reduction") place.maximum = value == "max";
  if (name == "region") place.region = whole_numbers<4>(value, part);
  if (name == "tokens") {
    place.tokens = whole_numbers<2>(value, part);
    if ((*place.tokens)[0] >= (*place.tokens)[1])
      fail(ErrorCode::usage, "the link has ", quoted(part), ", expected the lesser number first");
  }
  if (name == "filter") {
    place.filter = unescaped(value);
    const HeadFilter understood(place.filter);  // or Error
  }
}

}  // namespace

std::string link_text(const Link& link) {
  const Place& place = link.place;
  std::string text = str(kScheme, escaped(link.file), "#");
  if (!place.screen.empty()) text += str("screen=", escaped(place.screen), "&");
  text += str("at=L", place.layer, ".H", place.head);
  if (place.sample >= 0) text += str("&sample=", place.sample);
  if (place.query >= 0) text += str("&q=", place.query);
  if (place.key >= 0) text += str("&k=", place.key);
  if (place.region) {
    const auto& region = *place.region;
    text += str("&region=", region[0], ",", region[1], ",", region[2], ",", region[3]);
  }
  if (place.tokens) text += str("&tokens=", (*place.tokens)[0], ",", (*place.tokens)[1]);
  if (!place.filter.empty()) text += str("&filter=", escaped(place.filter));
  if (place.maximum) text += "&reduction=max";
  return text;
}

bool is_link(const std::string& text) { return text.rfind(kScheme, 0) == 0; }

Link parse_link(const std::string& text) {
  if (!is_link(text) || text.size() > kLongest)
    fail(ErrorCode::usage, "a link begins with ", quoted(kScheme), " and is at most ", kLongest,
         " letters long");
  const std::string_view rest = std::string_view(text).substr(kScheme.size());
  const auto hash = rest.find('#');
  Link link;
  link.file = unescaped(rest.substr(0, hash));
  if (hash != rest.npos)
    for (const auto part : split(rest.substr(hash + 1), '&')) read_part(link.place, part);
  return link;
}

}  // namespace kvatlas::viewer
