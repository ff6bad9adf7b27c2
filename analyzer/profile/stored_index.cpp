// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "analyzer/profile/stored_index_impl.hpp"

namespace kvatlas::profile {
namespace {

constexpr std::uint64_t kMostNode = 1 << 16, kMostDirectBlock = 1 << 20;
constexpr std::uint64_t kMostHugeObject = 128 << 20;

/// How many bytes HDF5 takes for numbers up to this one.
std::uint64_t bytes_for(std::uint64_t most) {
  return (static_cast<std::uint64_t>(std::bit_width(most)) + 7) / 8;
}

std::uint64_t log2_of(std::uint64_t power) {
  return static_cast<std::uint64_t>(std::bit_width(power)) - 1;
}

[[noreturn]] void fail_index(std::uint64_t address) {
  fail(ErrorCode::unreadable, "damaged: the index at byte ", address, " has sizes that cannot be");
}

}  // namespace

StoredTree::StoredTree(const StoredFile& file, std::uint64_t address, Type type) : file_(&file) {
  constexpr std::uint64_t kHeaderBytes = 38, kNodeFrame = 10;  // signature, version, type, checksum
  const Block header = file.block(address, kHeaderBytes, "BTHD");
  Fields fields(*header);
  fields.skip(StoredFile::kSignatureBytes);
  fields.expect_version(0, "B-tree");
  if (const auto found = fields.number(1); found != type)
    fail(ErrorCode::unreadable, "damaged: the index at byte ", address, " is of type ", found,
         ", expected ", static_cast<unsigned>(type));
  node_bytes_ = fields.number(4);
  record_bytes_ = fields.number(2);
  depth_ = fields.number(2);
  fields.skip(2);
  root_ = fields.address();
  root_records_ = fields.number(2);
  if (node_bytes_ > kMostNode || record_bytes_ == 0 || node_bytes_ < kNodeFrame + record_bytes_ ||
      depth_ >= kMostLevels)
    fail_index(address);
  levels_[0].most_records = (node_bytes_ - kNodeFrame) / record_bytes_;
  count_bytes_ = bytes_for(levels_[0].most_records);
  std::uint64_t total = levels_[0].most_records;
  for (std::size_t level = 1; level <= depth_; ++level) {
    const std::uint64_t pointer = 8 + count_bytes_ + levels_[level - 1].total_bytes;
    if (node_bytes_ < kNodeFrame + pointer) fail_index(address);
    const std::uint64_t most = (node_bytes_ - kNodeFrame - pointer) / (record_bytes_ + pointer);
    if (total > (kNowhere >> 1) / (most + 2)) fail_index(address);
    total = (most + 1) * total + most;
    levels_[level] = {most, bytes_for(total)};
  }
}

void StoredTree::find(const Compare& compare, const Visit& visit) const {
  if (root_ == kNowhere) return;
  constexpr int kMostEqual = 64;  // by chance a few; a forged index could lead around for ever
  int equal = 0;
  find_in(root_, root_records_, depth_, compare, [&](Span record) {
    if (++equal > kMostEqual)
      fail(ErrorCode::unreadable, "damaged: the index at byte ", root_, " repeats itself");
    return visit(record);
  });
}

bool StoredTree::find_in(std::uint64_t address, std::uint64_t records, std::size_t level,
                         const Compare& compare, const Visit& visit) const {
  const std::uint64_t below = level > 0 ? levels_[level - 1].total_bytes : 0;
  const std::uint64_t pointer = level > 0 ? 8 + count_bytes_ + below : 0;
  if (records > levels_[level].most_records) fail_index(address);
  constexpr std::uint64_t kStart = 6;
  const Block node =
      file_->block(address,
                   kStart + records * record_bytes_ + (level > 0 ? records + 1 : 0) * pointer +
                       StoredFile::kChecksumBytes,
                   level > 0 ? "BTIN" : "BTLF");
  const Span all = Span(*node).subspan(kStart, records * record_bytes_);
  Fields children(Span(*node).subspan(kStart + all.size()));
  int before = -1;  // what is to be said of the record before the child
  for (std::uint64_t i = 0; i <= records; ++i) {
    const Span record = i < records ? all.subspan(i * record_bytes_, record_bytes_) : Span();
    const int order = i < records ? compare(record) : 1;
    if (level > 0) {
      const std::uint64_t child = children.address(), count = children.number(count_bytes_);
      children.skip(below);
      if (before <= 0 && order >= 0 && find_in(child, count, level - 1, compare, visit))
        return true;
    }
    if (order > 0) return false;
    if (order == 0 && visit(record)) return true;
    before = order;
  }
  return false;
}

StoredHeap::StoredHeap(const StoredFile& file, std::uint64_t address) : file_(&file) {
  constexpr std::uint64_t kHeaderBytes = 146;  // without filters, which no heap of ours has
  const Block header = file.block(address, kHeaderBytes, "FRHP");
  Fields fields(*header);
  fields.skip(StoredFile::kSignatureBytes);
  fields.expect_version(0, "fractal heap");
  id_bytes_ = fields.number(2);
  const auto filter_bytes = fields.number(2), flags = fields.number(1);
  most_managed_ = fields.number(4);
  fields.skip(8);
  huge_tree_ = fields.address();
  fields.skip(10 * 8);  // how much of it is used and free
  row_blocks_ = fields.number(2);
  first_block_ = fields.number(8);
  most_direct_ = fields.number(8);
  bits_ = fields.number(2);
  fields.skip(2);
  root_ = fields.address();
  root_rows_ = fields.number(2);
  constexpr unsigned kChecksums = 2;
  if (filter_bytes != 0 || (flags & kChecksums) == 0 || !std::has_single_bit(row_blocks_) ||
      !std::has_single_bit(first_block_) || !std::has_single_bit(most_direct_) ||
      first_block_ > most_direct_ || most_direct_ > kMostDirectBlock || bits_ > 62 ||
      most_managed_ == 0 || root_rows_ > bits_)
    fail_index(address);
  offset_bytes_ = (bits_ + 7) / 8;
  length_bytes_ = std::min((log2_of(most_direct_) + 7) / 8, bytes_for(most_managed_));
}

HeldBytes StoredHeap::object(Span id) const {
  Fields fields(id.first(std::min<std::size_t>(id.size(), id_bytes_)));
  constexpr unsigned kManaged = 0x00, kHuge = 0x10;  // of version 0
  const auto kind = fields.number(1) & 0xf0;
  if (kind == kManaged) {
    const auto offset = fields.number(offset_bytes_);
    return managed(offset, fields.number(length_bytes_));
  }
  if (kind == kHuge) return huge(fields.number(std::min<std::uint64_t>(8, id_bytes_ - 1)));
  fail(ErrorCode::unreadable, "damaged: a heap has an object of kind ", kind);
}

HeldBytes StoredHeap::managed(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t row_bytes = row_blocks_ * first_block_;
  const std::uint64_t direct_rows = log2_of(most_direct_ / first_block_) + 2;
  std::uint64_t address = root_, block_bytes = first_block_, rows = root_rows_;
  const auto outside = [&] {
    fail(ErrorCode::unreadable, "damaged: a heap has no ", bytes, " bytes at ", offset);
  };
  if (offset >> bits_ != 0) outside();
  while (rows > 0) {
    const std::uint64_t row = static_cast<std::uint64_t>(std::bit_width(offset / row_bytes));
    if (row >= rows) outside();
    block_bytes = row == 0 ? first_block_ : first_block_ << (row - 1);
    const std::uint64_t in_row = offset - (row == 0 ? 0 : row_bytes << (row - 1));
    const std::uint64_t start = StoredFile::kSignatureBytes + 1 + 8 + offset_bytes_;
    const Block indirect =
        file_->block(address, start + 8 * rows * row_blocks_ + StoredFile::kChecksumBytes, "FHIB");
    Fields child(Span(*indirect).subspan(start + 8 * (row * row_blocks_ + in_row / block_bytes)));
    address = child.address();
    offset = in_row % block_bytes;
    if (row >= direct_rows && block_bytes < row_bytes) outside();
    rows = row < direct_rows ? 0 : log2_of(block_bytes / row_bytes) + 1;
  }
  const std::uint64_t checksum_at = StoredFile::kSignatureBytes + 1 + 8 + offset_bytes_;
  if (offset < checksum_at + StoredFile::kChecksumBytes || offset > block_bytes ||
      bytes > block_bytes - offset)
    outside();
  const Block direct = file_->block(address, block_bytes, "FHDB", checksum_at);
  return {direct, Span(*direct).subspan(offset, bytes)};
}

HeldBytes StoredHeap::huge(std::uint64_t id) const {
  HeldBytes found;
  const auto id_of = [](Span record) {
    Fields fields(record);
    fields.skip(16);
    return fields.number(8);
  };
  StoredTree(*file_, huge_tree_, StoredTree::huge_objects)
      .find([&](Span record) { return id_of(record) < id   ? -1
                                      : id_of(record) > id ? 1
                                                           : 0; },
            [&](Span record) {
              Fields fields(record);
              const auto address = fields.address(), bytes = fields.number(8);
              if (bytes > kMostHugeObject)
                fail(ErrorCode::unreadable, "it holds ", bytes, " bytes in one piece, expected ",
                     kMostHugeObject, " at most");
              found.block = std::make_shared<Bytes>(file_->read(address, bytes));
              found.bytes = *found.block;
              return true;
            });
  if (!found.block) fail(ErrorCode::unreadable, "damaged: a heap has no object ", id);
  return found;
}

}  // namespace kvatlas::profile
