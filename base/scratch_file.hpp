// SPDX-License-Identifier: Apache-2.0
// Room on a disk for what does not fit into memory while a command runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace kvatlas {

/// A file without a name: nothing of it is left behind, however the process ends.
class ScratchFile {
 public:
  /// In the folder that holds `beside`. It takes at most `most` bytes, and at most half of what is
  /// free there. Error(resource) if no file can be made.
  ScratchFile(const std::filesystem::path& beside, std::int64_t most);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::int64_t size() const { return size_; }
  /// Whether so many bytes more may be written.
  bool has_room(std::int64_t bytes) const { return bytes <= most_ - size_; }
  /// Appends bytes; reads some at a place. Error(resource) if the disk is full or fails.
  void append(std::span<const std::byte> bytes);
  void read(std::int64_t place, std::span<std::byte> bytes) const;
  /// Gives back what lies behind the first `size` bytes.
  void cut(std::int64_t size);

 private:
  std::filesystem::path beside_;
  int descriptor_ = -1;
  std::int64_t most_ = 0, size_ = 0;
};

}  // namespace kvatlas
