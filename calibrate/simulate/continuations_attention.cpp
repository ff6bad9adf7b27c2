// SPDX-License-Identifier: Apache-2.0
// What the continuations of a step attend to in one layer: parts of the prompt's cache, of copied
// rows and of generated ones, joined by their log-sum-exps.
#include <algorithm>
#include <array>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "base/parallel.hpp"
#include "calibrate/simulate/continuations_impl.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::calibrate {

using capture::any_view;
using capture::ContinuationRows;
using capture::tensor_of;
using capture::view_of;

namespace {

AnyView<2> flat(const at::Tensor& rows) { return any_view<2>(rows.view({-1, rows.size(-1)})); }

at::Tensor numbers_on(at::Device device, at::IntArrayRef numbers) {
  return at::tensor(numbers, at::kLong).to(device);
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

void LayerReads::add(std::int64_t row, const HeadRuns& runs) {
  prompt.add(row, runs.prompt);
  copies.add(row, runs.copies);
  generated.add(row, runs.generated);
}

void Continuations::State::add_runs(const Stream& stream, const Ranges& seen, std::int64_t l,
                                    std::int64_t m, std::int64_t g, HeadRuns& runs) const {
  const auto at = static_cast<std::size_t>(g);
  runs.prompt[at] = shifted(intersect(seen, stream.head(m, g).ranges), g * prompt_steps[l]);
  runs.copies[at] = rows_of(seen, stream.copied(l, m, g));
  runs.generated[at] = shifted(stream.generated(seen, m, g), generated_start(stream, g));
}

/// What every row reads by its own queries and keys.
void Continuations::State::add_own(const ContinuationRows& in, Parts& parts) {
  const std::int64_t l = in.layer;
  std::vector<HeadRuns> of_rows(active.size(), HeadRuns(K()));
  parallel_for(std::ssize(active), [&](std::int64_t row, int) {
    const Stream& stream = *active[row];
    for (std::int64_t g = 0; g < K(); ++g) {
      Ranges seen = stream.head(l, g).seen_from(in.position, in.window, stream.first);
      if (stream.plan->pod)
        seen = intersect(seen, proximal_to(in.position, stream.plan->pod->proximal));
      add_runs(stream, seen, l, l, g, of_rows[row]);
    }
  });
  LayerReads reads;
  for (std::int64_t row = 0; row < std::ssize(active); ++row) {
    Stream& stream = *active[row];
    HeadRuns& runs = of_rows[row];
    if (stream.plan->quest) {
      runs.prompt = quest.choose(*stream.plan->quest, in, row, prompt.cache(l).key, stream.first,
                                 stream.bytes.read);
      for (std::int64_t g = 0; g < K(); ++g)
        runs.prompt[g] = shifted(std::move(runs.prompt[g]), g * prompt_steps[l]);
    }
    reads.add(row, runs);
  }
  read(reads, l, in, parts);
}

void Continuations::State::read(const LayerReads& reads, std::int64_t m, const ContinuationRows& in,
                                Parts& parts) const {
  const std::int64_t l = in.layer;
  const bool distant = m < l;
  read(reads.prompt, queries[m], flat(prompt.cache(m).key), flat(prompt.cache(l).value), in,
       distant, parts);
  read(reads.copies, queries[m], flat(copies.keys(l)), flat(copies.values(l)), in, distant, parts);
  read(reads.generated, queries[m], flat(generated_key[m]), flat(generated_value[l]), in, distant,
       parts);
}

void Continuations::State::read(const Reads& reads, const at::Tensor& query, const AnyView<2>& keys,
                                const AnyView<2>& values, const ContinuationRows& in, bool distant,
                                Parts& parts) const {
  const auto count = static_cast<std::int64_t>(reads.rows.size());
  if (count == 0) return;
  const auto device = query.device();
  const at::Tensor starts = numbers_on(device, reads.starts).view({count, K()});
  const at::Tensor lengths = numbers_on(device, reads.lengths).view({count, K()});
  const at::Tensor of_rows = query.index_select(0, numbers_on(device, reads.rows));
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

void Continuations::State::read_for(const LayerReads& reads, std::int64_t m,
                                    const ContinuationRows& in,
                                    const std::function<bool(const Stream&, std::int64_t)>& visible,
                                    Parts& parts) {
  std::size_t part = parts.rows.size(), call = parts.lse.size();
  read(reads, m, in, parts);
  for (; call < parts.lse.size(); ++call) {
    const std::int64_t count = parts.lse[call].size(0);
    at::Tensor hidden = at::zeros({count, config.n_heads}, at::kBool);
    for (std::int64_t i = 0; i < count; ++i, ++part)
      for (std::int64_t h = 0; h < config.n_heads; ++h)
        hidden.mutable_data_ptr<bool>()[i * config.n_heads + h] =
            !visible(*active[parts.rows[part]], h);
    parts.lse[call].masked_fill_(hidden.to(parts.lse[call].device()),
                                 -std::numeric_limits<float>::infinity());
  }
}

/// The tokens that query heads keep for themselves.
void Continuations::State::add_by_query_head(const ContinuationRows& in, Parts& parts) {
  const std::int64_t l = in.layer;
  const auto any_keeps = [&](const Stream* stream) {
    const auto keeps = [](const Head& head) { return !head.by_query_head.empty(); };
    return std::any_of(stream->layer(l).heads.begin(), stream->layer(l).heads.end(), keeps);
  };
  if (std::none_of(active.begin(), active.end(), any_keeps)) return;
  for (std::int64_t j = 0; j < group(); ++j) {
    LayerReads reads;
    for (std::size_t r = 0; r < active.size(); ++r) {
      const Stream& stream = *active[r];
      HeadRuns runs(K());
      for (std::int64_t g = 0; g < K(); ++g) {
        const Head& head = stream.head(l, g);
        if (head.by_query_head.empty()) continue;
        runs.copies[g] =
            rows_of(head.seen_from(in.position, in.window, stream.first), head.by_query_head[j]);
      }
      reads.add(static_cast<std::int64_t>(r), runs);
    }
    read_for(
        reads, l, in, [&](const Stream&, std::int64_t h) { return h % group() == j; }, parts);
  }
}

/// One softmax over all parts of a row.
void Continuations::State::join(const Parts& parts, const ContinuationRows& in) const {
  std::vector<at::Tensor> all_out = parts.out, all_lse = parts.lse;
  std::vector<std::vector<std::int64_t>> of_rows(active.size());
  for (std::size_t part = 0; part < parts.rows.size(); ++part)
    of_rows[parts.rows[part]].push_back(static_cast<std::int64_t>(part));
  if (in.sinks.data) {  // a part of every row that takes its share and gives nothing
    for (auto& of_row : of_rows) of_row.push_back(std::ssize(parts.rows));
    all_out.push_back(at::zeros({1, config.n_heads, config.head_dim}, all_out.front().options()));
    all_lse.push_back(tensor_of(in.sinks).unsqueeze(0));
  }
  const at::Tensor out = at::cat(all_out), lse = at::cat(all_lse);
  View<float, 3> to = in.out;
  const at::Tensor target = tensor_of(AnyView<3>(to));
  std::map<std::size_t, std::vector<std::int64_t>> rows_with;  // so many parts
  for (std::size_t row = 0; row < of_rows.size(); ++row)
    rows_with[of_rows[row].size()].push_back(static_cast<std::int64_t>(row));
  for (const auto& [count, rows] : rows_with) {
    std::vector<std::int64_t> numbers;
    for (const auto row : rows)
      numbers.insert(numbers.end(), of_rows[row].begin(), of_rows[row].end());
    const at::Tensor index = numbers_on(out.device(), numbers);
    const std::array shape{std::ssize(rows), static_cast<std::ptrdiff_t>(count)};
    const auto by_row = [&](const at::Tensor& of_parts) {
      return of_parts.index_select(0, index).unflatten(0, shape);
    };
    const at::Tensor weight = at::softmax(by_row(lse), 1).unsqueeze(-1);
    target.index_copy_(0, numbers_on(out.device(), rows), (by_row(out) * weight).sum(1));
  }
}

void Continuations::State::attend(const ContinuationRows& in) {
  const auto l = static_cast<std::size_t>(in.layer);
  const auto rows = static_cast<std::int64_t>(stepping.size());
  active.assign(stepping.begin(), stepping.begin() + in.query.sizes[0]);
  const at::Tensor row_of = numbers_on(options.device(), {in.row_of.data(), in.row_of.size()});
  const auto of_all = [&](const AnyView<3>& of_rows) {
    return tensor_of(of_rows).index_select(0, row_of);
  };
  queries[l] = of_all(in.query);
  for (std::int64_t row = 0; row < rows; ++row)
    if (const Plan& plan = *stepping[static_cast<std::size_t>(row)]->plan; plan.fp8_queries)
      round_queries(plan.formats_of(in.layer), plan.scales, in.layer,
                    any_view<3>(queries[l][row].unsqueeze(1)));
  remember_queries(in);
  const auto store = [&](const at::Tensor& to, const AnyView<3>& from, KvSide side) {
    const at::Tensor added = of_all(from).to(options.dtype()).view({rows * K(), -1});
    round_generated(in.layer, side, added);
    to.view({-1, config.head_dim}).index_copy_(0, generated_index, added);
  };
  store(generated_key[l], in.key, KvSide::keys);
  store(generated_value[l], in.value, KvSide::values);

  Parts parts;
  add_own(in, parts);
  add_by_query_head(in, parts);
  add_borrowed(in, parts);
  apply_gates(in, parts);
  join(parts, in);
}

}  // namespace kvatlas::calibrate
