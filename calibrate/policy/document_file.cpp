// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "calibrate/policy/document_impl.hpp"
#include "calibrate/policy/policy_files.hpp"

namespace kvatlas::calibrate {
namespace {

namespace fs = std::filesystem;

/// A file of this process, gone again unless it takes its name.
class Temporary {
 public:
  explicit Temporary(const fs::path& path)
      : target_(path), path_(path.string() + str(".", ::getpid(), ".tmp")) {
    ::unlink(path_.c_str());  // of a killed process of the same number
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail_writing(errno);
  }
  ~Temporary() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  Temporary(Temporary&& other) noexcept
      : target_(std::move(other.target_)),
        path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        renamed_(std::exchange(other.renamed_, true)) {}
  Temporary& operator=(Temporary&&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = ::write(descriptor_, text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail_writing(errno);
      text.remove_prefix(static_cast<std::size_t>(done));
    }
    if (::fsync(descriptor_) != 0) fail_writing(errno);
    ::close(std::exchange(descriptor_, -1));  // there may be many
  }

  /// Without `force` another process may have taken the name meanwhile, and keeps it.
  void take_name(bool force) {
    if (!force &&
        ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0) {
      renamed_ = true;
      return;
    }
    if (!force && errno == EEXIST) fail_exists(target_);
    // Where the file system knows no renameat2, force or not.
    if (!force && errno != EINVAL && errno != ENOSYS) fail_writing(errno);
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail_writing(errno);
    renamed_ = true;
  }

 private:
  [[noreturn]] void fail_writing(int reason) const {
    fail(ErrorCode::resource, "writing ", quoted(target_.string(), 400),
         " failed: ", std::strerror(reason));
  }

  fs::path target_;
  std::string path_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

/// So that the names outlast a power cut. What cannot be synced is written all the same.
void sync_folder_of(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

Document read_document(const fs::path& path) {
  const auto text = read_text_file(path, kLargestDocument);
  return in_context(printable(path.string(), 400), [&] { return parse_document(text); });
}

fs::path search_journal(const fs::path& output) {
  return fs::path(output).replace_extension(".search.jsonl");
}

void fail_exists(const fs::path& path) {
  fail(ErrorCode::usage, quoted(path.string(), 400), " is there already; --force replaces it");
}

void write_document(const Document& document, const fs::path& path, bool force) {
  write_whole(document_text(document), path, force);
}

void write_whole(std::string_view text, const fs::path& path, bool force) {
  const WholeFile file[] = {{path, text}};
  write_whole_files(file, force);
}

void write_whole_files(std::span<const WholeFile> files, bool force) {
  std::vector<Temporary> written;
  for (const auto& file : files) {
    if (!force && fs::exists(file.path)) fail_exists(file.path);
    written.emplace_back(file.path).write(file.text);
  }
  for (auto& file : written) file.take_name(force);
  std::set<fs::path> folders;
  for (const auto& file : files)
    if (folders.insert(file.path.parent_path()).second) sync_folder_of(file.path);
}

}  // namespace kvatlas::calibrate
