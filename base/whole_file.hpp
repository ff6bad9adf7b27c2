// SPDX-License-Identifier: Apache-2.0
// Writing files so that nobody ever sees half of one. A file is written without a name, and is
// whole and on the disk before it takes its own. A process that is killed meanwhile leaves nothing;
// where the file system knows no files without a name, it leaves one of a temporary name.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace kvatlas {

struct WholeFile {
  std::filesystem::path path;
  std::string_view text;
};

/// Writes the text as the file at `path`; its temporary name is "PATH.PID.tmp". What a link leads
/// to is written in its place. Error(usage) if a file is there already and `force` is not set, and
/// if it is a folder, a device, a model or a profile; Error(resource), with the system's reason, if
/// it cannot be written. What was there before stays as it was then.
void write_whole(std::string_view text, const std::filesystem::path& path, bool force);
/// The same for several files: all of them are on the disk before the first takes its name.
void write_whole_files(std::span<const WholeFile> files, bool force);

/// For a command that is about to begin with long work. Error(usage) as above; Error(resource) as
/// below.
void check_output(const std::filesystem::path& path, bool force);
/// Error(resource) if there is no folder to write the file into, or if nothing may be written
/// there.
void check_folder_of(const std::filesystem::path& path);

/// Error(usage): a file is in the way, and --force was not given.
[[noreturn]] void fail_exists(const std::filesystem::path& path);
/// Error(resource): `reason` is what errno said when writing the file failed.
[[noreturn]] void fail_writing(const std::filesystem::path& path, int reason);

/// One such file, for writers that do not have all of it as text.
class UnfinishedFile {
 public:
  /// Makes a new file, at `temporary` if it needs a name, so that neither a link nor a file of
  /// somebody else is written through. Removes what a killed process left there.
  UnfinishedFile(std::filesystem::path path, std::filesystem::path temporary);
  /// Removes the temporary file, if it has not taken its name.
  ~UnfinishedFile();
  UnfinishedFile(UnfinishedFile&& other) noexcept;
  UnfinishedFile& operator=(UnfinishedFile&&) = delete;

  /// Open for reading and writing.
  int descriptor() const { return descriptor_; }
  void write(std::string_view text);
  /// Waits until the content is on the disk.
  void finish();
  /// Without `force`, a file that another process wrote there meanwhile stays: Error(usage).
  void take_name(bool force);

 private:
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
  bool temporary_is_there_ = false;
};

/// The folder that holds a file.
std::filesystem::path parent_of(const std::filesystem::path& path);
/// Waits until the names in a folder are on the disk, so that they outlast a power cut. A folder
/// that cannot be synced, because it may not be read or its file system does not know how, is
/// passed over.
void sync_folder(const std::filesystem::path& folder);

}  // namespace kvatlas
