// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kvatlas {

/// The words of the command line of `kvatlas inspect`.
struct InspectOptions {
  bool as_json = false;
  std::int64_t context = 0, new_tokens = 0, batch = 1;  // context 0: memory is not asked for
  std::string memory, weights, model, runtime;

  /// Error(usage) if memory is asked for without the length that it is of.
  void check() const;
};

/// A kind of file that `kvatlas inspect` shows besides models and profiles.
struct InspectedKind {
  std::function<bool(const std::string& path)> is_one;
  std::function<void(const std::string& path, const InspectOptions& options)> inspect;
};

/// Adds `kvatlas inspect`, which describes a model without loading its weights, a profile, or a
/// file of one of the `others`.
void add_inspect_command(CLI::App& app, const std::vector<InspectedKind>& others = {});

/// Adds `kvatlas merge`, which makes one profile of several.
void add_merge_command(CLI::App& app);

}  // namespace kvatlas
