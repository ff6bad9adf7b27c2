// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "reference/reference.hpp"

namespace kvatlas::reference {
namespace {

/// Text that roff takes as it is.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
      out += str("\\&", c);
    else
      out += c;
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + plain(text) + "\\fR"; }

/// Lines as they are, as for examples.
std::string as_written(const std::string& text) {
  std::istringstream lines(text);
  std::string out = ".PP\n.nf\n";
  for (std::string line; std::getline(lines, line);) out += plain(line) + "\n";
  return out + ".fi\n";
}

std::string option_entry(const Option& option) {
  std::string names = join(option.names, ", ", bold);
  if (!option.value.empty())
    names += (names.empty() ? "" : " ") + italic(option.value) +
             (option.repeats && !option.with_commas ? " ..." : "");
  std::string notes;
  const auto note = [&](const std::string& text) { notes += (notes.empty() ? "" : "; ") + text; };
  if (option.required) note("required");
  // Only where the sentence does not list them itself.
  std::string listed;
  bool is_news = false;
  for (const auto& value : option.values) {
    listed += (listed.empty() ? "" : ", ") + value;
    is_news |= option.text.find(value) == option.text.npos;
  }
  if (is_news && option.value != "DEVICE") note("one of " + listed);
  if (!option.range.empty()) note(option.range);
  if (!option.standard.empty()) note("default: " + option.standard);
  return ".TP\n" + names + "\n" + plain(option.text) +
         (notes.empty() ? "" : plain(" (" + notes + ")")) + "\n";
}

std::string option_entries(const Command& command) {
  std::string out, group;
  for (const auto& option : command.options) {
    if (option.group != group && option.group != "Options" && option.group != "Positionals")
      out += ".PP\n" + bold(option.group + ":") + "\n";
    group = option.group;
    out += option_entry(option);
  }
  return out;
}

std::string usage(const Command& command) {
  std::string out = bold(command.name);
  if (!command.options.empty()) out += " [" + italic("options") + "]";
  for (const auto& option : command.options)
    if (option.names.empty()) out += " " + italic(option.value) + (option.repeats ? " ..." : "");
  if (!command.commands.empty()) out += " " + italic("command");
  return out + "\n";
}

std::string command_entries(const Command& command) {
  std::string out;
  for (const auto& part : command.commands) {
    out += ".SS " + plain(part.name) + "\n" + plain(part.text) + ".\n.PP\n" + usage(part) +
           option_entries(part);
    if (!part.footer.empty()) out += as_written(part.footer);
    out += command_entries(part);
  }
  return out;
}

constexpr const char* kExitStatus =
    ".SH EXIT STATUS\n"
    ".TP\n0\nDone.\n"
    ".TP\n1\nIt failed: not supported, not enough memory or room, or an error of the program.\n"
    ".TP\n2\nThe command line asks for what cannot be.\n"
    ".TP\n3\nA file cannot be read, or is not what it should be.\n"
    ".TP\n4\nDone, and the answer is no: a policy that loses too much, a change, nothing that "
    "fits.\n"
    ".TP\n130\nInterrupted.\n";

}  // namespace

std::string man_page(const Command& program, const std::string& version) {
  return ".TH KVATLAS 1 \"\" \"kvatlas " + plain(version) +
         "\" \"User Commands\"\n"
         ".SH NAME\nkvatlas \\- profiles a language model's attention and calibrates KV\\-cache "
         "policies\n"
         ".SH SYNOPSIS\n" +
         usage(program) + ".SH DESCRIPTION\n" + plain(program.text) + ".\n.PP\n" +
         plain(program.footer) + "\n.SH OPTIONS\n" + option_entries(program) + ".SH COMMANDS\n" +
         command_entries(program) + kExitStatus;
}

}  // namespace kvatlas::reference
