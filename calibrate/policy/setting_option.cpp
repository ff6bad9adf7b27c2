// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/setting_option.hpp"

#include <cstdlib>

#include "base/options.hpp"
#include "base/str.hpp"
#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {
namespace {

struct Limit {
  CLI::Option* option;

  void operator()(const WholeRange& range) const {
    option->check(CLI::Range(range.least, range.most));
    if (!range.odd) return;
    option->check(
        [](const std::string& text) {
          return std::strtoll(text.c_str(), nullptr, 0) % 2 == 0 ? "Value " + text + " must be odd"
                                                                 : "";
        },
        "");
  }
  void operator()(const NumberRange& range) const {
    option->check(real_range(range.least, range.most));
  }
  void operator()(const OneOf& choice) const {
    option->check(
        CLI::IsMember(std::vector<std::string>(choice.words.begin(), choice.words.end())));
  }
  template <class Other>
  void operator()(const Other&) const {}
};

}  // namespace

CLI::Option* limit_to_setting(CLI::Option* option, const char* part, const char* key) {
  const Setting& setting = setting_named(part, key);
  std::visit(Limit{option}, setting.allowed);
  if (option->get_description().empty()) option->description(setting.meaning);
  return option;
}

CLI::Option* as_setting(CLI::Option* option, const char* part, const char* key) {
  return limit_to_setting(option, part, key)->default_str(default_text(part, key));
}

}  // namespace kvatlas::calibrate
