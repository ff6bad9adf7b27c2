// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <set>

#include <yaml-cpp/yaml.h>

#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

using nlohmann::json;

/// Whether every reader takes the word for text even without quotes. By itself the library also
/// leaves the quotes out of words that YAML 1.1 or 1.2 reads as numbers or truth values.
bool is_plain(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  static const std::set<std::string> values = {"true", "false", "null", "yes", "no",
                                               "on",   "off",   "y",    "n"};
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; }) &&
         !values.contains(text);
}

/// A number or truth value. YAML 1.1 reads 1e-05 as text, and 1.0e-05 as a number.
std::string plain_text(const json& value) {
  std::string text = value.dump();
  const auto exponent = text.find('e');
  if (value.is_number_float() && exponent != text.npos && text.find('.') == text.npos)
    text.insert(exponent, ".0");
  return text;
}

void write(const json& value, YAML::Emitter& out) {
  const bool flat =
      std::none_of(value.begin(), value.end(), [](const json& v) { return v.is_structured(); });
  if (value.is_object()) {
    if (value.empty()) out << YAML::Flow;
    out << YAML::BeginMap;
    for (const auto& [key, member] : value.items()) {
      out << YAML::Key;
      write(key, out);
      out << YAML::Value;
      write(member, out);
    }
    out << YAML::EndMap;
  } else if (value.is_array()) {
    if (flat) out << YAML::Flow;
    out << YAML::BeginSeq;
    for (const auto& item : value) write(item, out);
    out << YAML::EndSeq;
  } else if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (!is_plain(text)) out << YAML::DoubleQuoted;
    out << text;
  } else if (value.is_null()) {
    out << YAML::Null;
  } else {
    out << plain_text(value);
  }
}

}  // namespace

std::string yaml_text(const json& value) {
  YAML::Emitter out;
  out.SetOutputCharset(YAML::EscapeNonAscii);
  write(value, out);
  return out.c_str() + std::string("\n");
}

}  // namespace kvatlas::exporting
