// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <string_view>

#include "base/error.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

using calibrate::DynamicKv;
using calibrate::LazyHeads;
using calibrate::Proximity;
using calibrate::SimLayerKv;
using nlohmann::json;

LazyHeads lazy_heads(const Order& order) {
  const auto heads = static_cast<std::size_t>(order.document.model.kv_heads);
  const auto layers = static_cast<std::size_t>(order.document.model.layers);
  const auto* part = std::get_if<SimLayerKv>(&order.part);
  if (!part) return LazyHeads(layers, std::vector<std::uint8_t>(heads, 1));
  LazyHeads lazy = part->fixed.value();
  for (auto& row : lazy)
    if (row.size() == 1) row.assign(heads, row.front());
  return lazy;
}

std::vector<std::uint8_t> lazy_layers(const Order& order) {
  std::vector<std::uint8_t> lazy;
  for (const auto& row : lazy_heads(order)) lazy.push_back(row.front());
  return lazy;
}

Proximity proximal(const Order& order) { return calibrate::proximal(order.part); }

const std::vector<std::int64_t>& budgets(const Order& order) {
  return std::get<DynamicKv>(order.part).fixed.value();
}

double removed_ratio(std::int64_t keep, std::int64_t length) {
  if (keep >= length) return 0;
  return 1 - (static_cast<double>(keep) + 0.5) / static_cast<double>(length);
}

namespace {

/// Words that YAML 1.1 or 1.2 reads as something else than text.
bool yaml_keyword(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 9> words = {"true", "false", "null", "yes", "no",
                                                     "on",   "off",   "y",    "n"};
  return std::find(words.begin(), words.end(), text) != words.end();
}

/// Quoted as in JSON, in ASCII alone. Beyond 16 bits JSON writes two surrogates, and YAML one code.
std::string yaml_quoted(const json& value) {
  const std::string text = value.dump(-1, ' ', true);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (text.compare(i, 4, "\\ud8") < 0 || text.compare(i, 4, "\\udb") > 0) {
      out += text.substr(i++, 2);
      continue;
    }
    const auto high = std::stoul(text.substr(i + 2, 4), nullptr, 16);
    const auto low = std::stoul(text.substr(i + 8, 4), nullptr, 16);
    char code[16];
    std::snprintf(code, sizeof code, "\\U%08lx", 0x10000 + ((high - 0xd800) << 10) + low - 0xdc00);
    out += code;
    i += 11;
  }
  return out;
}

/// YAML 1.1 reads 1e-05 as text, and 1.0e-05 as a number.
std::string yaml_float(const json& value) {
  std::string text = value.dump();
  const auto exponent = text.find('e');
  if (exponent != text.npos && text.find('.') == text.npos) text.insert(exponent, ".0");
  return text;
}

/// What YAML reads as the text itself and nothing else needs no quotes.
std::string yaml_scalar(const json& value) {
  if (value.is_number_float()) return yaml_float(value);
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  const bool plain =
      !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) &&
      std::all_of(text.begin(), text.end(),
                  [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; }) &&
      !yaml_keyword(text);
  return plain ? text : yaml_quoted(value);
}

void write_yaml(const json& value, std::size_t depth, std::string& out);

void write_member(const json& value, std::size_t depth, std::string& out) {
  const bool flat = value.is_array() && std::none_of(value.begin(), value.end(), [](const json& v) {
                      return v.is_structured();
                    });
  if (flat) {
    out += " [";
    for (std::size_t i = 0; i < value.size(); ++i)
      out += (i == 0 ? "" : ", ") + yaml_scalar(value[i]);
    out += "]\n";
  } else if (value.is_structured() && !value.empty()) {
    out += '\n';
    write_yaml(value, depth + 1, out);
  } else {
    out += ' ' + yaml_scalar(value) + '\n';
  }
}

void write_yaml(const json& value, std::size_t depth, std::string& out) {
  const std::string indent(2 * depth, ' ');
  for (const auto& [key, member] : value.items()) {
    out += indent + (value.is_array() ? "-" : yaml_scalar(json(key)) + ":");
    write_member(member, depth, out);
  }
}

}  // namespace

std::string yaml_text(const json& value) {
  std::string out;
  write_yaml(value, 0, out);
  return out;
}

json layer_types(const std::vector<std::uint8_t>& lazy) {
  json words = json::array();
  for (const auto flag : lazy) words.push_back(flag != 0 ? "sliding_attention" : "full_attention");
  return words;
}

ExportFile config_file(const Order& order, const json& changes) {
  const json placed = placed_in_config(order, changes);
  if (!order.config) return {"config_overrides.json", calibrate::canonical_json(placed)};
  json whole = *order.config;
  whole.merge_patch(placed);
  // Not canonical: 1.0 must stay a float for readers that check types.
  return {"config.json", whole.dump(2) + '\n'};
}

}  // namespace kvatlas::exporting
