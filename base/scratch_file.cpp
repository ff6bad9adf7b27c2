// SPDX-License-Identifier: Apache-2.0
#include "base/scratch_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "base/error.hpp"
#include "base/whole_file.hpp"

namespace kvatlas {

ScratchFile::ScratchFile(const std::filesystem::path& beside, std::int64_t most) : beside_(beside) {
  const std::string ending = ".tmp";
  std::string name = beside.string() + ".XXXXXX" + ending;
  descriptor_ = ::mkostemps(name.data(), static_cast<int>(ending.size()), O_CLOEXEC);
  if (descriptor_ < 0) fail_writing(beside_, errno);
  ::unlink(name.c_str());
  std::error_code unknown;
  const auto space = std::filesystem::space(parent_of(beside_), unknown);
  const auto half = unknown ? 0 : static_cast<std::int64_t>(space.available / 2);
  most_ = std::min(most, half);
}

ScratchFile::~ScratchFile() { ::close(descriptor_); }

void ScratchFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(descriptor_, bytes.data(), bytes.size(), size_);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_writing(beside_, errno);
    size_ += done;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void ScratchFile::read(std::int64_t place, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t done = ::pread(descriptor_, bytes.data(), bytes.size(), place);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      fail(ErrorCode::resource, "what was kept beside ", quoted(beside_.string(), 400),
           " cannot be read again: ", done == 0 ? "it ends too early" : std::strerror(errno));
    place += done;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void ScratchFile::cut(std::int64_t size) {
  if (size < size_ && ::ftruncate(descriptor_, size) != 0) fail_writing(beside_, errno);
  size_ = std::min(size_, size);
}

}  // namespace kvatlas
