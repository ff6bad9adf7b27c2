// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kvatlas {

/// A kind of file that `kvatlas inspect` shows besides models and profiles.
struct InspectedKind {
  std::function<bool(const std::string& path)> is_one;
  std::function<void(const std::string& path, bool as_json)> inspect;  // prints
  /// What it takes beside --json, added to the command line; may be empty.
  std::function<void(CLI::App& command)> add_options = {};
};

/// `kvatlas inspect`: a model's card, without loading its weights, a profile's, or one of `others`.
void add_inspect_command(CLI::App& app, const std::vector<InspectedKind>& others = {});

/// `kvatlas merge`: several profiles into one.
void add_merge_command(CLI::App& app);

}  // namespace kvatlas
