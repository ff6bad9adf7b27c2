// SPDX-License-Identifier: Apache-2.0
#include "base/whole_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <set>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace kvatlas {

namespace fs = std::filesystem;

namespace {

/// A file without a name in the folder, whose content goes with the process; -1 where the file
/// system knows none, or where it could not be named later.
int nameless_file(const fs::path& folder) {
  if (::access("/proc/self/fd", X_OK) != 0) return -1;
  return ::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
}

}  // namespace

UnfinishedFile::UnfinishedFile(fs::path path, fs::path temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {
  ::unlink(temporary_.c_str());
  descriptor_ = nameless_file(parent_of(temporary_));
  if (descriptor_ >= 0) return;
  descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_writing(path_, errno);
  temporary_is_there_ = true;
}

UnfinishedFile::~UnfinishedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (temporary_is_there_) ::unlink(temporary_.c_str());
}

UnfinishedFile::UnfinishedFile(UnfinishedFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      temporary_is_there_(std::exchange(other.temporary_is_there_, false)) {}

void UnfinishedFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor_, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_writing(path_, errno);
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

void UnfinishedFile::finish() {
  if (::fsync(descriptor_) != 0) fail_writing(path_, errno);
}

void UnfinishedFile::take_name(bool force) {
  if (!temporary_is_there_) {
    const std::string file = str("/proc/self/fd/", descriptor_);
    const fs::path& name = force ? temporary_ : path_;
    if (::linkat(AT_FDCWD, file.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      if (!force && errno == EEXIST) fail_exists(path_);
      fail_writing(path_, errno);
    }
    if (!force) return;
    temporary_is_there_ = true;
  }
  const char *from = temporary_.c_str(), *to = path_.c_str();
  bool renamed = false;
  if (!force) {
    renamed = ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0;
    if (!renamed && errno == EEXIST) fail_exists(path_);
    // Some file systems know no renameat2: there the plain rename must do.
    if (!renamed && errno != EINVAL && errno != ENOSYS) fail_writing(path_, errno);
  }
  if (!renamed && ::rename(from, to) != 0) fail_writing(path_, errno);
  temporary_is_there_ = false;
}

namespace {

/// The file that a name stands for: what a link leads to.
fs::path behind_links(const fs::path& path) {
  std::error_code problem;
  const fs::path target = fs::is_symlink(path, problem) ? fs::canonical(path, problem) : path;
  return problem ? path : target;
}

/// Refuses to write where something is that no output of ours may replace.
void check_replaced(const fs::path& path, bool force) {
  std::error_code problem;
  const fs::file_status there = fs::status(path, problem);
  if (!fs::exists(there)) return;
  if (!fs::is_regular_file(there))
    fail(ErrorCode::usage, quoted(path.string(), 400), " is ",
         fs::is_directory(there) ? "a folder" : "no plain file",
         ": give the name of a file to write");
  if (!force) fail_exists(path);
  char begin[8] = {};
  std::ifstream(path, std::ios::binary).read(begin, sizeof begin);
  const std::string_view magic(begin, 4);
  if (magic == "\x89HDF" || magic == "GGUF")
    fail(ErrorCode::usage, quoted(path.string(), 400), " is a ",
         magic == "GGUF" ? "model" : "profile", ", which is not replaced: choose another name");
}

}  // namespace

void write_whole(std::string_view text, const fs::path& path, bool force) {
  const WholeFile file[] = {{path, text}};
  write_whole_files(file, force);
}

void write_whole_files(std::span<const WholeFile> files, bool force) {
  std::vector<UnfinishedFile> written;
  for (const auto& file : files) {
    check_replaced(file.path, force);
    const fs::path path = behind_links(file.path);
    auto& unfinished = written.emplace_back(path, path.string() + str(".", ::getpid(), ".tmp"));
    unfinished.write(file.text);
    unfinished.finish();
  }
  for (auto& file : written) file.take_name(force);
  std::set<fs::path> folders;
  for (const auto& file : files) folders.insert(parent_of(file.path));
  for (const auto& folder : folders) sync_folder(folder);
}

void check_output(const fs::path& path, bool force) {
  check_replaced(path, force);
  check_folder_of(path);
}

void check_folder_of(const fs::path& path) {
  std::error_code problem;
  const fs::path folder = parent_of(path);
  if (!fs::is_directory(folder, problem))
    fail(ErrorCode::resource, "there is no folder ", quoted(folder.string(), 400), " to write ",
         quoted(path.filename().string(), 400), " into");
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_writing(path, errno);
}

void fail_exists(const fs::path& path) {
  fail(ErrorCode::usage, quoted(path.string(), 400), " is there already; --force replaces it");
}

void fail_writing(const fs::path& path, int reason) {
  fail(ErrorCode::resource, "writing ", quoted(path.string(), 400),
       " failed: ", std::strerror(reason));
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == EACCES) return;
    fail_writing(folder, errno);
  }
  const int reason = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (reason != 0 && reason != EINVAL) fail_writing(folder, reason);
}

}  // namespace kvatlas
