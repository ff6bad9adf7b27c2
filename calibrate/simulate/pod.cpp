// SPDX-License-Identifier: Apache-2.0
// PoD: within a block of layers only the lowest keeps keys of distant tokens. The layers above it
// score those tokens by its queries and keys, and weigh their own values.
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "base/error.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/continuations_impl.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::calibrate {
namespace {

using capture::ContinuationRows;
using capture::view_of;

// Last rows of the prompt by which layers are compared (docs/evaluation.md).
constexpr std::int64_t kPodRows = 16;

/// Blocks by the divergence of this prompt's last rows.
std::vector<std::vector<std::int64_t>> own_blocks(const Pod& part, const Draft& draft) {
  const PromptFacts::State& facts = draft.facts;
  const std::int64_t rows = std::min(kPodRows, facts.n), H = draft.config.n_heads,
                     L = draft.layers();
  const at::Tensor last = facts.rows.narrow(2, facts.rows.size(2) - rows, rows);
  const at::Tensor mean = at::empty({H, L, L}, last.options());
  kernels::js_divergence({AnyView<4>(view_of<const float, 4>(last)), view_of<float, 3>(mean), {}});
  const at::Tensor similar = (1.0 - mean.to(at::kDouble)).cpu().contiguous();
  const auto* values = similar.const_data_ptr<double>();
  return pod_blocks({H, L, {values, values + similar.numel()}}, draft.kv_heads(),
                    part.per_query_head, part.delta);
}

}  // namespace

PartPlanner planner_of(const Pod& part) {
  PartPlanner planner;
  if (part.lowest.empty()) planner.needs.rows = kPodRows;
  planner.cut = [&part](Draft& draft) {
    Pod pod = part;
    if (pod.lowest.empty()) pod.lowest = own_blocks(part, draft);
    const auto heads = static_cast<std::int64_t>(pod.lowest.size()),
               layers = static_cast<std::int64_t>(pod.lowest.front().size());
    if (heads != draft.config.n_heads || layers != draft.layers())
      fail(ErrorCode::usage, draft.policy.name, ": the blocks are for ", heads, " heads and ",
           layers, " layers, the model has ", draft.config.n_heads, " and ", draft.layers());
    draft.plan.pod = std::move(pod);
  };
  return planner;
}

Ranges proximal_to(std::int64_t position, const Proximity& proximal) {
  const std::int64_t recent = std::max(proximal.initial, position - proximal.recent + 1);
  Ranges near;
  add_range(near, {0, std::min(proximal.initial, position + 1)});
  add_range(near, {recent, position + 1});
  return near;
}

Ranges distant_from(std::int64_t position, const Proximity& proximal) {
  Ranges distant;
  add_range(distant, {proximal.initial, position - proximal.recent + 1});
  return distant;
}

const CopiedRows& Continuations::State::Stream::copied(std::int64_t l, std::int64_t m,
                                                       std::int64_t g) const {
  static const CopiedRows kNone;
  if (m == l) return head(l, g).copied;
  const auto found = borrowed.find({l, m, g});
  return found == borrowed.end() ? kNone : found->second;
}

bool Continuations::State::Stream::shares(std::int64_t l, std::int64_t m, std::int64_t g,
                                          std::int64_t group) const {
  const auto first_head = plan->pod->lowest.begin() + static_cast<std::ptrdiff_t>(g * group);
  return std::any_of(first_head, first_head + static_cast<std::ptrdiff_t>(group),
                     [&](const auto& lowest) { return lowest[l] == m; });
}

/// The distant tokens of layers that borrow keys from a layer that holds copies: copied with that
/// layer's keys and their own values.
void Continuations::State::copy_borrowed(Stream& stream) {
  const Plan& plan = *stream.plan;
  for (std::int64_t l = 0; l < config.n_layers; ++l)
    for (std::int64_t m = 0; m < l; ++m)
      for (std::int64_t g = 0; g < K(); ++g) {
        const auto& cut = plan.heads[m][g];
        if (cut.tokens.empty() || !stream.shares(l, m, g, group())) continue;
        std::vector<std::vector<std::int64_t>> tokens(static_cast<std::size_t>(K()));
        tokens[g] = cut.tokens;
        const auto rows = copies.add(l, {prompt.cache(m).key, prompt.cache(l).value}, tokens);
        stream.borrowed[{l, m, g}] = rows[g];
      }
}

namespace {

template <class Streams, class Test>
bool any_pod(const Streams& streams, Test test) {
  return std::any_of(streams.begin(), streams.end(), [&](const auto* stream) {
    return stream->plan->pod && test(*stream->plan->pod);
  });
}

}  // namespace

/// Adds the distant tokens, scored by the query and keys of the lowest layer of each head's block.
void Continuations::State::add_borrowed(const ContinuationRows& in, Parts& parts) {
  if (!any_pod(active, [](const Pod&) { return true; })) return;
  const std::int64_t l = in.layer;
  for (std::int64_t m = 0; m <= l; ++m) {
    LayerReads reads;
    for (std::size_t r = 0; r < active.size(); ++r) {
      const Stream& stream = *active[r];
      if (!stream.plan->pod) continue;
      const Ranges distant = distant_from(in.position, stream.plan->pod->proximal);
      HeadRuns runs(K());
      for (std::int64_t g = 0; g < K(); ++g) {
        if (!stream.shares(l, m, g, group())) continue;
        const auto seen_by = [&](const Head& head) {
          return head.seen_from(in.position, in.window, stream.first);
        };
        const Ranges seen =
            intersect(intersect(seen_by(stream.head(m, g)), seen_by(stream.head(l, g))), distant);
        add_runs(stream, seen, l, m, g, runs);
      }
      reads.add(static_cast<std::int64_t>(r), runs);
    }
    read_for(
        reads, m, in,
        [&](const Stream& stream, std::int64_t h) { return stream.plan->pod->lowest[h][l] == m; },
        parts);
  }
}

/// Heads whose proximal part outweighs the distant one by enough skip the distant one.
void Continuations::State::apply_gates(const ContinuationRows& in, Parts& parts) {
  if (!any_pod(active, [](const Pod& pod) { return pod.tau < 1; })) return;
  const auto H = config.n_heads;
  const at::Tensor lse = at::cat(parts.lse).cpu();
  const at::Tensor sinks = in.sinks.data ? capture::tensor_of(in.sinks).cpu() : at::Tensor();
  const auto log_sum = [&](std::size_t row, std::int64_t h, bool distant) {
    std::vector<double> of_parts;
    for (std::size_t p = 0; p < parts.rows.size(); ++p)
      if (parts.rows[p] == static_cast<std::int64_t>(row) && (parts.distant[p] != 0) == distant)
        of_parts.push_back(lse.const_data_ptr<float>()[static_cast<std::int64_t>(p) * H + h]);
    if (sinks.defined() && !distant)
      of_parts.push_back(static_cast<double>(sinks.const_data_ptr<float>()[h]));
    return log_sum_exp(of_parts);
  };
  at::Tensor skip = at::zeros({static_cast<std::int64_t>(parts.rows.size()), H}, at::kBool);
  for (std::size_t r = 0; r < active.size(); ++r) {
    Stream& stream = *active[r];
    if (!stream.plan->pod || stream.plan->pod->tau >= 1) continue;
    for (std::int64_t h = 0; h < H; ++h) {
      if (stream.plan->pod->lowest[h][in.layer] == in.layer) {  // it reads its distant keys always
        const Ranges seen =
            stream.head(in.layer, h / group()).seen_from(in.position, in.window, stream.first);
        const Ranges distant =
            intersect(seen, distant_from(in.position, stream.plan->pod->proximal));
        if (stream.held(distant, in.layer, h / group()) > 0) ++stream.gates;
        continue;
      }
      const double distant = log_sum(r, h, true);
      if (distant == -std::numeric_limits<double>::infinity()) continue;  // there is none
      ++stream.gates;
      if (!(gate_of(log_sum(r, h, false), distant) >= stream.plan->pod->tau)) continue;
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

}  // namespace kvatlas::calibrate
