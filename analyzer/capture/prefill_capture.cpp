// SPDX-License-Identifier: Apache-2.0
// What is taken of a prompt's layers: last rows, strided rows, norms, maps and raw tensors.
#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/sample_capture_impl.hpp"
#include "analyzer/capture/selections-inl.hpp"
#include "base/parallel.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::capture {
namespace {

namespace name = profile::name;

/// Rows have a value a token, most of which are next to nothing: this leaves out less than 2^-24 of
/// the attention a token, and a quarter of the file of a long prompt.
constexpr float kLeastOfRows = 0x1p-24f;

const char* element(const AnyView<3>& view, std::int64_t token) {
  return static_cast<const char*>(view.data) + token * view.strides[1] * dtype_bytes(view.type);
}

/// least, mean, standard deviation, greatest of each row of norms [n_kv_heads, n].
at::Tensor norm_statistics(const at::Tensor& norms) {
  at::Tensor out = at::empty({norms.size(0), 4}, at::kFloat);
  const auto n = norms.size(1);
  for (std::int64_t head = 0; head < norms.size(0); ++head) {
    const float* values = norms.const_data_ptr<float>() + head * n;
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]);
    const double mean = sum / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double off = static_cast<double>(values[i]) - mean;
      squares += off * off;
    }
    float* to = out.mutable_data_ptr<float>() + head * 4;
    to[0] = *std::min_element(values, values + n);
    to[1] = static_cast<float>(mean);
    to[2] = static_cast<float>(std::sqrt(squares / static_cast<double>(n)));
    to[3] = *std::max_element(values, values + n);
  }
  return out;
}

}  // namespace

at::Tensor SampleCapture::State::buffer(std::size_t number, at::IntArrayRef shape,
                                        const at::TensorOptions& options) {
  if (buffers.size() <= number) buffers.resize(number + 1);
  if (!buffers[number].defined()) buffers[number] = at::empty(shape, options);
  return buffers[number];
}

void SampleCapture::State::store_log2(const at::Tensor& shares, const std::string& name,
                                      std::int64_t layer, std::vector<std::int64_t> shape,
                                      float least) {
  profile::Array& to = array(name, std::move(shape));
  const auto type = to.type == profile::Type::f32   ? at::kFloat
                    : to.type == profile::Type::f16 ? at::kHalf
                                                    : at::kByte;
  const std::int64_t bytes = shares.numel() * profile::type_bytes(to.type);
  at::from_blob(to.bytes.data() + layer * bytes, shares.sizes(), type)
      .copy_(stored_log2(shares, type, least));
}

at::Tensor SampleCapture::State::to_look_at(const at::Tensor& values) const {
  return settings.exact_maps() ? values : values.to(at::kBFloat16).to(at::kFloat);
}

void SampleCapture::State::add_queries(std::int64_t layer, const AnyView<3>& query) {
  const std::int64_t taken = n_tokens - settings.skip_queries;
  if (taken <= 0) return;  // stays NaN
  const at::Tensor rows = tensor_of(query).narrow(1, settings.skip_queries, taken).to(at::kFloat);
  const auto mean_of_tokens = [](const at::Tensor& values) {
    return values.mean(1, false, at::kDouble).to(at::kFloat);
  };
  store(mean_of_tokens(rows), name::kQueryMean, {layer});
  if (settings.queries) {
    const std::int64_t pairs = config.rotary_dim / 2;
    store(mean_of_tokens(at::hypot(rows.narrow(2, 0, pairs), rows.narrow(2, pairs, pairs))),
          name::kQueryMagnitude, {layer});
  }
  if (settings.covariance)
    store(at::matmul(rows.transpose(1, 2), rows) / static_cast<double>(taken), name::kQueryProducts,
          {layer});
}

void SampleCapture::State::add_rows(const AttentionInputs& in) {
  const std::int64_t H = config.n_heads, n = n_tokens;
  const std::int64_t rows = std::min(settings.last_rows(), n), held = rows_held();
  const auto P = static_cast<std::int64_t>(settings.proximities.size());
  kernels::LastRows io = last_rows_of(in, rows);
  at::Tensor probs, mass, proximal, distant;
  if (held > 0) {
    probs = buffer(2 * profile::kMapLevels + 2, {H, rows, n}, float_on(in.query));
    io.probs = view_of<float, 3>(probs);
  }
  if (settings.lazy) {
    mass = at::empty({P, H, rows}, float_on(in.query));
    proximal = at::empty_like(mass);
    distant = at::empty_like(mass);
    io.grid = settings.proximities;
    io.mass = view_of<float, 3>(mass);
    io.proximal_lse = view_of<float, 3>(proximal);
    io.distant_lse = view_of<float, 3>(distant);
  }
  kernels::last_rows(io);
  if (held > 0) {
    if (!held_rows.defined()) held_rows = at::empty({layers(), H, held, n}, float_on(in.query));
    held_rows.select(0, in.layer).copy_(probs.narrow(1, rows - held, held));
    if (with_maps && settings.maps) {
      const std::int64_t shown = std::min(settings.js_rows, held);
      store_log2(probs.narrow(1, rows - shown, shown), name::kRows, in.layer,
                 {layers(), H, shown, n}, settings.exact_maps() ? 0x1p-126f : kLeastOfRows);
    }
  }
  if (!settings.lazy) return;
  // Rows before the prompt stay NaN.
  const std::int64_t taken = std::min(settings.mass_rows, rows);
  const auto keep = [&](const at::Tensor& values, const char* to) {
    at::Tensor padded = at::full({P, H, settings.mass_rows}, std::nan(""), at::kFloat);
    padded.narrow(2, settings.mass_rows - taken, taken)
        .copy_(values.narrow(2, rows - taken, taken));
    for (std::int64_t p = 0; p < P; ++p) store(padded.select(0, p), to, {p, in.layer});
  };
  keep(mass, name::kMass);
  keep(proximal, name::kProximalLse);
  keep(distant, name::kDistantLse);
}

void SampleCapture::State::add_strided_rows(const AttentionInputs& in) {
  constexpr std::int64_t kMostRows = 512, kRowsABlock = 32;
  const std::int64_t stride = (n_tokens + kMostRows - 1) / kMostRows;
  const std::int64_t rows = n_tokens / stride, H = config.n_heads;
  const auto P = static_cast<std::int64_t>(settings.proximities.size());
  const auto position = [&](std::int64_t row) { return (row + 1) * stride - 1; };
  at::Tensor mass = at::empty({P, H, rows}, float_on(in.query));
  // The last rows of a shorter prompt are rows of this one.
  const auto take = [&](std::int64_t block, int) {
    const std::int64_t start = block * kRowsABlock, count = std::min(kRowsABlock, rows - start);
    kernels::LastRows io = rows_of(in);
    io.queries.data = element(in.query, position(start));
    io.queries.sizes[1] = count;
    io.queries.strides[1] *= stride;
    io.keys.sizes[1] = position(start + count - 1) + 1;
    io.row_step = stride;
    io.grid = settings.proximities;
    io.mass = view_of<float, 3>(mass.narrow(2, start, count));
    kernels::last_rows(io);
  };
  const std::int64_t blocks = (rows + kRowsABlock - 1) / kRowsABlock;
  if (mass.is_cpu())
    parallel_for(blocks, take);
  else
    for (std::int64_t block = 0; block < blocks; ++block) take(block, 0);
  const at::Tensor layer_mass = mass.to(at::kDouble).mean(1).to(at::kFloat);
  for (std::int64_t p = 0; p < P; ++p)
    store(layer_mass.select(0, p), name::kRowMass, {p, in.layer}, {P, layers(), rows});
  auto positions = array(name::kRowPositions, {rows}).values<std::int32_t>();
  for (std::int64_t row = 0; row < rows; ++row)
    positions[row] = static_cast<std::int32_t>(position(row));
}

void SampleCapture::State::add_norms(const AttentionInputs& in) {
  const auto add = [&](const AnyView<3>& view, const char* norm, const char* range,
                       const char* of_token) {
    const at::Tensor tensor = tensor_of(view);
    const at::Tensor norms =
        at::linalg_vector_norm(tensor, 2, at::IntArrayRef{2}, false, at::kFloat).cpu();
    store(norm_statistics(norms), norm, {in.layer});
    store(at::amin(tensor, 1).to(at::kFloat), range, {0, in.layer});
    store(at::amax(tensor, 1).to(at::kFloat), range, {1, in.layer});
    if (with_maps && settings.maps)
      store(to_look_at(norms), of_token, {in.layer}, {layers(), config.n_kv_heads, n_tokens});
  };
  add(in.key, name::kKeyNorm, name::kKeyRange, name::kKeyNormOfToken);
  add(in.value, name::kValueNorm, name::kValueRange, name::kValueNormOfToken);
}

void SampleCapture::State::add_ranges(const AttentionInputs& in) {
  const std::int64_t K = config.n_kv_heads;
  const auto add = [&](const AnyView<3>& view, profile::RangeOf side) {
    const auto number = static_cast<std::int64_t>(side);
    // The heads of a group of queries lie one after the other.
    const at::Tensor heads = tensor_of(view).to(at::kFloat).contiguous().cpu().view({K, -1});
    store(heads.abs().amax(1), name::kLargest, {number, in.layer});
    at::Tensor counts = at::zeros({K, profile::kMagnitudeBins}, at::kLong);
    auto* all = counts.mutable_data_ptr<std::int64_t>();
    const auto* values = heads.const_data_ptr<float>();
    const std::int64_t of_head = heads.size(1);
    parallel_for(K, [&](std::int64_t head, int) {
      for (std::int64_t i = head * of_head; i < (head + 1) * of_head; ++i)
        ++all[head * profile::kMagnitudeBins + profile::magnitude_bin(values[i])];
    });
    store(counts, name::kMagnitudes, {number, in.layer});
  };
  add(in.key, profile::RangeOf::keys);
  add(in.value, profile::RangeOf::values);
  add(in.query, profile::RangeOf::queries);
}

void SampleCapture::State::add_maps(const AttentionInputs& in) {
  const std::int64_t H = config.n_heads, n = n_tokens;
  kernels::AttentionMaps io = maps_of(in, [&] { return buffer(0, {H, n}, float_on(in.query)); });
  io.block = kernels::finest_map_block(n, settings.map_blocks());
  std::vector<at::Tensor> means, maxima;
  if (settings.maps) {
    std::vector<std::int32_t> blocks;
    for (std::int64_t block = io.block; static_cast<int>(means.size()) < profile::kMapLevels;
         block *= 2) {
      const std::int64_t side = kernels::map_blocks(n, block);
      means.push_back(buffer(2 * means.size() + 2, {H, side, side}, float_on(in.query)));
      maxima.push_back(buffer(2 * maxima.size() + 3, {H, side, side}, float_on(in.query)));
      io.levels.push_back({view_of<float, 3>(means.back()), view_of<float, 3>(maxima.back())});
      blocks.push_back(static_cast<std::int32_t>(block));
      if (side == 1) break;
    }
    auto stored =
        array(name::kMapBlocks, {static_cast<std::int64_t>(blocks.size())}).values<std::int32_t>();
    std::copy(blocks.begin(), blocks.end(), stored.begin());
  }
  at::Tensor columns;
  if (settings.columns) {
    columns = buffer(1, {H, n}, float_on(in.query));
    io.column_sums = view_of<float, 2>(columns);
  }
  kernels::attention_maps(io);
  for (std::size_t level = 0; level < means.size(); ++level) {
    const std::int64_t side = means[level].size(1);
    const auto keep = [&](const at::Tensor& map, bool maximum) {
      store_log2(map, profile::map_name(maximum, static_cast<int>(level)), in.layer,
                 {layers(), H, side, side});
    };
    keep(means[level], false);
    keep(maxima[level], true);
  }
  if (!settings.columns) return;
  column_sums[in.layer] = columns.cpu().clone();
  store(to_look_at(columns), name::kColumnSums, {in.layer}, {layers(), H, n});
}

void SampleCapture::State::add_raw(const AttentionInputs& in) {
  const auto& wanted = settings.keep_layers;
  if (std::find(wanted.begin(), wanted.end(), in.layer) == wanted.end()) return;
  const auto keep = [&](const AnyView<3>& view, const char* what) {
    const at::Tensor tensor = tensor_of(view).to(at::kFloat);
    store(tensor, profile::raw_name(what, in.layer), {}, tensor.sizes().vec());
  };
  keep(in.query, "query");
  keep(in.key, "key");
  keep(in.value, "value");
}

}  // namespace kvatlas::capture
