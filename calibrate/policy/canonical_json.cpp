// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "calibrate/policy/document_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

class Writer {
 public:
  void write(const json& value, int depth) {
    if (depth > kDeepestDocument)
      fail(ErrorCode::internal, "the document nests deeper than ", kDeepestDocument, " levels");
    if (value.is_object())
      object(value, depth);
    else if (value.is_array())
      array(value, depth);
    else if (value.is_number_float())
      number(value.get<double>());
    else
      plain(value);
  }

  std::string out;

 private:
  void line(int depth) {
    out += '\n';
    out.append(2 * static_cast<std::size_t>(depth), ' ');
  }

  void object(const json& value, int depth) {
    out += '{';
    const char* separator = "";
    for (auto member = value.begin(); member != value.end(); ++member) {
      out += separator;
      separator = ",";
      line(depth + 1);
      plain(member.key());
      out += ": ";
      in_context(printable(member.key()), [&] { write(*member, depth + 1); });
    }
    if (!value.empty()) line(depth);
    out += '}';
  }

  void array(const json& value, int depth) {
    const bool flat = std::none_of(value.begin(), value.end(),
                                   [](const json& item) { return item.is_structured(); });
    out += '[';
    const char* separator = "";
    for (const auto& item : value) {
      out += separator;
      separator = flat ? ", " : ",";
      if (!flat) line(depth + 1);
      write(item, depth + 1);
    }
    if (!flat) line(depth);
    out += ']';
  }

  void number(double value) {
    if (!std::isfinite(value)) fail(ErrorCode::internal, "a number that is not finite");
    char digits[32];
    // An infinite exponent range is not needed: 9 digits of a finite double stay finite but at its
    // very end.
    std::snprintf(digits, sizeof digits, "%.9g", value == 0 ? 0.0 : value);
    out += digits;
  }

  void plain(const json& value) {
    try {
      out += value.dump();
    } catch (const json::exception&) {
      fail(ErrorCode::internal, "text that is not UTF-8");
    }
  }
};

}  // namespace

std::string canonical_json(const json& value) {
  Writer writer;
  writer.write(value, 0);
  writer.out += '\n';
  return writer.out;
}

}  // namespace kvatlas::calibrate
