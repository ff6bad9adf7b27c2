// SPDX-License-Identifier: Apache-2.0
// Plain C++: memcpy already copies rows with the best instructions of the machine.
#include "kernels/gather.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/gather_impl.hpp"

namespace kvatlas::kernels {
namespace {

constexpr std::int64_t kTaskRows = 512;

template <class T>
void gather_body(const Gather& io) {
  const auto* from = static_cast<const T*>(io.from.data);
  auto* to = static_cast<T*>(io.to);
  const std::int64_t dim = io.from.sizes[2], heads = io.from.sizes[0], kept = io.offsets(heads);
  parallel_for((kept + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    std::int64_t g = 0;
    for (std::int64_t i = task * kTaskRows; i < std::min(kept, (task + 1) * kTaskRows); ++i) {
      while (i >= io.offsets(g + 1)) ++g;
      if (i < io.offsets(g)) continue;
      const T* row = from + g * io.from.strides[0] + io.positions(i) * io.from.strides[1];
      T* out = to + (io.starts(g) + i - io.offsets(g)) * dim;
      if (io.from.strides[2] == 1)
        std::memcpy(out, row, static_cast<std::size_t>(dim) * sizeof(T));
      else
        for (std::int64_t c = 0; c < dim; ++c) out[c] = row[c * io.from.strides[2]];
    }
  });
}

/// What can be known without reading the arrays.
void check_shapes(const Gather& io) {
  const std::int64_t heads = io.from.sizes[0];
  if (io.offsets.sizes[0] != heads + 1 || io.starts.sizes[0] != heads)
    fail(ErrorCode::usage, "gather: ", io.offsets.sizes[0], " offsets and ", io.starts.sizes[0],
         " starts for ", heads, " heads, expected ", heads + 1, " and ", heads);
  for (const Memory memory : {io.positions.memory, io.offsets.memory, io.starts.memory})
    if (memory != io.from.memory)
      fail(ErrorCode::usage, "gather: the arrays do not lie in the same memory");
}

void check_rows(const Gather& io) {
  const std::int64_t heads = io.from.sizes[0];
  if (io.offsets(0) < 0 || io.offsets(heads) > io.positions.sizes[0])
    fail(ErrorCode::usage, "gather: offsets reach from ", io.offsets(0), " to ", io.offsets(heads),
         ", expected within 0 to ", io.positions.sizes[0]);
  for (std::int64_t g = 0; g < heads; ++g) {
    const std::int64_t count = io.offsets(g + 1) - io.offsets(g), start = io.starts(g);
    if (count < 0)
      fail(ErrorCode::usage, "gather: offsets fall from ", io.offsets(g), " to ", io.offsets(g + 1),
           " at head ", g);
    if (count > 0 && (start < 0 || start > io.to_rows - count))
      fail(ErrorCode::usage, "gather: head ", g, " writes rows ", start, " to ", start, " + ",
           count, ", expected within 0 to ", io.to_rows);
    for (std::int64_t i = io.offsets(g); i < io.offsets(g + 1); ++i)
      if (io.positions(i) < 0 || io.positions(i) >= io.from.sizes[1])
        fail(ErrorCode::usage, "gather: head ", g, " keeps position ", io.positions(i),
             ", expected within 0 to ", io.from.sizes[1] - 1);
  }
}

}  // namespace

void gather(const Gather& io, const Exec& exec) {
  check_shapes(io);
  const Backend backend = choose(exec, io.from.memory);
  if (io.from.sizes[0] == 0) return;
  if (io.from.memory == Memory::host) check_rows(io);
  switch (backend) {
    case Backend::reference:
      return reference::gather(io);
#if KVATLAS_HAS_CUDA
    case Backend::cuda:
      return cuda::gather(io, exec.stream);
#endif
    default:
      return io.from.type == DType::f32 ? gather_body<float>(io) : gather_body<std::uint16_t>(io);
  }
}

}  // namespace kvatlas::kernels
