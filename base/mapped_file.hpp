// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace kvatlas {

/// A file mapped for reading. If the file shrinks or a page cannot be read while it is mapped, the
/// pages read as zeros instead of ending the process, and require_intact() says so: call it after
/// each use. Movable; thread-safe for reading.
class MappedFile {
 public:
  /// Error(unreadable), with the path, if there is no such file, if it may not be read, or if it is
  /// a folder or anything else that is no regular file.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const;
  const std::filesystem::path& path() const;

  /// Throws Error(unreadable) if the file was cut, changed size or failed to read since it was
  /// opened.
  void require_intact() const;

  /// Tell the operating system that a part of bytes() will be read soon, or that it may be dropped
  /// from memory.
  void will_need(std::span<const std::byte> part) const;
  void release(std::span<const std::byte> part) const;

 private:
  struct State;
  explicit MappedFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvatlas
