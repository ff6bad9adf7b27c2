// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kvatlas::model {
struct CacheCard;
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

/// One sequence in a model's cache.
struct SequenceCache {
  std::string format;  // of its numbers, as "16 bits"
  double bits = 16;    // that a number takes
  struct Layer {
    double tokens = 0, bytes = 0;
  };
  std::vector<Layer> layers = {};  // all of the model's
  double bytes = 0;                // of all, with what pads the pools
};
/// The same as the runtime of this name lays it out, in blocks and pools, in each format that it
/// can have, 16 bits first. Without a name, as much as is needed at 16 and at 8 bits a number.
/// Error(usage) if there is no such runtime, or if it is not known how it lays such a cache out.
using CacheOfSequence = std::function<std::vector<SequenceCache>(
    const model::CacheCard& cache, const std::string& runtime, std::int64_t tokens)>;

/// Adds `kvatlas inspect`, which describes a model without loading its weights, a profile, or a
/// file of one of the `others`.
void add_inspect_command(CLI::App& app, const std::vector<InspectedKind>& others,
                         const CacheOfSequence& of_sequence);

/// Adds `kvatlas merge`, which makes one profile of several.
void add_merge_command(CLI::App& app);

}  // namespace kvatlas
