// SPDX-License-Identifier: Apache-2.0
// Where HDF5 keeps what an object's header has no room for: version 2 B-trees, and fractal heaps.
#pragma once

#include <array>
#include <functional>

#include "analyzer/profile/stored_file_impl.hpp"

namespace kvatlas::profile {

/// A version 2 B-tree: records in ascending order.
class StoredTree {
 public:
  /// Its types, by what the records are.
  enum Type : unsigned { huge_objects = 1, link_names = 5, attribute_names = 8 };

  StoredTree(const StoredFile& file, std::uint64_t address, Type type);

  /// Calls `visit` for the records that are equal to what is looked for, until it returns true.
  /// `compare` is negative for records before that, and positive for those behind it.
  using Compare = std::function<int(Span record)>;
  using Visit = std::function<bool(Span record)>;
  void find(const Compare& compare, const Visit& visit) const;

 private:
  static constexpr std::size_t kMostLevels = 16;
  struct Level {
    std::uint64_t most_records = 0;  // of a node
    std::uint64_t total_bytes = 0;   // of the number of records in a node and below it; 0: none
  };
  bool find_in(std::uint64_t address, std::uint64_t records, std::size_t level,
               const Compare& compare, const Visit& visit) const;

  const StoredFile* file_;
  std::uint64_t node_bytes_ = 0, record_bytes_ = 0, count_bytes_ = 0;
  std::uint64_t depth_ = 0, root_ = kNowhere, root_records_ = 0;
  std::array<Level, kMostLevels> levels_;
};

/// Bytes, and the block that holds them.
struct HeldBytes {
  Block block;
  Span bytes;
};

/// A fractal heap: objects of any size, found by identifiers.
class StoredHeap {
 public:
  StoredHeap(const StoredFile& file, std::uint64_t address);
  HeldBytes object(Span id) const;

 private:
  HeldBytes managed(std::uint64_t offset, std::uint64_t bytes) const;
  HeldBytes huge(std::uint64_t id) const;

  const StoredFile* file_;
  std::uint64_t id_bytes_ = 0, offset_bytes_ = 0, length_bytes_ = 0, most_managed_ = 0;
  std::uint64_t huge_tree_ = kNowhere, root_ = kNowhere;
  // Direct blocks hold objects; indirect ones hold rows of blocks, twice as large from row to row
  // behind the second.
  std::uint64_t row_blocks_ = 0, first_block_ = 0, most_direct_ = 0, bits_ = 0, root_rows_ = 0;
};

}  // namespace kvatlas::profile
