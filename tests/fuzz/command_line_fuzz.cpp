// SPDX-License-Identifier: Apache-2.0
// The words of a command line, a line each. They are taken in and checked; no command runs. Then
// each is read as a size and as a task.
#include <iostream>
#include <sstream>

#include <CLI/CLI.hpp>

#include "analyzer/profile/commands.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "calibrate/inspect/commands.hpp"
#include "calibrate/methods/commands.hpp"
#include "data/commands.hpp"
#include "data/tasks.hpp"
#include "export/commands.hpp"

using namespace kvatlas;

namespace {

std::unique_ptr<CLI::App> commands() {
  auto app = std::make_unique<CLI::App>("kvatlas", "kvatlas");
  add_calibrate_command(*app, nullptr, [](CLI::App&) {});
  add_inspect_command(*app, {}, calibrate::caches_of_sequences());
  add_diff_command(*app);
  add_export_command(*app);
  add_import_command(*app);
  add_merge_command(*app);
  add_tasks_command(*app);
  app->parse_complete_callback([] { throw CLI::Success(); });  // before the command's own
  return app;
}

template <class Read>
void refused_or_read(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::internal) return;
    std::cerr << error.what() << '\n';
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  std::vector<std::string> words;
  for (std::string word; words.size() < 64 && std::getline(lines, word);) words.push_back(word);
  for (const auto& word : words) {
    refused_or_read([&] {
      if (parse_bytes(word) < 0) std::abort();
    });
    refused_or_read([&] { data::task_info(word); });
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 takes them
  try {
    commands()->parse(reversed);
  } catch (const CLI::ParseError&) {
  } catch (const Error&) {
  }
  return 0;
}
