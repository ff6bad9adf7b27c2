// SPDX-License-Identifier: Apache-2.0
// The files that repeat the table of settings for readers other than this program: the JSON Schema
// of documents and the table of the Python package. Every name, bound, default and sentence in them
// is the table's. With KVATLAS_WRITE_GOLDEN=1 the files are written anew, and the tests fail so
// that somebody looks at what has changed.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "calibrate/policy/policy_settings.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::calibrate::published_settings_tests {
namespace {

using json = nlohmann::ordered_json;

/// JSON with everything in one line that fits into a line of 120 characters.
std::string laid_out(const json& value, std::size_t indent = 0, std::size_t before = 0) {
  if (!value.is_structured()) return value.dump();
  const auto list = [&](const std::string& first, const std::string& between,
                        const std::string& last, bool flat) {
    std::string out;
    for (const auto& [key, item] : value.items()) {
      out += out.empty() ? first : between;
      const auto name = value.is_object() ? json(key).dump() + ": " : "";
      out += name + laid_out(item, flat ? 0 : indent + 2, flat ? 0 : name.size());
    }
    return (value.is_object() ? "{" : "[") + out + (out.empty() ? "" : last) +
           (value.is_object() ? "}" : "]");
  };
  auto line = list("", ", ", "", true);
  if (line.find('\n') == line.npos && indent + before + line.size() < 120) return line;
  const auto next = "\n" + std::string(indent + 2, ' ');
  return list(next, "," + next, "\n" + std::string(indent, ' '), false);
}

/// Without a decimal point where it needs none.
json number(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? json(whole) : json(value);
}

/// What a document's setting must be, as JSON Schema says it.
struct AsSchema {
  json operator()(const WholeRange& range) const {
    return {{"type", "integer"}, {"minimum", range.least}, {"maximum", range.most}};
  }
  json operator()(const NumberRange& range) const {
    return {{"type", "number"}, {"minimum", number(range.least)}, {"maximum", number(range.most)}};
  }
  // The ends of 64 bits are beyond what many readers of JSON can compare.
  json operator()(AnySeed) const { return {{"type", "integer"}}; }
  json operator()(YesOrNo) const { return {{"type", "boolean"}}; }
  json operator()(const TextLength& length) const {
    json out = {{"type", "string"}, {"maxLength", length.most}};
    if (length.least > 0) out["minLength"] = length.least;
    return out;
  }
  json operator()(const OneOf& choice) const {
    return {{"type", "string"}, {"enum", choice.words}};
  }
};

json setting_schema(const Setting& setting) {
  json out = std::visit(AsSchema{}, setting.allowed);
  out["description"] = setting.meaning;
  return out;
}

/// Baselines share a section: their settings of one name together.
void widen(json& there, const json& other) {
  if (there.contains("minimum")) {
    there["minimum"] = std::min(there["minimum"], other["minimum"]);
    there["maximum"] = std::max(there["maximum"], other["maximum"]);
  }
  auto& sentence = there["description"].get_ref<std::string&>();
  const auto& another = other["description"].get_ref<const std::string&>();
  if (sentence.find(another) == sentence.npos) sentence += "; or: " + another;
}

json settings_schema(const std::string& section) {
  json out = json::object();
  for (const auto& part : part_names()) {
    const bool belongs =
        section == "baseline" ? section_name(part.standard) == section : part.name == section;
    if (!belongs && !(section == "heads" && part.name == "streaming")) continue;
    for (const auto& setting : part.settings) {
      const auto schema = setting_schema(setting);
      if (out.contains(setting.key))
        widen(out[setting.key], schema);
      else
        out[setting.key] = schema;
    }
  }
  return out;
}

json baseline_names() {
  json names = json::array();
  for (const auto& part : part_names())
    if (section_name(part.standard) == "baseline") names.push_back(part.name);
  return names;
}

/// What the Python package needs to know of a setting.
struct AsTable {
  json operator()(const WholeRange& range) const {
    json out = {{"kind", "whole"}, {"least", range.least}, {"most", range.most}};
    if (range.odd) out["odd"] = true;
    return out;
  }
  json operator()(const NumberRange& range) const {
    return {{"kind", "number"}, {"least", number(range.least)}, {"most", number(range.most)}};
  }
  json operator()(AnySeed) const {
    return {{"kind", "whole"}, {"least", 0}, {"most", std::numeric_limits<std::uint64_t>::max()}};
  }
  json operator()(YesOrNo) const { return {{"kind", "flag"}}; }
  json operator()(const TextLength& length) const {
    return {{"kind", "text"}, {"least", length.least}, {"most", length.most}};
  }
  json operator()(const OneOf& choice) const { return {{"kind", "word"}, {"words", choice.words}}; }
};

json settings_table() {
  json out = json::object();
  for (const auto& part : part_names())
    for (const auto& setting : part.settings) {
      json& row = out[part.name][setting.key];
      row = std::visit(AsTable{}, setting.allowed);
      row["default"] = setting.get(part.standard);
    }
  return out;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_file(const char* name, const json& content) {
  const auto path = kvatlas::testing_support::source_folder() / name;
  const auto expected = laid_out(content) + "\n";
  if (std::getenv("KVATLAS_WRITE_GOLDEN")) {
    std::ofstream(path, std::ios::binary) << expected;
    FAIL() << "written anew: look at " << name << ", then run without KVATLAS_WRITE_GOLDEN";
  }
  EXPECT_EQ(text_of(path), expected);
}

TEST(PublishedSettings, SchemaIsTheTables) {
  const char* const name = "calibrate/policy/policy_schema.json";
  json schema = json::parse(text_of(kvatlas::testing_support::source_folder() / name));
  for (auto& [section, about] : schema["properties"].items())
    if (about.contains("properties") && about["properties"].contains("settings"))
      about["properties"]["settings"]["properties"] = settings_schema(section);
  schema["properties"]["baseline"]["properties"]["name"]["enum"] = baseline_names();
  expect_file(name, schema);
}

TEST(PublishedSettings, PythonsTable) {
  expect_file("export/python/kvatlas_transformers/settings.json", settings_table());
}

TEST(PublishedSettings, DefaultsAreAllowed) {
  for (const auto& part : part_names())
    for (const auto& setting : part.settings) {
      const auto value = setting.get(part.standard);
      EXPECT_TRUE(value.is_null() || is_allowed(setting.allowed, value))
          << part.name << " " << setting.key;
    }
}

}  // namespace
}  // namespace kvatlas::calibrate::published_settings_tests
