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
  std::function<void(const std::string& path, bool as_json)> inspect;  // prints what is in it
  /// Adds the options that it takes besides --json; may be empty.
  std::function<void(CLI::App& command)> add_options = {};
};

/// Adds `kvatlas inspect`, which describes a model without loading its weights, a profile, or a
/// file of one of the `others`.
void add_inspect_command(CLI::App& app, const std::vector<InspectedKind>& others = {});

/// Adds `kvatlas merge`, which makes one profile of several.
void add_merge_command(CLI::App& app);

}  // namespace kvatlas
