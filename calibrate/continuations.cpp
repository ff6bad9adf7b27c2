// SPDX-License-Identifier: Apache-2.0
#include "calibrate/continuations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/cache_copies_impl.hpp"
#include "calibrate/quest_impl.hpp"
#include "kernels/base/error.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::calibrate {

using capture::any_view;
using capture::ContinuationRows;
using capture::tensor_of;
using capture::view_of;

namespace {

/// What of tokens 0 .. n - 1 lies in begin .. end - 1.
Range within(const Range& range, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = std::max(range.begin, begin);
  return {first, std::max(first, std::min(range.end, end))};
}

void add_range(std::vector<Range>& ranges, const Range& range) {
  if (range.length() > 0) ranges.push_back(range);
}

/// Parts of one array of keys and values that rows of the step attend to: up to one run of cached
/// rows a KV head each.
struct Reads {
  explicit Reads(std::int64_t heads) : kv_heads(heads) {}

  /// An empty part of row `row`, to be filled at(…).
  std::size_t begin(std::int64_t row) {
    rows.push_back(row);
    starts.resize(starts.size() + static_cast<std::size_t>(kv_heads));
    lengths.resize(starts.size());
    return rows.size() - 1;
  }
  void set(std::size_t part, std::int64_t g, std::int64_t start, std::int64_t length) {
    const std::size_t at = part * static_cast<std::size_t>(kv_heads) + static_cast<std::size_t>(g);
    starts[at] = start;
    lengths[at] = length;
  }

  std::int64_t kv_heads;
  std::vector<std::int64_t> rows, starts, lengths;
};

/// Softmax parts of all rows, to be joined by their log-sum-exps.
struct Parts {
  std::vector<at::Tensor> out, lse;   // [parts, n_heads, d], [parts, n_heads]
  std::vector<std::int64_t> rows;     // of the step
  std::vector<std::uint8_t> distant;  // of a PoD head that borrows its keys
};

}  // namespace

struct Continuations::State {
  capture::Engine& engine;
  const capture::Sequence& prompt;
  const model::Config& config;
  std::int64_t n, steps;
  at::TensorOptions options;  // of the cache
  CacheCopies copies;
  QuestPages quest;

  struct Head {
    std::vector<Range> ranges;  // of the prompt, read in place
    std::optional<Proximity> rolling;
    CopiedRows copied;
  };
  struct Layer {
    std::vector<Head> heads;
    std::int64_t generated_from = 0;  // generated rows before it are among the copied ones
  };
  struct Stream {
    std::shared_ptr<const Plan> plan;
    std::int64_t first = 0;  // position of generated row 0
    std::int64_t taken = 0;  // generated rows
    std::vector<Layer> layers;
    /// PoD over a selection: [layer, lowest layer, KV head] -> the lowest layer's tokens with its
    /// keys and this layer's values.
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, CopiedRows> borrowed;
    std::int64_t gates = 0, skipped = 0;
    double read_bytes = 0;
  };
  std::vector<Stream> streams;
  std::vector<at::Tensor> generated_key, generated_value;  // [layer] of [streams, K, steps, d]

  // Of the step that runs.
  std::vector<Stream*> active;
  at::Tensor generated_index;       // rows of the flat generated arrays, [rows * K]
  std::vector<at::Tensor> queries;  // [layer] of [rows, n_heads, d], kept for PoD

  State(capture::Engine& e, const capture::Sequence& p, std::int64_t tokens, std::int64_t most)
      : engine(e),
        prompt(p),
        config(e.model().config()),
        n(tokens),
        steps(std::max<std::int64_t>(1, most)),
        options(tensor_of(p.cache(0).key).options()),
        copies(config, options),
        quest(config) {
    generated_key.resize(static_cast<std::size_t>(config.n_layers));
    generated_value.resize(generated_key.size());
    queries.resize(generated_key.size());
  }

  std::int64_t K() const { return config.n_kv_heads; }
  std::int64_t group() const { return config.n_heads / config.n_kv_heads; }

  void make_room(std::size_t count);
  void copy_prompt(Stream& stream);
  void attend(const ContinuationRows& in);
  void add_own(const ContinuationRows& in, Reads& from_prompt, Reads& from_copies,
               Reads& from_generated);
  void add_borrowed(const ContinuationRows& in, Parts& parts);
  void read(const Reads& reads, const at::Tensor& query, const AnyView<2>& keys,
            const AnyView<2>& values, const ContinuationRows& in, bool distant, Parts& parts) const;
  void apply_gates(const ContinuationRows& in, Parts& parts);
  void join(const Parts& parts, const ContinuationRows& in) const;
  std::vector<Range> prompt_ranges(const Stream& stream, const Head& head,
                                   const ContinuationRows& in) const;
  std::int64_t generated_index_of(const Stream& stream) const {
    return (&stream - streams.data()) * K() * steps;
  }
  std::int64_t step_of_prompt(const AnyView<3>& cache) const {
    return cache.strides[0] / cache.strides[1];
  }
  void cut_further(Stream& stream, std::int64_t tokens);
  double bytes_of_row(const Plan& plan, std::int64_t layer, bool merged) const;
  double stored_bytes(const Stream& stream) const;
};

namespace {

/// [heads, tokens, d] as rows: row g * (heads' step) + token.
AnyView<2> flat(const AnyView<3>& cache) {
  const std::int64_t step = cache.strides[0] / cache.strides[1];
  return {cache.data,
          cache.type,
          {(cache.sizes[0] - 1) * step + cache.sizes[1], cache.sizes[2]},
          {cache.strides[1], 1},
          cache.memory};
}

AnyView<2> flat(const at::Tensor& rows) { return any_view<2>(rows.view({-1, rows.size(-1)})); }

}  // namespace

void Continuations::State::make_room(std::size_t count) {
  const auto grow = [&](at::Tensor& tensor) {
    const auto have = tensor.defined() ? tensor.size(0) : 0;
    if (have >= static_cast<std::int64_t>(count)) return;
    const std::int64_t want = std::max<std::int64_t>(static_cast<std::int64_t>(count), 2 * have);
    at::Tensor larger = at::empty({want, K(), steps, config.head_dim}, options);
    if (have > 0) larger.narrow(0, 0, have).copy_(tensor);
    tensor = larger;
  };
  for (auto& tensor : generated_key) grow(tensor);
  for (auto& tensor : generated_value) grow(tensor);
}

/// What the plan selects or changes, out of the prompt's cache.
void Continuations::State::copy_prompt(Stream& stream) {
  const Plan& plan = *stream.plan;
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    const auto& cuts = plan.heads[static_cast<std::size_t>(l)];
    Layer& layer = stream.layers[static_cast<std::size_t>(l)];
    std::vector<std::vector<std::int64_t>> tokens;
    for (const auto& cut : cuts) {
      layer.heads.push_back({cut.ranges, cut.rolling, {}});
      tokens.push_back(cut.tokens);
    }
    const auto rows = copies.add(l, prompt.cache(l), tokens);
    for (std::size_t g = 0; g < rows.size(); ++g) layer.heads[g].copied = rows[g];
  }
  const auto copied_of = [&](std::int64_t l) {
    std::vector<CopiedRows> rows;
    for (const auto& head : stream.layers[static_cast<std::size_t>(l)].heads)
      rows.push_back(head.copied);
    return rows;
  };
  if (plan.minicache)
    for (std::int64_t l = config.n_layers / 2; l + 1 < config.n_layers; l += 2)
      copies.merge(l, copied_of(l), copied_of(l + 1), *plan.minicache);
  if (plan.kv_bits < 16)
    for (std::int64_t l = 0; l < config.n_layers; ++l)
      copies.quantise(l, copied_of(l), plan.kv_bits);
  if (!plan.pod) return;
  for (std::int64_t l = 0; l < config.n_layers; ++l)
    for (std::int64_t h = 0; h < config.n_heads; ++h) {
      const std::int64_t g = h / group();
      const auto m = plan.pod->lowest[static_cast<std::size_t>(h)][static_cast<std::size_t>(l)];
      const auto& cut = plan.heads[static_cast<std::size_t>(m)][static_cast<std::size_t>(g)];
      if (m == l || cut.tokens.empty() || stream.borrowed.contains({l, m, g})) continue;
      std::vector<std::vector<std::int64_t>> tokens(static_cast<std::size_t>(K()));
      tokens[static_cast<std::size_t>(g)] = cut.tokens;
      stream.borrowed[{l, m, g}] = copies.add(l, {prompt.cache(m).key, prompt.cache(l).value},
                                              tokens)[static_cast<std::size_t>(g)];
    }
}

/// The ranges of the prompt that a head sees at this position.
std::vector<Range> Continuations::State::prompt_ranges(const Stream& stream, const Head& head,
                                                       const ContinuationRows& in) const {
  const std::int64_t end = stream.first;
  const std::int64_t begin = in.window > 0 ? in.position - in.window + 1 : 0;
  std::vector<Range> ranges;
  if (head.rolling) {
    const std::int64_t recent =
        std::max(head.rolling->initial, in.position - head.rolling->recent + 1);
    add_range(ranges, within({0, head.rolling->initial}, begin, end));
    add_range(ranges, within({recent, end}, begin, end));
    return ranges;
  }
  for (const auto& range : head.ranges) add_range(ranges, within(range, begin, end));
  return ranges;
}

/// What every row reads by its own queries and keys.
void Continuations::State::add_own(const ContinuationRows& in, Reads& from_prompt,
                                   Reads& from_copies, Reads& from_generated) {
  const std::int64_t step = step_of_prompt(prompt.cache(in.layer).key);
  const auto l = static_cast<std::size_t>(in.layer);
  for (std::size_t r = 0; r < active.size(); ++r) {
    Stream& stream = *active[r];
    const Layer& layer = stream.layers[l];
    const auto row = static_cast<std::int64_t>(r);
    std::vector<std::vector<Range>> ranges;
    bool copied = false;
    const std::size_t generated = from_generated.begin(row);
    for (std::int64_t g = 0; g < K(); ++g) {
      const Head& head = layer.heads[static_cast<std::size_t>(g)];
      std::vector<Range> of_head = prompt_ranges(stream, head, in);
      // The first generated row that is seen, the one of this step being the last.
      std::int64_t from = layer.generated_from;
      if (head.rolling)
        from = std::max(from, in.position - head.rolling->recent + 1 - stream.first);
      if (in.window > 0) from = std::max(from, in.position - in.window + 1 - stream.first);
      if (stream.plan->pod) {
        const Proximity& proximal = stream.plan->pod->proximal;
        const std::int64_t recent = in.position - proximal.recent + 1;
        std::vector<Range> near;
        for (const auto& range : of_head) {
          add_range(near, within(range, 0, std::min(proximal.initial, recent)));
          add_range(near, within(range, std::max<std::int64_t>(0, recent), range.end));
        }
        of_head = near;
        from = std::max(from, recent - stream.first);
      }
      from_generated.set(generated, g, generated_index_of(stream) + g * steps + from,
                         stream.taken + 1 - from);
      copied |= head.copied.length() > 0;
      ranges.push_back(std::move(of_head));
    }
    if (stream.plan->quest)
      ranges = quest.choose(*stream.plan->quest, in, row, prompt.cache(in.layer).key, stream.first,
                            stream.read_bytes);
    std::size_t most = 0;
    for (const auto& of_head : ranges) most = std::max(most, of_head.size());
    for (std::size_t i = 0; i < most; ++i) {
      const std::size_t part = from_prompt.begin(row);
      for (std::int64_t g = 0; g < K(); ++g) {
        const auto& of_head = ranges[static_cast<std::size_t>(g)];
        if (i < of_head.size())
          from_prompt.set(part, g, g * step + of_head[i].begin, of_head[i].length());
      }
    }
    if (!copied) continue;
    // The copied tokens ascend, so what is seen of them are runs.
    std::vector<std::vector<Range>> runs;
    most = 0;
    for (const auto& head : layer.heads) {
      const std::int64_t begin = in.window > 0 ? in.position - in.window + 1 : 0;
      std::vector<Range> of_head;
      if (stream.plan->pod) {
        const Proximity& proximal = stream.plan->pod->proximal;
        const std::int64_t recent = in.position - proximal.recent + 1;
        add_range(of_head, head.copied.run(begin, std::min(proximal.initial, recent)));
        add_range(of_head, head.copied.run(std::max(begin, recent), in.position));
      } else {
        add_range(of_head, head.copied.run(begin, in.position));
      }
      most = std::max(most, of_head.size());
      runs.push_back(std::move(of_head));
    }
    for (std::size_t i = 0; i < most; ++i) {
      const std::size_t part = from_copies.begin(row);
      for (std::int64_t g = 0; g < K(); ++g) {
        const auto& of_head = runs[static_cast<std::size_t>(g)];
        if (i < of_head.size()) from_copies.set(part, g, of_head[i].begin, of_head[i].length());
      }
    }
  }
}

/// PoD's distant tokens: by the query and keys of the lowest layer of each head's block.
void Continuations::State::add_borrowed(const ContinuationRows& in, Parts& parts) {
  const std::int64_t l = in.layer, step = step_of_prompt(prompt.cache(l).key);
  for (std::int64_t m = 0; m <= l; ++m) {
    Reads from_prompt(K()), from_copies(K()), from_generated(K());
    for (std::size_t r = 0; r < active.size(); ++r) {
      const Stream& stream = *active[r];
      if (!stream.plan->pod) continue;
      const Pod& pod = *stream.plan->pod;
      const std::int64_t end = in.position - pod.proximal.recent + 1;
      const std::int64_t begin = std::max<std::int64_t>(
          pod.proximal.initial, in.window > 0 ? in.position - in.window + 1 : 0);
      const auto row = static_cast<std::int64_t>(r);
      for (std::int64_t g = 0; g < K(); ++g) {
        bool wanted = false;
        for (std::int64_t h = g * group(); h < (g + 1) * group(); ++h)
          wanted |= pod.lowest[static_cast<std::size_t>(h)][static_cast<std::size_t>(l)] == m;
        if (!wanted) continue;
        const Head& head =
            stream.layers[static_cast<std::size_t>(m)].heads[static_cast<std::size_t>(g)];
        for (const auto& range : head.ranges) {
          const Range distant = within(range, begin, std::min(end, stream.first));
          if (distant.length() > 0)
            from_prompt.set(from_prompt.begin(row), g, g * step + distant.begin, distant.length());
        }
        const CopiedRows& copied = m == l ? head.copied : [&]() -> const CopiedRows& {
          static const CopiedRows none;
          const auto found = stream.borrowed.find({l, m, g});
          return found == stream.borrowed.end() ? none : found->second;
        }();
        if (const Range run = copied.run(begin, end); run.length() > 0)
          from_copies.set(from_copies.begin(row), g, run.begin, run.length());
        const Range generated =
            within({0, stream.taken + 1}, begin - stream.first, end - stream.first);
        if (generated.length() > 0)
          from_generated.set(from_generated.begin(row), g,
                             generated_index_of(stream) + g * steps + generated.begin,
                             generated.length());
      }
    }
    const std::size_t before = parts.rows.size();
    const at::Tensor& query = queries[static_cast<std::size_t>(m)];
    read(from_prompt, query, flat(prompt.cache(m).key), flat(prompt.cache(l).value), in, m < l,
         parts);
    read(from_copies, query, flat(copies.keys(l)), flat(copies.values(l)), in, m < l, parts);
    read(from_generated, query, flat(generated_key[static_cast<std::size_t>(m)]),
         flat(generated_value[static_cast<std::size_t>(l)]), in, m < l, parts);
    // Of the heads that were computed, those of other blocks.
    std::size_t part = before;
    for (std::size_t call = 0; call < parts.lse.size() && part < parts.rows.size(); ++call) {
      const auto count = static_cast<std::size_t>(parts.lse[call].size(0));
      std::size_t first = 0;
      for (std::size_t c = 0; c < call; ++c)
        first += static_cast<std::size_t>(parts.lse[c].size(0));
      if (first < before) continue;
      at::Tensor hidden = at::zeros({static_cast<std::int64_t>(count), config.n_heads}, at::kBool);
      for (std::size_t i = 0; i < count; ++i, ++part) {
        const Pod& pod = *active[static_cast<std::size_t>(parts.rows[part])]->plan->pod;
        for (std::int64_t h = 0; h < config.n_heads; ++h)
          hidden.mutable_data_ptr<bool>()[static_cast<std::int64_t>(i) * config.n_heads + h] =
              pod.lowest[static_cast<std::size_t>(h)][static_cast<std::size_t>(l)] != m;
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
      if (stream.plan->pod
              ->lowest[static_cast<std::size_t>(h)][static_cast<std::size_t>(in.layer)] == in.layer)
        continue;
      ++stream.gates;
      const double g = 1 / (1 + std::exp(log_sum(r, h, true) - log_sum(r, h, false)));
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

  Reads from_prompt(K()), from_copies(K()), from_generated(K());
  Parts parts;
  add_own(in, from_prompt, from_copies, from_generated);
  const auto cache = prompt.cache(in.layer);
  read(from_prompt, queries[l], flat(cache.key), flat(cache.value), in, false, parts);
  read(from_copies, queries[l], flat(copies.keys(in.layer)), flat(copies.values(in.layer)), in,
       false, parts);
  read(from_generated, queries[l], flat(generated_key[l]), flat(generated_value[l]), in, false,
       parts);
  const auto any = [&](auto test) {
    return std::any_of(active.begin(), active.end(), [&](const Stream* stream) {
      return stream->plan->pod && test(*stream->plan->pod);
    });
  };
  if (any([](const Pod&) { return true; })) add_borrowed(in, parts);
  if (any([](const Pod& pod) { return pod.tau < 1; })) apply_gates(in, parts);
  join(parts, in);
}

/// LagKV while decoding: as soon as a partition is complete, the one before it is cut.
void Continuations::State::cut_further(Stream& stream, std::int64_t tokens) {
  const Plan& plan = *stream.plan;
  if (!plan.lag) return;
  const std::int64_t sink = plan.lag->sink, lag = plan.lag->lag, keep = plan.lag->keep();
  if (tokens < sink + 2 * lag || (tokens - sink) % lag != 0) return;
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    if (plan.lag_layers[static_cast<std::size_t>(l)] == 0) continue;
    Layer& layer = stream.layers[static_cast<std::size_t>(l)];
    const std::int64_t stream_row = &stream - streams.data();
    const std::int64_t from = layer.generated_from, count = stream.taken - from;
    std::vector<at::Tensor> keys, values;
    std::vector<std::vector<std::int64_t>> positions;
    const auto cache = prompt.cache(l);
    for (std::int64_t g = 0; g < K(); ++g) {
      const Head& head = layer.heads[static_cast<std::size_t>(g)];
      std::vector<at::Tensor> key, value;
      std::vector<std::int64_t> of_head;
      for (const auto& range : head.ranges) {
        key.push_back(tensor_of(cache.key)[g].narrow(0, range.begin, range.length()));
        value.push_back(tensor_of(cache.value)[g].narrow(0, range.begin, range.length()));
        for (std::int64_t j = range.begin; j < range.end; ++j) of_head.push_back(j);
      }
      if (head.copied.length() > 0) {
        key.push_back(copies.keys(l).narrow(0, head.copied.start, head.copied.length()));
        value.push_back(copies.values(l).narrow(0, head.copied.start, head.copied.length()));
        of_head.insert(of_head.end(), head.copied.tokens->begin(), head.copied.tokens->end());
      }
      const auto at_layer = static_cast<std::size_t>(l);
      key.push_back(generated_key[at_layer][stream_row][g].narrow(0, from, count));
      value.push_back(generated_value[at_layer][stream_row][g].narrow(0, from, count));
      for (std::int64_t i = from; i < stream.taken; ++i) of_head.push_back(stream.first + i);
      keys.push_back(at::cat(key));
      values.push_back(at::cat(value));
      positions.push_back(std::move(of_head));
    }
    const std::int64_t total = keys.front().size(0);
    at::Tensor key = at::empty({K(), total, config.head_dim}, options), value = at::empty_like(key);
    for (std::int64_t g = 0; g < K(); ++g) {
      key[g].copy_(keys[static_cast<std::size_t>(g)]);
      value[g].copy_(values[static_cast<std::size_t>(g)]);
    }
    const at::Tensor scores = at::empty({K(), lag}, options.dtype(at::kFloat));
    const at::Tensor kept = at::empty({K(), keep + lag}, options.dtype(at::kLong));
    kernels::lag_scores({any_view<3>(key.narrow(1, total - 2 * lag, 2 * lag)),
                         any_view<3>(value.narrow(1, total - 2 * lag, 2 * lag)),
                         0,
                         plan.lag->variant,
                         {lag},
                         {view_of<float, 2>(scores)}});
    kernels::lag_kept(
        {view_of<const float, 2>(scores), 2 * lag, 0, lag, keep, view_of<std::int64_t, 2>(kept)});
    const at::Tensor kept_here = kept.cpu();
    std::vector<std::vector<std::int64_t>> rows;
    for (std::int64_t g = 0; g < K(); ++g) {
      std::vector<std::int64_t> of_head(static_cast<std::size_t>(total - 2 * lag));
      std::iota(of_head.begin(), of_head.end(), 0);
      for (std::int64_t i = 0; i < keep + lag; ++i)
        of_head.push_back(total - 2 * lag + kept_here[g][i].item<std::int64_t>());
      rows.push_back(std::move(of_head));
    }
    auto copied = copies.add(l, {any_view<3>(key), any_view<3>(value)}, rows);
    for (std::size_t g = 0; g < copied.size(); ++g) {
      std::vector<std::int64_t> tokens_kept;
      for (const auto row : rows[g])
        tokens_kept.push_back(positions[g][static_cast<std::size_t>(row)]);
      copied[g].tokens = std::make_shared<const std::vector<std::int64_t>>(std::move(tokens_kept));
      layer.heads[g].ranges.clear();
      layer.heads[g].copied = copied[g];
    }
    layer.generated_from = stream.taken;
  }
}

/// Bytes of the key and value of one prompt token in one KV head.
double Continuations::State::bytes_of_row(const Plan& plan, std::int64_t layer, bool merged) const {
  const auto d = static_cast<double>(config.head_dim);
  // Codes and, for every 32 of them, a 16-bit scale and minimum.
  const double value_bytes = plan.kv_bits == 16 ? 2 : plan.kv_bits / 8.0 + 4.0 / 32;
  const bool pair =
      layer >= config.n_layers / 2 &&
      (layer - config.n_layers / 2) / 2 * 2 + config.n_layers / 2 + 1 < config.n_layers;
  // Two layers share a direction, and each has its norm.
  if (merged && pair) return 2 * (d * value_bytes / 2 + 2);
  return 2 * d * value_bytes;
}

double Continuations::State::stored_bytes(const Stream& stream) const {
  const Plan& plan = *stream.plan;
  const std::int64_t position = stream.first + stream.taken - 1;  // of the last token
  double bytes = 0;
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    const Layer& layer = stream.layers[static_cast<std::size_t>(l)];
    for (std::int64_t g = 0; g < K(); ++g) {
      const Head& head = layer.heads[static_cast<std::size_t>(g)];
      std::int64_t rows = head.copied.length(), generated = stream.taken - layer.generated_from;
      if (head.rolling) {
        ContinuationRows at_end;
        at_end.position = position;
        for (const auto& range : prompt_ranges(stream, head, at_end)) rows += range.length();
        generated = std::min(generated, head.rolling->recent);
      } else {
        for (const auto& range : head.ranges) rows += range.length();
      }
      const std::int64_t unmerged = plan.minicache ? std::min(rows, plan.minicache->recent) : rows;
      bytes += static_cast<double>(rows - unmerged) * bytes_of_row(plan, l, true) +
               static_cast<double>(unmerged) * bytes_of_row(plan, l, false) +
               static_cast<double>(generated) * 4 * static_cast<double>(config.head_dim);
      if (!plan.pod) continue;
      bool needed = false;
      for (std::int64_t h = g * group(); h < (g + 1) * group(); ++h)
        needed |= plan.pod->lowest[static_cast<std::size_t>(h)][static_cast<std::size_t>(l)] == l;
      if (needed) continue;
      const std::int64_t begin = plan.pod->proximal.initial,
                         end = position - plan.pod->proximal.recent + 1;
      std::int64_t distant =
          head.copied.run(begin, end).length() +
          within({0, stream.taken}, begin - stream.first, end - stream.first).length();
      for (const auto& range : head.ranges)
        distant += within(range, begin, std::min(end, stream.first)).length();
      bytes -= static_cast<double>(distant) * bytes_of_row(plan, l, false) / 2;
    }
  }
  return bytes;
}

Continuations::Continuations(capture::Engine& engine, const capture::Sequence& prompt,
                             std::int64_t n_tokens, std::int64_t steps)
    : state_(std::make_unique<State>(engine, prompt, n_tokens, steps)) {}
Continuations::~Continuations() = default;

void Continuations::reserve(std::span<const Plan* const> plans, bool forks) {
  const c10::InferenceMode no_gradients;
  State& s = *state_;
  s.make_room(s.streams.size() + plans.size() * (forks ? 2 : 1));
  for (std::int64_t l = 0; l < s.config.n_layers; ++l) {
    std::int64_t rows = 0;
    for (const Plan* plan : plans)
      for (const auto& cut : plan->heads[static_cast<std::size_t>(l)])
        rows += static_cast<std::int64_t>(cut.tokens.size());
    s.copies.reserve(l, rows);
  }
}

std::size_t Continuations::add(const Plan& plan) {
  const c10::InferenceMode no_gradients;
  State& s = *state_;
  State::Stream stream;
  stream.plan = std::make_shared<const Plan>(plan);
  stream.first = s.n + plan.delay;
  stream.layers.resize(static_cast<std::size_t>(s.config.n_layers));
  s.copy_prompt(stream);
  s.make_room(s.streams.size() + 1);
  s.streams.push_back(std::move(stream));
  return s.streams.size() - 1;
}

std::size_t Continuations::fork(std::size_t number) {
  const c10::InferenceMode no_gradients;
  State& s = *state_;
  const std::size_t added = s.streams.size();
  s.make_room(added + 1);
  s.streams.push_back(s.streams[number]);
  const std::int64_t taken = s.streams[added].taken;
  const auto copy = [&](const at::Tensor& rows) {
    rows[static_cast<std::int64_t>(added)]
        .narrow(1, 0, taken)
        .copy_(rows[static_cast<std::int64_t>(number)].narrow(1, 0, taken));
  };
  if (taken > 0) {
    for (const auto& rows : s.generated_key) copy(rows);
    for (const auto& rows : s.generated_value) copy(rows);
  }
  return added;
}

std::int64_t Continuations::bytes_of(const Plan& plan) const {
  const State& s = *state_;
  const std::int64_t row =
      2 * s.config.head_dim * static_cast<std::int64_t>(s.options.dtype().itemsize());
  std::int64_t rows = 2 * s.steps * s.K() * s.config.n_layers;
  for (const auto& layer : plan.heads)
    for (const auto& cut : layer) rows += static_cast<std::int64_t>(cut.tokens.size());
  return rows * row;
}

void Continuations::step(
    std::span<const std::size_t> which, std::span<const std::int64_t> tokens, std::int64_t position,
    const std::function<void(std::size_t row, std::span<const float> logits)>& logits) {
  if (which.empty()) return;
  State& s = *state_;
  const c10::InferenceMode no_gradients;
  s.active.clear();
  std::vector<std::int64_t> index;
  for (const auto number : which) {
    State::Stream& stream = s.streams[number];
    if (stream.first + stream.taken != position || stream.taken == s.steps)
      fail(ErrorCode::internal, "a continuation was run at another position than its own");
    stream.read_bytes = 0;
    s.active.push_back(&stream);
    for (std::int64_t g = 0; g < s.K(); ++g)
      index.push_back(s.generated_index_of(stream) + g * s.steps + stream.taken);
  }
  s.generated_index = at::tensor(index, at::kLong).to(s.options.device());
  s.engine.run_continuations(
      tokens, position, [&](const ContinuationRows& in) { s.attend(in); },
      [&](std::size_t, std::int64_t first, View<const float, 2> rows) {
        for (std::int64_t r = 0; r < rows.sizes[0]; ++r)
          logits(static_cast<std::size_t>(first + r),
                 {rows.at(r), static_cast<std::size_t>(rows.sizes[1])});
      });
  for (auto* stream : s.active) {
    ++stream->taken;
    s.cut_further(*stream, position + 1);
    if (!stream->plan->quest) stream->read_bytes = s.stored_bytes(*stream);
  }
}

CacheUse Continuations::use(std::size_t number) const {
  const State& s = *state_;
  const State::Stream& stream = s.streams[number];
  CacheUse use;
  for (const auto& layer : stream.layers) {
    std::int64_t most = 0;
    for (const auto& head : layer.heads) {
      std::int64_t length = head.copied.length() + stream.taken - layer.generated_from;
      for (const auto& range : head.ranges) length += range.length();
      if (head.rolling) length = std::min(length, head.rolling->initial + head.rolling->recent);
      most = std::max(most, length);
    }
    use.lengths.push_back(most);
  }
  use.stored_bytes = s.stored_bytes(stream);
  use.read_bytes = stream.read_bytes;
  return use;
}

double Continuations::skipped(std::size_t number) const {
  const auto& stream = state_->streams[number];
  return stream.gates == 0
             ? std::numeric_limits<double>::quiet_NaN()
             : static_cast<double>(stream.skipped) / static_cast<double>(stream.gates);
}

}  // namespace kvatlas::calibrate
