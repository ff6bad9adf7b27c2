// SPDX-License-Identifier: Apache-2.0
#include "base/help.hpp"

#include <map>
#include <sstream>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/plain_text.hpp"
#include "base/str.hpp"

namespace kvatlas {
namespace {

constexpr std::size_t kColumn = 30, kWidth = 100;  // where descriptions begin, and lines end

/// Where a long list of all values stands in what the help says of an option; 0, 0: nowhere.
std::pair<std::size_t, std::size_t> long_list(const std::string& text) {
  const auto from = text.find(":{"), to = text.find('}');
  if (from == text.npos || to == text.npos || to < from + 60) return {0, 0};
  return {from, to + 1};
}

class HelpFormatter : public CLI::Formatter {
 public:
  struct Lead {
    std::vector<const CLI::Option*> options;
    std::size_t all = 0;
    std::string more;
  };
  std::map<const CLI::App*, Lead> leads;

  HelpFormatter() { column_width(kColumn); }

  const Lead* lead_of(const CLI::App* app) const {
    const auto found = leads.find(app);
    return found == leads.end() ? nullptr : &found->second;
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const Lead* lead = lead_of(app);
    if (!lead) return CLI::Formatter::make_help(app, std::move(name), CLI::AppFormatMode::Normal);
    const bool all = mode != CLI::AppFormatMode::Normal;
    return str(
        make_description(app), make_usage(app, name), make_positionals(app),
        all ? make_groups(app, mode)
            : make_group(str("What most runs need (--help-all shows all ", lead->all, " options)"),
                         false, lead->options),
        all && !lead->more.empty() ? "\n" + lead->more : "", "\n", make_footer(app));
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    const auto [from, to] = long_list(text);
    text.erase(from, to - from);
    // "..." would promise that the words behind the value are taken too.
    if (const auto dots = text.find(" ..."); dots != text.npos && option->nonpositional())
      text.erase(dots, 4);
    return text;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string all = CLI::Formatter::make_option_opts(option);
    const auto [from, to] = long_list(all);
    std::string list = all.substr(from, to - from);
    for (std::size_t at = 0; (at = list.find(',', at)) != list.npos; at += 2)
      list.insert(at + 1, " ");
    return join(
        wrapped_lines(
            str(CLI::Formatter::make_option_desc(option), list.empty() ? "" : " (one of ",
                list.empty() ? "" : list.substr(2, list.size() - 3), list.empty() ? "" : ")"),
            kWidth - kColumn),
        "\n");
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

void lead_with(CLI::App& command, const std::vector<std::string>& options, std::string more) {
  auto* formatter = dynamic_cast<HelpFormatter*>(command.get_formatter().get());
  if (!formatter) return;
  command.set_help_all_flag("--help-all", "print every option and exit");
  auto& lead = formatter->leads[&command];
  for (const auto& name : options) lead.options.push_back(command.get_option(name));
  lead.all =
      command.get_options([](const CLI::Option* one) { return !one->get_group().empty(); }).size();
  lead.more = std::move(more);
}

std::string more_help(const CLI::App& command) {
  const auto* formatter = dynamic_cast<const HelpFormatter*>(command.get_formatter().get());
  const auto* lead = formatter ? formatter->lead_of(&command) : nullptr;
  return lead ? lead->more : "";
}

}  // namespace kvatlas
