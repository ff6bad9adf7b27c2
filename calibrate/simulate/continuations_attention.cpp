// SPDX-License-Identifier: Apache-2.0
// What the continuations of a step attend to in one layer: parts of the prompt's cache, of copied
// rows and of generated ones, joined by their log-sum-exps.
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/continuations_impl.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::calibrate {

using capture::any_view;
using capture::ContinuationRows;
using capture::tensor_of;
using capture::view_of;

namespace {

AnyView<2> flat(const at::Tensor& rows) { return any_view<2>(rows.view({-1, rows.size(-1)})); }

Ranges shifted(Ranges ranges, std::int64_t by) {
  for (auto& range : ranges) {
    range.begin += by;
    range.end += by;
  }
  return ranges;
}

}  // namespace

void Reads::add(std::int64_t row, const std::vector<Ranges>& runs) {
  std::size_t most = 0;
  for (const auto& of_head : runs) most = std::max(most, of_head.size());
  for (std::size_t i = 0; i < most; ++i) {
    rows.push_back(row);
    for (const auto& of_head : runs) {
      starts.push_back(i < of_head.size() ? of_head[i].begin : 0);
      lengths.push_back(i < of_head.size() ? of_head[i].length() : 0);
    }
  }
}

/// What every row reads by its own queries and keys.
void Continuations::State::add_own(const ContinuationRows& in, Parts& parts) {
  const auto cache = prompt.cache(in.layer);
  const std::int64_t step = head_step(cache.key);
  Reads from_prompt, from_copies, from_generated;
  std::vector<Ranges> of_prompt(static_cast<std::size_t>(K())), of_copies(of_prompt),
      of_generated(of_prompt);
  for (std::size_t r = 0; r < active.size(); ++r) {
    Stream& stream = *active[r];
    const auto row = static_cast<std::int64_t>(r);
    for (std::int64_t g = 0; g < K(); ++g) {
      const Head& head = stream.head(in.layer, g);
      Ranges seen = head.seen_from(in.position, in.window, stream.first);
      if (stream.plan->pod)
        seen = intersect(seen, proximal_to(in.position, stream.plan->pod->proximal));
      const auto at = static_cast<std::size_t>(g);
      of_prompt[at] = shifted(intersect(seen, head.ranges), g * step);
      of_copies[at] = rows_of(seen, head.copied);
      of_generated[at] = shifted(stream.generated(seen, in.layer), generated_start(stream, g));
    }
    if (stream.plan->quest) {
      of_prompt =
          quest.choose(*stream.plan->quest, in, row, cache.key, stream.first, stream.read_bytes);
      for (std::int64_t g = 0; g < K(); ++g) {
        auto& of_head = of_prompt[g];
        of_head = shifted(std::move(of_head), g * step);
      }
    }
    from_prompt.add(row, of_prompt);
    from_copies.add(row, of_copies);
    from_generated.add(row, of_generated);
  }
  const auto l = static_cast<std::size_t>(in.layer);
  read(from_prompt, queries[l], flat(cache.key), flat(cache.value), in, false, parts);
  read(from_copies, queries[l], flat(copies.keys(in.layer)), flat(copies.values(in.layer)), in,
       false, parts);
  read(from_generated, queries[l], flat(generated_key[l]), flat(generated_value[l]), in, false,
       parts);
}

/// PoD's distant tokens: by the query and keys of the lowest layer of each head's block.
void Continuations::State::add_borrowed(const ContinuationRows& in, Parts& parts) {
  const std::int64_t l = in.layer, step = head_step(prompt.cache(l).key);
  for (std::int64_t m = 0; m <= l; ++m) {
    Reads from_prompt, from_copies, from_generated;
    for (std::size_t r = 0; r < active.size(); ++r) {
      const Stream& stream = *active[r];
      if (!stream.plan->pod) continue;
      const Ranges distant = distant_from(in.position, stream.plan->pod->proximal);
      std::vector<Ranges> of_prompt(static_cast<std::size_t>(K())), of_copies(of_prompt),
          of_generated(of_prompt);
      for (std::int64_t g = 0; g < K(); ++g) {
        if (!stream.shares(l, m, g, group())) continue;
        const Head &lowest = stream.head(m, g), &own = stream.head(l, g);
        const auto seen_by = [&](const Head& head) {
          return head.seen_from(in.position, in.window, stream.first);
        };
        const Ranges seen = intersect(intersect(seen_by(lowest), seen_by(own)), distant);
        const auto at = static_cast<std::size_t>(g);
        of_prompt[at] = shifted(intersect(seen, lowest.ranges), g * step);
        of_copies[at] = rows_of(seen, stream.copied(l, m, g));
        of_generated[at] = shifted(stream.generated(seen, m), generated_start(stream, g));
      }
      const auto row = static_cast<std::int64_t>(r);
      from_prompt.add(row, of_prompt);
      from_copies.add(row, of_copies);
      from_generated.add(row, of_generated);
    }
    std::size_t part = parts.rows.size(), call = parts.lse.size();
    const at::Tensor& query = queries[m];
    read(from_prompt, query, flat(prompt.cache(m).key), flat(prompt.cache(l).value), in, m < l,
         parts);
    read(from_copies, query, flat(copies.keys(l)), flat(copies.values(l)), in, m < l, parts);
    read(from_generated, query, flat(generated_key[m]), flat(generated_value[l]), in, m < l, parts);
    // Of the heads that were computed, those of other blocks.
    for (; call < parts.lse.size(); ++call) {
      const std::int64_t count = parts.lse[call].size(0);
      at::Tensor hidden = at::zeros({count, config.n_heads}, at::kBool);
      for (std::int64_t i = 0; i < count; ++i, ++part) {
        const Pod& pod = *active[parts.rows[part]]->plan->pod;
        for (std::int64_t h = 0; h < config.n_heads; ++h)
          hidden.mutable_data_ptr<bool>()[i * config.n_heads + h] = pod.lowest[h][l] != m;
      }
      parts.lse[call].masked_fill_(hidden.to(parts.lse[call].device()),
                                   -std::numeric_limits<float>::infinity());
    }
  }
}

void Continuations::State::read(const Reads& reads, const at::Tensor& query, const AnyView<2>& keys,
                                const AnyView<2>& values, const ContinuationRows& in, bool distant,
                                Parts& parts) const {
  const auto count = static_cast<std::int64_t>(reads.rows.size());
  if (count == 0) return;
  const auto device = query.device();
  const auto on_device = [&](const std::vector<std::int64_t>& values_of, at::IntArrayRef shape) {
    return at::tensor(values_of, at::kLong).view(shape).to(device);
  };
  const at::Tensor starts = on_device(reads.starts, {count, K()});
  const at::Tensor lengths = on_device(reads.lengths, {count, K()});
  const at::Tensor of_rows = query.index_select(0, on_device(reads.rows, {count}));
  const auto float_on = query.options().dtype(at::kFloat);
  const at::Tensor out = at::empty({count, config.n_heads, config.head_dim}, float_on);
  const at::Tensor lse = at::empty({count, config.n_heads}, float_on);
  kernels::ragged_decode(
      {any_view<3>(of_rows), keys, values, view_of<const std::int64_t, 2>(starts),
       view_of<const std::int64_t, 2>(lengths), static_cast<float>(in.scale),
       static_cast<float>(in.softcap), view_of<float, 3>(out), view_of<float, 2>(lse)});
  parts.out.push_back(out);
  parts.lse.push_back(lse);
  parts.rows.insert(parts.rows.end(), reads.rows.begin(), reads.rows.end());
  parts.distant.insert(parts.distant.end(), reads.rows.size(), distant ? 1 : 0);
}

/// Heads whose proximal part outweighs the distant one by enough skip the distant one.
void Continuations::State::apply_gates(const ContinuationRows& in, Parts& parts) {
  const auto H = config.n_heads;
  const at::Tensor lse = at::cat(parts.lse).cpu();
  const auto log_sum = [&](std::size_t row, std::int64_t h, bool distant) {
    double sum = 0;
    for (std::size_t p = 0; p < parts.rows.size(); ++p)
      if (parts.rows[p] == static_cast<std::int64_t>(row) && (parts.distant[p] != 0) == distant)
        sum += std::exp(
            static_cast<double>(lse.const_data_ptr<float>()[static_cast<std::int64_t>(p) * H + h]));
    return std::log(sum);
  };
  at::Tensor skip = at::zeros({static_cast<std::int64_t>(parts.rows.size()), H}, at::kBool);
  for (std::size_t r = 0; r < active.size(); ++r) {
    Stream& stream = *active[r];
    if (!stream.plan->pod || stream.plan->pod->tau >= 1) continue;
    for (std::int64_t h = 0; h < H; ++h) {
      if (stream.plan->pod->lowest[h][in.layer] == in.layer) continue;
      const double distant = log_sum(r, h, true);
      if (distant == -std::numeric_limits<double>::infinity()) continue;  // there is none
      ++stream.gates;
      const double g = 1 / (1 + std::exp(distant - log_sum(r, h, false)));
      if (!(g >= stream.plan->pod->tau)) continue;
      ++stream.skipped;
      for (std::size_t p = 0; p < parts.rows.size(); ++p)
        if (parts.rows[p] == static_cast<std::int64_t>(r) && parts.distant[p] != 0)
          skip.mutable_data_ptr<bool>()[static_cast<std::int64_t>(p) * H + h] = true;
    }
  }
  std::int64_t first = 0;
  for (auto& of_call : parts.lse) {
    of_call.masked_fill_(skip.narrow(0, first, of_call.size(0)).to(of_call.device()),
                         -std::numeric_limits<float>::infinity());
    first += of_call.size(0);
  }
}

/// One softmax over all parts of a row.
void Continuations::State::join(const Parts& parts, const ContinuationRows& in) const {
  const auto R = static_cast<std::int64_t>(active.size());
  const at::Tensor out = at::cat(parts.out), lse = at::cat(parts.lse);
  const at::Tensor row = at::tensor(parts.rows, at::kLong).to(out.device());
  const at::Tensor most =
      at::full({R, config.n_heads}, -std::numeric_limits<float>::infinity(), lse.options())
          .scatter_reduce_(0, row.unsqueeze(1).expand_as(lse), lse, "amax");
  const at::Tensor weight = at::exp(lse - most.index_select(0, row));
  const at::Tensor sum = at::zeros({R, config.n_heads}, lse.options()).index_add_(0, row, weight);
  View<float, 3> to = in.out;
  const at::Tensor target = tensor_of(AnyView<3>(to));
  target.zero_().index_add_(0, row, out * weight.unsqueeze(-1));
  target.div_(sum.unsqueeze(-1));
}

void Continuations::State::attend(const ContinuationRows& in) {
  const auto l = static_cast<std::size_t>(in.layer);
  const auto rows = static_cast<std::int64_t>(active.size()), d = config.head_dim;
  queries[l] = tensor_of(in.query).clone();
  const auto store = [&](const at::Tensor& to, const AnyView<3>& from) {
    to.view({-1, d}).index_copy_(0, generated_index,
                                 tensor_of(from).reshape({rows * K(), d}).to(options.dtype()));
  };
  store(generated_key[l], in.key);
  store(generated_value[l], in.value);

  Parts parts;
  add_own(in, parts);
  const auto any = [&](auto test) {
    return std::any_of(active.begin(), active.end(), [&](const Stream* stream) {
      return stream->plan->pod && test(*stream->plan->pod);
    });
  };
  if (any([](const Pod&) { return true; })) add_borrowed(in, parts);
  if (any([](const Pod& pod) { return pod.tau < 1; })) apply_gates(in, parts);
  join(parts, in);
}

}  // namespace kvatlas::calibrate
