// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "analyzer/profile/workplace_impl.hpp"
#include "base/error.hpp"
#include "base/whole_file.hpp"

namespace kvatlas::profile {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";
constexpr const char* kMark = "begun-anew";
constexpr int kDigits = 6;

/// 12 for "000012.h5".
std::optional<std::int64_t> index_of(const std::string& name) {
  const auto dot = name.find('.');
  if (dot == name.npos || dot < kDigits || name.substr(dot) != ".h5") return std::nullopt;
  std::int64_t index = 0;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + dot, index);
  if (problem != std::errc() || end != name.data() + dot || index < 0) return std::nullopt;
  return index;
}

template <class Visit>
void for_each_name(const fs::path& folder, const Visit& visit) {
  std::error_code problem;
  for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end;
       entry.increment(problem))
    visit(entry->path().filename().string());
}

/// Opens the lock's file and locks it. -1: another process holds it.
int take_lock(const fs::path& folder) {
  const fs::path path = folder / kLock;
  for (;;) {
    if (::mkdir(folder.c_str(), 0777) == 0)
      sync_folder(parent_of(folder));
    else if (errno != EEXIST)
      fail_writing(folder, errno);
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == ENOENT) continue;  // its last holder has just removed the folder
    if (descriptor < 0) fail_writing(path, errno);
    const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    const int reason = errno;
    // The file may have been removed by its last holder in between: then it locks nothing.
    struct stat ours {
    }, there{};
    const bool same = ::fstat(descriptor, &ours) == 0 && ::stat(path.c_str(), &there) == 0 &&
                      ours.st_ino == there.st_ino;
    if (locked && same) return descriptor;
    ::close(descriptor);
    if (!locked && reason == EWOULDBLOCK) return -1;
    if (!locked) fail_writing(path, reason);
  }
}

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code problem;
  return fs::exists(path, problem);
}

fs::path Workplace::folder_of(const fs::path& profile) {
  fs::path folder = profile;
  folder += ".parts";
  return folder;
}

bool Workplace::has_parts(const fs::path& profile) {
  bool found = false;
  for_each_name(folder_of(profile), [&](const std::string& name) { found |= !!index_of(name); });
  return found;
}

Workplace Workplace::lock(const fs::path& profile) {
  const int descriptor = take_lock(folder_of(profile));
  if (descriptor < 0)
    fail(ErrorCode::usage, quoted(profile.string(), 400), " is being written by another process");
  return {profile, descriptor};
}

Workplace Workplace::join(const fs::path& profile) {
  if (!is_there(folder_of(profile)))
    fail(ErrorCode::usage, quoted(profile.string(), 400),
         " is not being written, so nothing can be added to it");
  return {profile, -1};
}

Workplace::Workplace(fs::path profile, int descriptor)
    : profile_(std::move(profile)), folder_(folder_of(profile_)), descriptor_(descriptor) {}

Workplace::Workplace(Workplace&& other) noexcept
    : profile_(std::move(other.profile_)),
      folder_(std::move(other.folder_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

Workplace::~Workplace() {
  if (descriptor_ < 0) return;
  bool empty = true;
  for_each_name(folder_, [&](const std::string& name) { empty &= name == kLock; });
  if (empty) {
    ::unlink((folder_ / kLock).c_str());
    ::rmdir(folder_.c_str());
  }
  ::close(descriptor_);
}

fs::path Workplace::part(std::int64_t index) const {
  std::string digits = std::to_string(index);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return folder_ / (digits + ".h5");
}

fs::path Workplace::temporary(std::int64_t index) const {
  fs::path path = part(index);
  path += ".tmp";
  return path;
}

fs::path Workplace::assembled() const { return folder_ / "assembled.tmp"; }
fs::path Workplace::gathered(int number) const {
  return folder_ / ("gathered-" + std::to_string(number) + ".tmp");
}

std::set<std::int64_t> Workplace::parts() const {
  std::set<std::int64_t> found;
  for_each_name(folder_, [&](const std::string& name) {
    if (const auto index = index_of(name)) found.insert(*index);
  });
  return found;
}

fs::path Workplace::mark() const { return folder_ / kMark; }
bool Workplace::begun_anew() const { return is_there(mark()); }

void Workplace::begin_anew() const {
  const int descriptor = ::open(mark().c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_writing(mark(), errno);
  ::close(descriptor);
  sync_folder(folder_);
}

void Workplace::end_anew() const {
  if (::unlink(mark().c_str()) == 0) sync_folder(folder_);
}

void Workplace::remove_part(std::int64_t index) const { ::unlink(part(index).c_str()); }

void Workplace::remove_parts() const {
  for (const auto index : parts()) remove_part(index);
}

void Workplace::remove_half_written() const {
  for_each_name(folder_, [&](const std::string& name) {
    if (fs::path(name).extension() == ".tmp") ::unlink((folder_ / name).c_str());
  });
}

}  // namespace kvatlas::profile
