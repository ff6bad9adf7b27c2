// SPDX-License-Identifier: Apache-2.0
// Plain C++: memcpy already copies rows with the best instructions of the machine.
#include "kernels/gather.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/check.hpp"
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
  require_array("from", io.from);
  require_array("positions", io.positions);
  require_shape("offsets", io.offsets.sizes, {io.from.sizes[0] + 1});
  require_array("offsets", io.offsets);
  require_shape("starts", io.starts.sizes, {io.from.sizes[0]});
  require_array("starts", io.starts);
  for (const Memory memory : {io.positions.memory, io.offsets.memory, io.starts.memory})
    require_same_memory("positions, offsets or starts", memory, io.from.memory);
  require_range("to_rows", io.to_rows, 0, std::numeric_limits<std::int64_t>::max());
  if (io.to_rows > 0 && io.from.sizes[2] > 0 && io.to == nullptr)
    fail(ErrorCode::usage, "to has no data");
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

void gather_cpu(const Gather& io) {
  io.from.type == DType::f32 ? gather_body<float>(io) : gather_body<std::uint16_t>(io);
}

}  // namespace

void gather(const Gather& io, const Exec& exec) {
  check_shapes(io);
  const Backend backend = choose(exec, io.from.memory);
  if (io.from.sizes[0] == 0) return;
  if (io.from.memory == Memory::host) check_rows(io);
  run_body(backend, exec, io, reference::gather, gather_cpu, KVATLAS_CUDA_BODY(gather));
}

}  // namespace kvatlas::kernels
