// SPDX-License-Identifier: Apache-2.0
// How --help looks: what most runs need first, and all of it with --help-all.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace kvatlas {

/// Writes the help of the program and of its commands, in lines that fit a terminal.
std::shared_ptr<CLI::FormatterBase> help_formatter();

/// Lets the command's --help show these options alone, and gives it --help-all, which shows every
/// option and, before the footer, `more`. All options must have been added. It does nothing to an
/// application that has another formatter.
void lead_with(CLI::App& command, const std::vector<std::string>& options, std::string more = {});

/// What lead_with() was given as `more`.
std::string more_help(const CLI::App& command);

}  // namespace kvatlas
