// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>

#include "export/exporters.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::Expression;
using calibrate::Fit;
using calibrate::kForms;
using nlohmann::json;

constexpr std::array<const char*, kForms> kColumns = {"lazy layers", "by input",  "lazy heads",
                                                      "PoD",         "DynamicKV", "LagKV"};
constexpr std::array<const char*, kForms> kKeys = {"lazy_layers", "lazy_by_input", "lazy_heads",
                                                   "pod",         "dynamickv",     "lagkv"};

const char* fit_word(Fit fit) {
  return fit == Fit::exact ? "exact" : fit == Fit::approximate ? "approximate" : "impossible";
}

std::string cell(const Expression& expression) {
  if (expression.fit == Fit::impossible) return "-";
  return (expression.fit == Fit::exact ? "E" : "A") +
         (expression.losses.empty() ? "" : " " + expression.losses);
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

std::string matrix_text() {
  std::string out = padded("runtime", 20);
  for (const char* column : kColumns) out += padded(column, 13);
  out += "versions\n";
  std::string used;
  for (const auto& runtime : calibrate::runtimes()) {
    out += padded(runtime.name, 20);
    for (const auto& expression : runtime.forms) {
      out += padded(cell(expression), 13);
      used += expression.losses;
    }
    out += runtime.versions + '\n';
  }
  out += "\nE: exact.  A: approximate.  -: the runtime has no means for it.  Losses:\n";
  for (char letter = 'a'; letter <= 'z'; ++letter)
    if (used.find(letter) != std::string::npos)
      out += std::string("  ") + letter + "  " + calibrate::loss_text(letter) + '\n';
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
    for (std::size_t i = 0; i < kForms; ++i) {
      const auto& expression = runtime.forms[i];
      one["forms"][kKeys[i]] = {{"fit", fit_word(expression.fit)},
                                {"losses", expression.losses},
                                {"note", expression.note}};
    }
    for (const auto& note : runtime.architectures)
      one["architectures"][note.architecture] = {{"refused", note.refused}, {"note", note.text}};
    if (!runtime.refuses_others.empty()) one["other_architectures"] = runtime.refuses_others;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace kvatlas::exporting
