// SPDX-License-Identifier: Apache-2.0
// Prompts are read once a command: what reading them gave is kept for its later rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/scratch_file.hpp"
#include "calibrate/simulate/read_prompt.hpp"

namespace kvatlas::calibrate {

class PromptStore {
 public:
  /// How much may be kept, and beside which file what does not fit into memory is kept on the disk.
  struct Room {
    std::int64_t memory = 0, disk = 0;
    std::filesystem::path beside = {};
  };
  explicit PromptStore(Room room) : room_(std::move(room)) {}

  /// What is equal for equal readings: the prompt's tokens, and that of the first step.
  using Key = std::vector<std::int64_t>;
  /// None if it is not there, or lacks some of what is needed.
  std::shared_ptr<const ReadPrompt> find(const capture::Engine& engine, const Key& key,
                                         const Needs& needs);
  /// Keeps the prompt in memory, else on the disk, else not at all.
  void keep(Key key, std::shared_ptr<const ReadPrompt> prompt);

  /// Why the disk cannot be used, if it could not; it is then not tried again.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Kept {
    std::shared_ptr<const ReadPrompt> in_memory;
    std::int64_t place = 0;  // else where on the disk
  };
  void keep_on_disk(Key key, const ReadPrompt& prompt);

  Room room_;
  std::map<Key, Kept> kept_;
  std::optional<ScratchFile> file_;
  std::string trouble_;
};

}  // namespace kvatlas::calibrate
