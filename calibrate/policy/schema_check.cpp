// SPDX-License-Identifier: Apache-2.0
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "calibrate/policy/document_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

struct ParsedSchema : valijson::Schema {
  ParsedSchema() {
    const json text = json::parse(document_schema());
    valijson::SchemaParser(valijson::SchemaParser::kDraft7)
        .populateSchema(valijson::adapters::NlohmannJsonAdapter(text), *this);
  }
};

const valijson::Schema& schema() {
  static const ParsedSchema parsed;
  return parsed;
}

bool meets(const json& value, valijson::ValidationResults* results) {
  return valijson::Validator().validate(schema(), valijson::adapters::NlohmannJsonAdapter(value),
                                        results);
}

/// The number of values, counted up to `most`.
std::size_t count_values(const json& value, std::size_t most) {
  std::size_t count = 1;
  if (value.is_structured())
    for (const auto& item : value) {
      if (count >= most) break;
      count += count_values(item, most - count);
    }
  return count;
}

}  // namespace

std::string schema_complaint(const json& value) {
  if (meets(value, nullptr)) return "";
  // Asked for the reasons, the validator lists all of them.
  constexpr std::size_t kMost = 100'000;
  if (count_values(value, kMost) >= kMost) return "it does not meet the schema";
  valijson::ValidationResults results;
  meets(value, &results);
  valijson::ValidationResults::Error error, deepest;
  while (results.popError(error))
    if (error.context.size() > deepest.context.size()) deepest = error;
  std::string place;
  const json* found = &value;
  for (const auto& step : deepest.context) {  // "<root>", "[simlayerkv]", "[settings]", "[3]"
    if (step.size() < 2 || step.front() != '[') continue;
    const auto key = step.substr(1, step.size() - 2);
    place += (place.empty() ? "" : ".") + printable(key);
    if (found && found->is_object())
      found = found->contains(key) ? &found->at(key) : nullptr;
    else if (found && found->is_array())
      found = &found->at(std::stoul(key));
  }
  auto reason = printable(deepest.description, 200);
  if (!reason.empty() && reason.back() == '.') reason.pop_back();
  if (found && found->is_primitive()) reason += "; found " + printable(json_text(*found, -1, true));
  return str(place.empty() ? "the document" : place, ": ", reason);
}

}  // namespace kvatlas::calibrate
