// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/plain_text.hpp"
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

constexpr std::size_t kNameWidth = 18, kFormWidth = 11, kVersionsWidth = 15;
constexpr std::size_t kFormsBeside = 6;  // so many fit into 100 columns

}  // namespace

std::string matrix_text() {
  std::string out;
  calibrate::Losses used;
  for (std::size_t first = 0; first < kForms.size(); first += kFormsBeside) {
    const std::size_t end = std::min(first + kFormsBeside, kForms.size());
    const bool is_last = end == kForms.size();
    std::vector<ColumnCell> titles = {{"runtime", kNameWidth}};
    for (std::size_t i = first; i < end; ++i) titles.push_back({kForms[i].column, kFormWidth});
    if (is_last) titles.push_back({"versions", kVersionsWidth});
    out += (first > 0 ? "\n" : "") + row_text(titles);
    for (const auto& runtime : calibrate::runtimes()) {
      std::vector<ColumnCell> cells = {{runtime.name, kNameWidth}};
      for (std::size_t i = first; i < end; ++i) {
        const auto& expression = runtime.form(kForms[i].form);
        cells.push_back({cell(expression), kFormWidth});
        used.insert(expression.losses.begin(), expression.losses.end());
      }
      if (is_last) cells.push_back({runtime.versions, kVersionsWidth});
      out += row_text(cells);
    }
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
