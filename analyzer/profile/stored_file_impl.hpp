// SPDX-License-Identifier: Apache-2.0
// HDF5's format, as far as profiles use it, read without HDF5: HDF5 believes metadata whose
// checksums are right, and so a forged file could have it corrupt memory (docs/security.md). Here
// the bytes of the file and their checksums; above them lie indices (stored_index_impl.hpp) and
// objects (stored_object_impl.hpp). What files hold is told by "HDF5 File Format Specification
// Version 3.0", whose words are used.
//
// All functions throw Error(unreadable) for what is damaged, or stored in a way that neither
// kvatlas nor h5py with libver='latest' does; callers add where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "analyzer/profile/chunks_impl.hpp"
#include "base/error.hpp"

namespace kvatlas::profile {

using Span = std::span<const std::byte>;

/// The address of what is not there.
inline constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
/// A size of the file, or -1 if it is beyond what can be.
inline std::int64_t as_size(std::uint64_t size) {
  return size > std::uint64_t{1} << 62 ? -1 : static_cast<std::int64_t>(size);
}
inline std::string_view text_of(Span bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Bytes taken one field after the other. Error(unreadable) where they end within a field.
class Fields {
 public:
  explicit Fields(Span bytes) : left_(bytes) {}

  /// A little-endian number of so many bytes, at most 8.
  std::uint64_t number(std::uint64_t bytes);
  std::uint64_t address() { return number(8); }
  Span take(std::uint64_t bytes);
  void skip(std::uint64_t bytes) { take(bytes); }
  /// Error(unreadable) if the next byte is not this version of what it begins.
  void expect_version(unsigned version, std::string_view what);
  Span left() const { return left_; }

 private:
  Span left_;
};

/// A block of metadata whose checksum is right.
using Block = std::shared_ptr<const Bytes>;

/// An HDF5 file of superblock version 2 or 3. One thread at a time may use it.
class StoredFile {
 public:
  /// Opens the file, and checks that it is whole.
  explicit StoredFile(const std::filesystem::path& path);
  ~StoredFile();
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;

  /// Where the file ends, as its superblock says; no more than the bytes that are there.
  std::int64_t size() const { return static_cast<std::int64_t>(end_); }
  std::uint64_t root() const { return root_; }

  /// Error(unreadable) if the file does not have these bytes.
  void require_inside(std::uint64_t address, std::uint64_t bytes) const;
  void read(std::uint64_t address, std::span<std::byte> bytes) const;
  Bytes read(std::uint64_t address, std::uint64_t bytes) const;
  /// The block of that size, which begins with the signature and ends in its checksum. Blocks that
  /// were used last are kept.
  Block block(std::uint64_t address, std::uint64_t bytes, std::string_view signature) const {
    return block(address, bytes, signature, bytes - kChecksumBytes);
  }
  /// The same with the checksum inside, where zeros stood when it was computed.
  Block block(std::uint64_t address, std::uint64_t bytes, std::string_view signature,
              std::uint64_t checksum_at) const;

  /// What the system said when bytes could not be read, the first time; empty if they all could.
  const std::string& trouble() const { return trouble_; }

  static constexpr std::uint64_t kChecksumBytes = 4, kSignatureBytes = 4;  // of a block

 private:
  void read_superblock();

  int descriptor_;
  std::uint64_t end_ = 0, root_ = kNowhere;
  mutable std::unordered_map<std::uint64_t, Block> kept_;
  mutable std::size_t kept_bytes_ = 0;
  mutable std::string trouble_;
};

inline constexpr std::string_view kFileSignature = "\x89HDF\r\n\x1a\n";

}  // namespace kvatlas::profile
