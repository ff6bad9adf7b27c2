// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/str.hpp"
#include "export/exporters.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::Expression;
using calibrate::Fit;
using calibrate::kForms;
using nlohmann::json;

const char* fit_word(Fit fit) {
  return fit == Fit::exact ? "exact" : fit == Fit::approximate ? "approximate" : "impossible";
}

std::string cell(const Expression& expression) {
  if (expression.fit == Fit::impossible) return "-";
  return (expression.fit == Fit::exact ? "E" : "A") +
         (expression.losses.empty() ? "" : " " + loss_letters(expression.losses));
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

std::string matrix_text() {
  std::string out = padded("runtime", 20);
  for (const auto& form : kForms) out += padded(form.column, 13);
  out += "versions\n";
  calibrate::Losses used;
  for (const auto& runtime : calibrate::runtimes()) {
    out += padded(runtime.name, 20);
    for (const auto& form : kForms) {
      const auto& expression = runtime.form(form.form);
      out += padded(cell(expression), 13);
      used.insert(expression.losses.begin(), expression.losses.end());
    }
    out += runtime.versions + '\n';
  }
  out += "\nE: exact.  A: approximate.  -: the runtime has no means for it.  Losses:\n";
  for (const auto loss : used)
    out += str("  ", calibrate::loss_letter(loss), "  ", calibrate::loss_text(loss), '\n');
  return out;
}

json matrix_json() {
  json out = json::array();
  for (const auto& runtime : calibrate::runtimes()) {
    json one = {{"runtime", runtime.name},
                {"title", runtime.title},
                {"versions", runtime.versions},
                {"forms", json::object()},
                {"architectures", json::object()}};
    for (const auto& form : kForms) {
      const auto& expression = runtime.form(form.form);
      one["forms"][form.key] = {{"fit", fit_word(expression.fit)},
                                {"losses", loss_letters(expression.losses)},
                                {"note", expression.note}};
    }
    auto& architectures = one["architectures"];
    for (const auto& name : runtime.architectures)
      architectures[name] = {{"refused", false}, {"note", ""}};
    for (const auto& [name, note] : runtime.notes) architectures[name]["note"] = note;
    for (const auto& [name, why] : runtime.refuses)
      architectures[name] = {{"refused", true}, {"note", why}};
    if (!runtime.refuses_others.empty()) one["other_architectures"] = runtime.refuses_others;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace kvatlas::exporting
