// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather.hpp"

#include <bit>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::gather_tests {
namespace {

using namespace testing_support;

using Bytes = std::vector<unsigned char>;

struct Kept {
  std::vector<std::int64_t> positions, offsets, starts;
};

class GatherTest : public KernelTest {
 protected:
  static Bytes run(const AnyView<3>& from, const Kept& kept, std::int64_t to_rows,
                   const Exec& how) {
    const Memory where = from.memory;
    const auto heads = from.sizes[0], count = static_cast<std::int64_t>(kept.positions.size());
    const Guarded<std::int64_t> positions(kept.positions, where), offsets(kept.offsets, where),
        starts(kept.starts, where);
    const Guarded<unsigned char> to(to_rows * from.sizes[2] * dtype_bytes(from.type), 0x77, where);
    gather({from,
            {positions.data(), {count}, where},
            {offsets.data(), {heads + 1}, where},
            {starts.data(), {heads}, where},
            to.data(),
            to_rows},
           how);
    EXPECT_TRUE(to.intact() && positions.intact());
    return to.values();
  }
};

TEST_P(GatherTest, MatchesTheReferenceBitForBit) {
  Random random(1);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const Layout layout : {Layout::dense, Layout::swapped, Layout::strided}) {
      const std::int64_t heads = 3, n = 700, dim = 17;
      auto values = random.normals(heads * n * dim);
      values[5] = std::nanf("");
      values[6] = 1e-42f;
      values[7] = -std::numeric_limits<float>::infinity();
      const Tensor<3> from(values, {heads, n, dim}, memory(), type, layout);
      // A head with everything, one with nothing, one with a few; gaps between them.
      Kept kept{{}, {0}, {2, 703, 705}};
      for (std::int64_t i = 0; i < n; ++i) kept.positions.push_back(i);
      kept.offsets.push_back(n);
      kept.offsets.push_back(n);
      for (const std::int64_t position : {0, 1, 350, 699}) kept.positions.push_back(position);
      kept.offsets.push_back(n + 4);
      EXPECT_EQ(run(from.view, kept, 710, exec()), run(from.host, kept, 710, kReference));
    }
  }
}

TEST_P(GatherTest, PutsRowsWhereTheyBelongAndTouchesNothingElse) {
  // One column: the value is 10 * head + position.
  const Tensor<3> from({0, 1, 2, 10, 11, 12}, {2, 3, 1}, memory());
  const Bytes got = run(from.view, {{2, 0, 1}, {0, 1, 3}, {4, 1}}, 6, exec());
  std::vector<float> rows(6);
  std::memcpy(rows.data(), got.data(), got.size());
  EXPECT_EQ(rows[1], 10);
  EXPECT_EQ(rows[2], 11);
  EXPECT_EQ(rows[4], 2);
  for (const std::size_t untouched : {0, 3, 5})
    EXPECT_EQ(std::bit_cast<std::uint32_t>(rows[untouched]), 0x77777777u);
}

TEST_P(GatherTest, NothingKeptAndNoHeads) {
  const Tensor<3> from(Random(2).normals(12), {2, 3, 2}, memory());
  for (const unsigned char byte : run(from.view, {{}, {0, 0, 0}, {0, 0}}, 4, exec()))
    EXPECT_EQ(byte, 0x77);
  const Tensor<3> none({}, {0, 3, 2}, memory());
  run(none.view, {{}, {0}, {}}, 0, exec());
}

TEST_P(GatherTest, ThreadsDoNotChangeABit) {
  const Tensor<3> from(Random(2).normals(5 * 3000 * 4), {5, 3000, 4}, memory());
  Kept kept{{}, {0}, {}};
  for (std::int64_t g = 0; g < 5; ++g) {
    kept.starts.push_back(kept.offsets.back());
    for (std::int64_t i = g; i < 3000; i += g + 1) kept.positions.push_back(i);
    kept.offsets.push_back(static_cast<std::int64_t>(kept.positions.size()));
  }
  expect_same_for_any_thread_count(
      [&] { return run(from.view, kept, kept.offsets.back(), exec()); });
}

TEST(GatherArguments, RowsOutsideAreRefusedBeforeAnythingIsWritten) {
  float data[12] = {}, to[4] = {-1, -1, -1, -1};
  const View<const float, 3> from(data, {2, 3, 2});
  const auto attempt = [&](std::vector<std::int64_t> positions, std::vector<std::int64_t> offsets,
                           std::vector<std::int64_t> starts) {
    return error_of([&] {
      gather({from,
              {positions.data(), {static_cast<std::int64_t>(positions.size())}},
              {offsets.data(), {static_cast<std::int64_t>(offsets.size())}},
              {starts.data(), {static_cast<std::int64_t>(starts.size())}},
              to,
              2});
    });
  };
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(attempt({0, 3}, {0, 1, 2}, {0, 1}),
            "gather: head 1 keeps position 3, expected within 0 to 2");
  EXPECT_EQ(attempt({0, -1}, {0, 1, 2}, {0, 1}),
            "gather: head 1 keeps position -1, expected within 0 to 2");
  EXPECT_EQ(attempt({0, 1}, {0, 1, 2}, {0, 2}),
            "gather: head 1 writes rows 2 to 2 + 1, expected within 0 to 2");
  EXPECT_NE(attempt({0, 1}, {0, 1, 2}, {0, kMost}), "");
  EXPECT_EQ(attempt({0, 1}, {0, 2, 1}, {0, 1}), "gather: offsets fall from 2 to 1 at head 1");
  EXPECT_EQ(attempt({0, 1}, {0, 1, 3}, {0, 1}),
            "gather: offsets reach from 0 to 3, expected within 0 to 2");
  EXPECT_NE(attempt({0, 1}, {-1, 1, 2}, {0, 1}), "");
  EXPECT_EQ(attempt({0, 1}, {0, 2}, {0, 1}), "offsets has shape [2], expected [3]");
  EXPECT_EQ(attempt({0, 1}, {0, 1, 2}, {0}), "starts has shape [1], expected [2]");
  for (const float value : to) EXPECT_EQ(value, -1);
  EXPECT_EQ(attempt({0, 1}, {0, 1, 2}, {0, 1}), "");
}

KVATLAS_EVERY_BODY(GatherTest);

}  // namespace
}  // namespace kvatlas::kernels::gather_tests
