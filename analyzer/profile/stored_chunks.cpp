// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "analyzer/profile/stored_chunks_impl.hpp"

namespace kvatlas::profile {
namespace {

/// How chunks are found.
enum ChunkIndex : unsigned { of_one = 1, of_neighbours = 2, of_an_array = 3 };

void parse_chunks(Fields& fields, StoredLayout& layout) {
  constexpr std::uint64_t kMostAxes = 33, kPlainEdges = 1, kOneFiltered = 2;
  const auto flags = fields.number(1), axes = fields.number(1), size_bytes = fields.number(1);
  if (axes == 0 || axes > kMostAxes || size_bytes == 0 || size_bytes > 8)
    fail(ErrorCode::unreadable, "damaged: it has chunks of ", axes, " axes");
  if ((flags & kPlainEdges) != 0)
    fail(ErrorCode::unreadable,
         "it leaves chunks at its edges without filters, which profiles "
         "do not");
  for (std::uint64_t i = 0; i < axes; ++i)
    layout.chunk.push_back(as_size(fields.number(size_bytes)));
  layout.index = static_cast<unsigned>(fields.number(1));
  switch (layout.index) {
    case of_one:
      if ((flags & kOneFiltered) != 0) {
        layout.index_at.bytes = fields.number(8);
        layout.index_at.skipped = fields.number(4);
      }
      break;
    case of_neighbours:
      break;
    case of_an_array:
      fields.skip(1);  // said again where the array begins
      break;
    default:
      fail(ErrorCode::unreadable, "it finds its chunks by an index of kind ", layout.index,
           ", expected one of fixed size");
  }
  layout.index_at.address = fields.address();
}

/// The entries of a fixed array of chunks.
class ChunkArray {
 public:
  ChunkArray(const StoredFile& file, std::uint64_t address, std::int64_t count,
             std::int64_t plain_bytes, bool filtered)
      : file_(file), plain_bytes_(static_cast<std::uint64_t>(plain_bytes)), filtered_(filtered) {
    constexpr std::uint64_t kHeaderBytes = 28;
    const Block header = file.block(address, kHeaderBytes, "FAHD");
    Fields fields(*header);
    fields.skip(StoredFile::kSignatureBytes);
    fields.expect_version(0, "index of chunks");
    require(fields.number(1) == std::uint64_t{filtered});
    entry_bytes_ = fields.number(1);
    page_bits_ = fields.number(1);
    count_ = fields.number(8);
    at_ = fields.address();
    require(count_ == static_cast<std::uint64_t>(count));
    require(filtered ? entry_bytes_ > kFixedBytes && entry_bytes_ <= kFixedBytes + 8
                     : entry_bytes_ == 8);
    require(page_bits_ > 0 && page_bits_ < 32);
  }

  std::vector<StoredChunk> read() const {
    std::vector<StoredChunk> chunks;
    if (at_ == kNowhere) return chunks;
    constexpr std::uint64_t kStart = StoredFile::kSignatureBytes + 2 + 8,
                            kChecksum = StoredFile::kChecksumBytes;
    file_.require_inside(at_, count_);  // so that the products below are small
    file_.require_inside(at_, count_ * entry_bytes_);
    const std::uint64_t page = std::uint64_t{1} << page_bits_;
    if (count_ <= page) {
      const Block block = file_.block(at_, kStart + count_ * entry_bytes_ + kChecksum, "FADB");
      add(Span(*block).subspan(kStart, count_ * entry_bytes_), chunks);
      return chunks;
    }
    const std::uint64_t pages = (count_ + page - 1) / page, bits_bytes = (pages + 7) / 8;
    const std::uint64_t start_bytes = kStart + bits_bytes + kChecksum;
    const Block start = file_.block(at_, start_bytes, "FADB");
    for (std::uint64_t i = 0; i < pages; ++i) {
      const std::uint64_t entries = std::min(page, count_ - i * page);
      const unsigned bits = std::to_integer<unsigned>((*start)[kStart + i / 8]);
      if ((bits & (0x80U >> (i % 8))) == 0) {  // nothing of this page was written
        chunks.resize(chunks.size() + entries);
        continue;
      }
      const Block block = file_.block(at_ + start_bytes + i * (page * entry_bytes_ + kChecksum),
                                      entries * entry_bytes_ + kChecksum, "");
      add(Span(*block).first(entries * entry_bytes_), chunks);
    }
    return chunks;
  }

 private:
  static constexpr std::uint64_t kFixedBytes = 8 + 4;  // address and filters that were skipped

  static void require(bool right) {
    if (!right) fail(ErrorCode::unreadable, "damaged: its index of chunks does not fit its sizes");
  }
  void add(Span entries, std::vector<StoredChunk>& chunks) const {
    for (Fields fields(entries); !fields.left().empty();) {
      StoredChunk chunk{fields.address(), plain_bytes_, 0};
      if (filtered_) {
        chunk.bytes = fields.number(entry_bytes_ - kFixedBytes);
        chunk.skipped = fields.number(4);
      }
      chunks.push_back(chunk);
    }
  }

  const StoredFile& file_;
  std::uint64_t plain_bytes_, entry_bytes_ = 0, page_bits_ = 0, count_ = 0, at_ = kNowhere;
  bool filtered_;
};

}  // namespace

StoredLayout parse_layout(Span body) {
  enum : std::uint8_t { of_compact, of_contiguous, of_chunks, of_others };
  StoredLayout layout;
  Fields fields(body);
  const auto version = fields.number(1), kind = fields.number(1);
  if (version < 3 || version > 5)  // 5 is 4 with room for larger chunks
    fail(ErrorCode::unreadable, "its layout is of version ", version, ", expected 3 to 5");
  switch (kind) {
    case of_compact:
      layout.data = fields.take(fields.number(2));
      break;
    case of_contiguous:
      layout.kind = StoredLayout::contiguous;
      layout.all.address = fields.address();
      layout.all.bytes = fields.number(8);
      break;
    case of_chunks:
      layout.kind = StoredLayout::chunked;
      if (version == 3)
        fail(ErrorCode::unreadable,
             "its chunks are found by an index without checksums (h5py: libver='latest')");
      parse_chunks(fields, layout);
      break;
    case of_others:
      layout.kind = StoredLayout::virtual_parts;
      break;
    default:
      fail(ErrorCode::unreadable, "it is stored in the unknown way ", kind);
  }
  return layout;
}

std::vector<StoredChunk> read_chunk_index(const StoredFile& file, const StoredLayout& layout,
                                          std::int64_t count, std::int64_t plain_bytes,
                                          bool filtered) {
  std::vector<StoredChunk> chunks;
  StoredChunk first = layout.index_at;
  if (first.address == kNowhere) return chunks;
  if (layout.index == of_an_array) {
    chunks = ChunkArray(file, first.address, count, plain_bytes, filtered).read();
  } else {
    if (first.bytes == 0) first.bytes = static_cast<std::uint64_t>(plain_bytes);
    if (layout.index == of_one && count != 1)
      fail(ErrorCode::unreadable, "damaged: it has one chunk, and its sizes take ", count);
    if (layout.index == of_neighbours && count > file.size() / plain_bytes)
      fail(ErrorCode::unreadable, "damaged: it has ", count, " chunks of ", plain_bytes,
           " bytes in a file of ", file.size());
    for (std::int64_t k = 0; k < count; ++k) {
      chunks.push_back(first);
      first.address += first.bytes;
    }
  }
  for (const StoredChunk& chunk : chunks)
    if (chunk.address != kNowhere) file.require_inside(chunk.address, chunk.bytes);
  return chunks;
}

std::vector<std::uint64_t> parse_filters(Span body) {
  constexpr std::uint64_t kFirstForeign = 256;  // these have a name in version 2
  Fields fields(body);
  const auto version = fields.number(1), count = fields.number(1);
  if (version != 1 && version != 2)
    fail(ErrorCode::unreadable, "its filters are of version ", version, ", expected 1 or 2");
  fields.skip(version == 1 ? 6 : 0);
  std::vector<std::uint64_t> filters;
  for (std::uint64_t i = 0; i < count; ++i) {
    filters.push_back(fields.number(2));
    const bool named = version == 1 || filters.back() >= kFirstForeign;
    const auto name_bytes = named ? fields.number(2) : 0;
    fields.skip(2);
    const auto values = fields.number(2);
    fields.skip(version == 1 ? (name_bytes + 7) / 8 * 8 : name_bytes);
    fields.skip(4 * (values + (version == 1 ? values % 2 : 0)));
  }
  return filters;
}

}  // namespace kvatlas::profile
