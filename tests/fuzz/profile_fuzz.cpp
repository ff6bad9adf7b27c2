// SPDX-License-Identifier: Apache-2.0
// A profile: read whole, or refused.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <random>

#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "tests/fuzz/input_file.hpp"
#include "tests/support/hdf5_checksums.hpp"

using namespace kvatlas;

namespace {

void read_everything(const std::filesystem::path& path) {
  const profile::Reader profile(path);
  for (const auto& array : profile.header().arrays) {
    if (!profile.has(array.name)) continue;
    if (!array.sizes.empty()) profile.statistic(array.name);
    for (std::size_t i = 0; i < profile.samples().size(); ++i) {
      if (!profile.has(i, array.name)) continue;
      profile.array(i, array.name);
      if (array.sizes.empty()) profile.shape(i, array.name);
    }
  }
  for (std::size_t i = 0; i < profile.samples().size(); ++i) profile.tokens(i);
}

void change_a_place(std::span<std::uint8_t> bytes, std::minstd_rand& random) {
  static constexpr std::uint8_t kTelling[] = {0, 1, 2, 3, 4, 8, 0x7f, 0x80, 0xfe, 0xff};
  std::uint8_t& place = bytes[random() % bytes.size()];
  switch (random() % 3) {
    case 0:
      place = static_cast<std::uint8_t>(place ^ (1u << (random() % 8)));
      break;
    case 1:
      place = kTelling[random() % std::size(kTelling)];
      break;
    default:
      place = static_cast<std::uint8_t>(random());
  }
}

/// Eight bytes that lead to a block, perhaps to one that leads here.
void change_an_address(std::span<std::uint8_t> bytes,
                       const std::vector<testing_support::ChecksummedBlock>& blocks,
                       std::minstd_rand& random) {
  const std::uint64_t address = blocks[random() % blocks.size()].begin;
  if (bytes.size() < sizeof address) return;
  std::memcpy(bytes.data() + random() % (bytes.size() - sizeof address + 1), &address,
              sizeof address);
}

}  // namespace

/// Takes the place of libFuzzer's own: the file keeps its size, for all in it is found by offsets.
/// Metadata are changed with their checksums put right.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t,
                                               unsigned seed) {
  if (size == 0) return 0;
  std::minstd_rand random(seed + 1);
  const std::span file(data, size);
  // Changes leave the blocks where they are, and finding them takes longer than reading the file.
  static std::map<std::size_t, std::vector<testing_support::ChecksummedBlock>> known;
  auto& blocks = known[size];
  if (blocks.empty()) blocks = testing_support::checksummed_blocks(file);
  const bool anywhere = blocks.empty() || random() % 8 == 0;  // in a chunk, or told by a checksum
  for (auto changes = 1 + random() % 4; changes > 0; --changes) {
    if (anywhere) {
      change_a_place(file, random);
      continue;
    }
    const auto& block = blocks[random() % blocks.size()];
    const auto bytes = file.subspan(block.begin, block.size);
    if (random() % 8 == 0)
      change_an_address(bytes, blocks, random);
    else
      change_a_place(bytes, random);
    testing_support::renew_checksum(file, block);
  }
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const InputFile file("p.h5");
  try {
    read_everything(file.write(data, size));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unreadable) return 0;
    std::cerr << error.what() << '\n';
    std::abort();
  }
  return 0;
}
