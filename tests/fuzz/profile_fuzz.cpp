// SPDX-License-Identifier: Apache-2.0
// A profile: read whole, or refused.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <random>

#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "tests/fuzz/hdf5_checksums.hpp"
#include "tests/fuzz/input_file.hpp"

using namespace kvatlas;

/// HDF5 1.10 asks for as much memory as damaged metadata say, and takes no for an answer; and it
/// loses a few hundred bytes for each object with a wrong checksum: looking for leaks after each
/// input would take most of the time, and the unit tests look.
extern "C" const char* __asan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024";
}

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

}  // namespace

/// Takes the place of libFuzzer's own: the file keeps its size, for all in it is found by offsets.
/// Metadata are changed with their checksums put right, but only what they say of a profile: of the
/// rest HDF5 1.10 believes much and ends in bad memory (docs/security.md). KVATLAS_FUZZ_METADATA=1
/// changes that too.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t,
                                               unsigned seed) {
  static const bool all = std::getenv("KVATLAS_FUZZ_METADATA") != nullptr;
  if (size == 0) return 0;
  std::minstd_rand random(seed + 1);
  const std::span file(data, size);
  const auto blocks = checksummed_blocks(file);
  const bool anywhere = blocks.empty() || random() % 4 == 0;  // in a chunk, or told by a checksum
  for (auto changes = 1 + random() % 4; changes > 0; --changes) {
    if (anywhere) {
      change_a_place(file, random);
      continue;
    }
    const auto& block = blocks[random() % blocks.size()];
    const auto values = values_in(file, block);
    if (all)
      change_a_place(file.subspan(block.begin, block.size), random);
    else if (!values.empty())
      change_a_place(values[random() % values.size()], random);
    renew_checksum(file, block);
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
