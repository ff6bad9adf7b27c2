// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analyzer/profile/lookup3_impl.hpp"
#include "analyzer/profile/stored_file_impl.hpp"

namespace kvatlas::profile {
namespace {

constexpr std::size_t kSuperblockBytes = 48, kMostKept = 16 << 20;

}  // namespace

std::uint64_t Fields::number(std::uint64_t bytes) {
  std::uint64_t value = 0;
  int place = 0;
  for (const std::byte byte : take(bytes)) {
    value |= std::to_integer<std::uint64_t>(byte) << place;
    place += 8;
  }
  return value;
}

Span Fields::take(std::uint64_t bytes) {
  if (bytes > left_.size())
    fail(ErrorCode::unreadable, "damaged: its metadata end within a field of ", bytes, " bytes, ",
         left_.size(), " of which are there");
  const Span taken = left_.first(bytes);
  left_ = left_.subspan(bytes);
  return taken;
}

void Fields::expect_version(unsigned version, std::string_view what) {
  if (const auto found = number(1); found != version)
    fail(ErrorCode::unreadable, "its ", what, " is of version ", found, ", expected ", version,
         " (h5py: libver='latest')");
}

StoredFile::StoredFile(const std::filesystem::path& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0 && errno == ENOENT) fail(ErrorCode::unreadable, "there is no such file");
  if (descriptor_ < 0) fail(ErrorCode::unreadable, "cannot be read: ", std::strerror(errno));
  try {
    read_superblock();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

StoredFile::~StoredFile() { ::close(descriptor_); }

/// The format must be one whose metadata carry checksums: the older one would leave a damaged file
/// to be noticed by chance.
void StoredFile::read_superblock() {
  struct stat about {};
  if (::fstat(descriptor_, &about) != 0)
    fail(ErrorCode::unreadable, "cannot be read: ", std::strerror(errno));
  if (!S_ISREG(about.st_mode))
    fail(ErrorCode::unreadable, "not a regular file, expected a profile");
  end_ = static_cast<std::uint64_t>(about.st_size);
  const Bytes start = read(0, std::min<std::uint64_t>(end_, kSuperblockBytes));
  if (!text_of(start).starts_with(kFileSignature) || start.size() == kFileSignature.size())
    fail(ErrorCode::unreadable, "not a profile: it does not begin as an HDF5 file does");
  Fields fields(Span(start).subspan(kFileSignature.size()));
  if (const auto version = fields.number(1); version != 2 && version != 3)
    fail(ErrorCode::unreadable, "its HDF5 superblock is of version ", version,
         ", expected 2 or 3, whose metadata have checksums (h5py: libver='latest')");
  block(0, kSuperblockBytes, kFileSignature);
  const auto address_bytes = fields.number(1), size_bytes = fields.number(1);
  const auto flags = fields.number(1), base = fields.address();
  fields.skip(8);  // an extension, which says nothing of where things lie
  const auto end = fields.address();
  root_ = fields.address();
  if (address_bytes != 8 || size_bytes != 8 || base != 0)
    fail(ErrorCode::unreadable, "its addresses have ", address_bytes, " bytes, its sizes ",
         size_bytes, ", and they count from byte ", base, "; expected 8, 8 and 0");
  if ((flags & 1) != 0)
    fail(ErrorCode::unreadable, "what wrote it has not closed it, or still writes it");
  if (end > end_) fail_cut("not a whole HDF5 file: it has ", end_, " of ", end, " bytes");
  end_ = end;
}

void StoredFile::require_inside(std::uint64_t address, std::uint64_t bytes) const {
  if (address > end_ || bytes > end_ - address)
    fail(ErrorCode::unreadable, "damaged: it names ", bytes, " bytes at byte ", address,
         " of a file of ", end_);
}

void StoredFile::read(std::uint64_t address, std::span<std::byte> bytes) const {
  require_inside(address, bytes.size());
  while (!bytes.empty()) {
    const ssize_t done =
        ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(address));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      const std::string why =
          str("cannot be read at byte ", address, ": ",
              done == 0 ? "it was cut while it was read" : std::strerror(errno));
      if (trouble_.empty()) trouble_ = why;
      fail(ErrorCode::unreadable, why);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    address += static_cast<std::uint64_t>(done);
  }
}

Bytes StoredFile::read(std::uint64_t address, std::uint64_t bytes) const {
  require_inside(address, bytes);
  Bytes read_bytes(bytes);
  read(address, std::span(read_bytes));
  return read_bytes;
}

Block StoredFile::block(std::uint64_t address, std::uint64_t bytes, std::string_view signature,
                        std::uint64_t checksum_at) const {
  if (const auto found = kept_.find(address); found != kept_.end() &&
                                              found->second->size() == bytes &&
                                              text_of(*found->second).starts_with(signature))
    return found->second;
  const auto block = std::make_shared<Bytes>(read(address, bytes));
  if (!text_of(*block).starts_with(signature))
    fail(ErrorCode::unreadable, "damaged: there is no ", quoted(signature), " at byte ", address);
  const std::span sum = std::span(*block).subspan(checksum_at, kChecksumBytes);
  const auto stored = Fields(sum).number(kChecksumBytes);
  std::ranges::fill(sum, std::byte{0});
  const bool at_end = checksum_at + kChecksumBytes == bytes;
  if (stored != lookup3(at_end ? Span(*block).first(checksum_at) : Span(*block)))
    fail(ErrorCode::unreadable, "damaged: the checksum of its metadata at byte ", address,
         " is wrong");
  if (kept_bytes_ + bytes > kMostKept) {
    kept_.clear();
    kept_bytes_ = 0;
  }
  kept_bytes_ += bytes;
  kept_[address] = block;
  return block;
}

}  // namespace kvatlas::profile
