// SPDX-License-Identifier: Apache-2.0
// A budget that holds while decoding: after the prompt, and again after every so many tokens, each
// KV head keeps the tokens with the best scores of those that it holds (docs/decoding.md).
#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/continuations_impl.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/last_rows.hpp"

namespace kvatlas::calibrate {

using capture::any_view;
using capture::tensor_of;
using capture::view_of;

namespace {

using By = Decoding::By;

/// What the queries of a head attend to, [query heads, rows, tokens]; none before the first token.
at::Tensor attention_rows(const HeldHead& head, const Scoring& scoring) {
  const std::int64_t tokens = head.keys.size(0), heads = head.queries.size(0),
                     rows = std::min(head.queries.size(1), tokens);
  const at::Tensor queries = head.queries.narrow(1, head.queries.size(1) - rows, rows),
                   keys = head.keys.unsqueeze(0);
  at::Tensor probs = at::empty({heads, rows, tokens}, keys.options().dtype(at::kFloat));
  if (rows == 0) return probs;
  kernels::LastRows io;
  io.queries = any_view<3>(queries);
  io.keys = any_view<3>(keys);
  io.scale = static_cast<float>(scoring.scale);
  io.soft_cap = static_cast<float>(scoring.softcap);
  at::Tensor sinks;
  if (scoring.sinks.defined()) {
    sinks = scoring.sinks.narrow(0, head.number * heads, heads).contiguous();
    io.sinks = view_of<const float, 1>(sinks);
  }
  io.probs = view_of<float, 3>(probs);
  kernels::last_rows(io);
  return probs;
}

/// R-KV's importance of the tokens before the window, [tokens]: the softmax of the window's
/// scores, the largest of the KV head's query heads, in the mean over the rows, and of that the
/// largest of the neighbours.
at::Tensor importance(const Decoding& part, const HeldHead& head, const Scoring& scoring) {
  const at::Tensor keys = head.keys.to(at::kFloat);
  at::Tensor scores = at::matmul(head.queries.to(at::kFloat), keys.t()) * scoring.scale;
  if (scoring.softcap > 0) scores = at::tanh(scores / scoring.softcap) * scoring.softcap;
  const at::Tensor others = at::amax(scores, 0).narrow(1, 0, keys.size(0) - part.window);
  const at::Tensor mean = at::softmax(others, -1).mean(0);
  return at::max_pool1d(mean.unsqueeze(0), part.kernel, 1, part.kernel / 2).squeeze(0);
}

/// R-KV's redundancy, [tokens]: the softmax of how like a key is to the others, in the mean over
/// them. Of the keys that are much like one, the last is not counted as like it.
at::Tensor redundancy(const at::Tensor& keys) {
  constexpr double kMuchLike = 0.5;    // cosine
  constexpr std::int64_t kRows = 256;  // at a time, which bounds the memory
  const std::int64_t tokens = keys.size(0);
  const at::Tensor all = keys.to(at::kFloat);
  const at::Tensor unit = all / all.norm(2, -1, true).clamp_min(1e-12);
  const at::Tensor place = at::arange(tokens, unit.options().dtype(at::kLong)),
                   sums = at::zeros({tokens}, unit.options());
  for (std::int64_t first = 0; first < tokens; first += kRows) {
    const std::int64_t count = std::min(kRows, tokens - first);
    const at::Tensor like = at::matmul(unit.narrow(0, first, count), unit.t());
    like.diagonal(first, 0, 1).zero_();
    const at::Tensor last = at::amax(at::where(like > kMuchLike, place, -1), 1, true);
    like.masked_fill_(place.unsqueeze(0) == last, 0);
    sums.add_(like.sum(0));
  }
  return at::softmax(sums / static_cast<double>(tokens), 0);
}

/// TriAttention's, at the places 1, 2, 4 and so on to 65536 behind the last of so many tokens.
ExpectedQueries expected_queries(const MeanQueries& mean, const model::Config& config,
                                 std::int64_t layer, std::int64_t tokens) {
  const std::int64_t pairs = turning_pairs(config, layer);
  const at::Tensor first = mean.query.narrow(1, 0, pairs),
                   second = mean.query.narrow(1, pairs, pairs);
  const at::Tensor longer = mean.magnitude - at::hypot(first, second);
  if (pairs == 0) return {mean.query, longer};
  const auto turned = rope_of_layer(config, layer, tokens);
  std::vector<float> cosines, sines;
  for (const double frequency : turned.inverse_frequency) {
    double cosine = 0, sine = 0, places = 0;
    for (std::int64_t behind = 1; behind <= 65536; behind *= 2, ++places) {
      cosine += std::cos(static_cast<double>(tokens + behind) * frequency);
      sine += std::sin(static_cast<double>(tokens + behind) * frequency);
    }
    cosines.push_back(static_cast<float>(cosine / places * turned.scale));
    sines.push_back(static_cast<float>(sine / places * turned.scale));
  }
  const at::Tensor cosine = at::tensor(cosines).to(first.device()),
                   sine = at::tensor(sines).to(first.device());
  const std::int64_t rest = mean.query.size(1) - 2 * pairs;
  return {at::cat({first * cosine - second * sine, second * cosine + first * sine,
                   mean.query.narrow(1, 2 * pairs, rest)},
                  1),
          longer * turned.scale};
}

/// What each of the head's query heads expects of its tokens, measured by how it differs among
/// them, and of that the greatest: [tokens].
at::Tensor expected_scores(const ExpectedQueries& expected, const HeldHead& head) {
  const at::Tensor keys = head.keys.to(at::kFloat);
  const std::int64_t group = head.queries.size(0), pairs = expected.longer.size(1);
  const auto of_group = [&](const at::Tensor& all) {
    return all.narrow(0, head.number * group, group);
  };
  const at::Tensor lengths = at::hypot(keys.narrow(1, 0, pairs), keys.narrow(1, pairs, pairs));
  const at::Tensor scores = at::matmul(of_group(expected.query), keys.t()) +
                            at::matmul(of_group(expected.longer), lengths.t());
  const at::Tensor apart = scores - scores.mean(1, true);
  return at::amax(apart / apart.square().mean(1, true).sqrt().clamp_min(1e-6), 0);
}

/// Scores of a head's tokens before those that are kept for certain, [tokens].
at::Tensor scores_of(const Decoding& part, const HeldHead& head, const Scoring& scoring,
                     const ExpectedQueries& expected) {
  const std::int64_t tokens = head.keys.size(0);
  switch (part.by) {
    case By::snapkv: {
      const WindowBudget select{
          .window = part.window, .budget = part.budget, .kernel = part.kernel};
      return window_scores(select, 1, attention_rows(head, scoring)).squeeze(0);
    }
    case By::rkv: {
      const at::Tensor similar = redundancy(head.keys).narrow(0, 0, tokens - part.window);
      return importance(part, head, scoring) * part.lambda - similar * (1 - part.lambda);
    }
    case By::keydiff:
      return unlike_mean_scores(head.keys.unsqueeze(0)).squeeze(0);
    case By::l2:
      return head.keys.to(at::kDouble).norm(2, -1).neg().to(at::kFloat);
    case By::h2o:
      return at::tensor(head.mass).narrow(0, 0, tokens - part.kept_last());
    case By::triattention:
      return expected_scores(expected, head);
    case By::tova:
    case By::streaming:
      break;
  }
  return at::arange(tokens - part.kept_last(), 0, -1, head.keys.options().dtype(at::kFloat));
}

/// Adds to each token's mass what the rows attend to it, in the mean over the query heads.
void add_mass(HeldHead& head, const Scoring& scoring) {
  if (head.queries.size(1) == 0) return;
  const at::Tensor sums = attention_rows(head, scoring).sum(1).mean(0).cpu();
  for (std::size_t j = 0; j < head.mass.size(); ++j)
    head.mass[j] += sums.const_data_ptr<float>()[j];
}

}  // namespace

std::int64_t query_rows(const Decoding& part) {
  switch (part.by) {
    case By::snapkv:
    case By::rkv:
      return part.window;
    case By::tova:
      return 1;
    case By::h2o:
      return part.every;
    case By::keydiff:
    case By::l2:
    case By::streaming:
    case By::triattention:
      break;
  }
  return 0;
}

std::vector<std::vector<std::int64_t>> tokens_that_stay(const Decoding& part,
                                                        const Scoring& scoring,
                                                        const ExpectedQueries& expected,
                                                        std::vector<HeldHead>& heads) {
  at::Tensor of_layer;  // TOVA keeps the same tokens in all heads
  if (part.by == By::tova && heads.front().keys.size(0) > part.budget) {
    std::vector<at::Tensor> rows;
    for (const HeldHead& head : heads) rows.push_back(attention_rows(head, scoring));
    of_layer = last_row_scores(at::cat(rows)).squeeze(0);
  }
  std::vector<std::vector<std::int64_t>> out;
  for (HeldHead& head : heads) {
    if (part.by == By::h2o) add_mass(head, scoring);
    const std::int64_t tokens = head.keys.size(0), last = part.kept_last();
    auto& kept = out.emplace_back();
    if (tokens <= part.budget) {
      kept.resize(static_cast<std::size_t>(tokens));
      std::iota(kept.begin(), kept.end(), 0);
      continue;
    }
    const at::Tensor scores =
        (of_layer.defined() ? of_layer : scores_of(part, head, scoring, expected))
            .cpu()
            .contiguous();
    kept = best_and_rest(scores.const_data_ptr<float>(), tokens - last, part.budget - last,
                         tokens - last, tokens);
  }
  return out;
}

namespace {

std::vector<float> of_tokens(const std::vector<float>& mass,
                             const std::vector<std::int64_t>& tokens) {
  std::vector<float> out;
  if (!mass.empty())
    for (const auto token : tokens) out.push_back(mass[token]);
  return out;
}

/// What the heads of a layer hold of the prompt, from the token `first` on.
std::vector<HeldHead> held_of_prompt(const Decoding& part, const Draft& draft, std::int64_t layer,
                                     std::int64_t first) {
  const LastQueries& of = draft.facts.last_queries[layer];
  const std::int64_t group = draft.config.n_heads / draft.kv_heads(), length = draft.n - first;
  std::int64_t wanted = query_rows(part);
  if (part.by == By::h2o) wanted = draft.plan.delay;  // the masses hold those of the prompt
  const at::Tensor keys = tensor_of(draft.prompt.cache(layer).key);
  std::vector<HeldHead> heads;
  for (std::int64_t g = 0; g < draft.kv_heads(); ++g) {
    if (!draft.full(layer, g)) continue;
    HeldHead head{
        g, keys[g].narrow(0, first, length), keys.new_empty({group, 0, keys.size(2)}), {}};
    if (wanted > 0) {
      const at::Tensor queries =
          (draft.plan.delay > 0 ? at::cat({of.prompt, of.step}, 1) : of.prompt)
              .narrow(0, g * group, group);
      const std::int64_t rows = std::min(wanted, queries.size(1));
      head.queries = queries.narrow(1, queries.size(1) - rows, rows);
    }
    if (part.by == By::h2o) {
      const float* mass = draft.facts.columns[layer][g].const_data_ptr<float>();
      head.mass.assign(mass + std::min(first, draft.facts.n), mass + draft.facts.n);
      head.mass.resize(static_cast<std::size_t>(length));
    }
    heads.push_back(std::move(head));
  }
  return heads;
}

/// None unless tokens are scored by the prompt's mean query.
ExpectedQueries expected_behind(const Plan& plan, const model::Config& config, std::int64_t layer,
                                std::int64_t read) {
  if (!plan.mean_queries) return {};
  return expected_queries((*plan.mean_queries)[layer], config, layer, read);
}

void cut_to_budget(const Decoding& part, Draft& draft) {
  draft.plan.decoding = part;
  if (part.by == By::triattention) {
    require_turning_queries(draft);
    draft.plan.mean_queries = draft.facts.mean_queries;
  }
  draft.plan.cut_heads = draft.full_heads();
  if (part.whole_prompt && part.by != By::h2o) return;
  for (std::int64_t layer = 0; layer < draft.layers(); ++layer) {
    if (!any_of(draft.plan.cut_heads[layer])) continue;
    const Scoring& scoring = draft.facts.last_queries[layer].scoring;
    const std::int64_t first = scoring.window.first_key(draft.n - 1);
    auto heads = held_of_prompt(part, draft, layer, first);
    const auto kept = tokens_that_stay(
        part, scoring, expected_behind(draft.plan, draft.config, layer, draft.n), heads);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      HeadCut& cut = draft.plan.heads[layer][heads[i].number];
      if (part.whole_prompt || std::ssize(kept[i]) == draft.n - first) {
        // Tokens that the model's own window hides have no mass, and are never asked for it.
        cut.mass.assign(heads[i].mass.empty() ? 0 : static_cast<std::size_t>(first), 0);
        cut.mass.insert(cut.mass.end(), heads[i].mass.begin(), heads[i].mass.end());
        continue;
      }
      std::vector<std::int64_t> tokens;
      for (const auto token : kept[i]) tokens.push_back(first + token);
      draft.select(layer, heads[i].number, std::move(tokens));
      cut.mass = of_tokens(heads[i].mass, kept[i]);
    }
  }
}

}  // namespace

PartPlanner planner_of(const Decoding& part) {
  PartPlanner planner;
  // One at least: with the queries comes how the layers score.
  planner.needs.last_queries = part.by == By::h2o ? 1 : std::max<std::int64_t>(1, query_rows(part));
  planner.needs.columns = part.by == By::h2o;
  planner.needs.mean_queries = part.by == By::triattention;
  planner.cut = [&part](Draft& draft) { cut_to_budget(part, draft); };
  return planner;
}

void Continuations::State::remember_queries(const capture::ContinuationRows& in) {
  const auto layer = static_cast<std::size_t>(in.layer);
  for (std::size_t r = 0; r < stepping.size(); ++r) {
    Stream& stream = *stepping[r];
    if (!stream.plan->decoding || stream.plan->decoding->every > steps) continue;
    if (!scorings[layer]) scorings[layer] = Scoring::of(in);
    const Decoding& part = *stream.plan->decoding;
    const std::int64_t rows = query_rows(part),
                       row = stream.taken % part.every - (part.every - rows);
    if (row < 0) continue;
    at::Tensor& last = stream.layer(in.layer).last_queries;
    const at::Tensor query = queries[layer][static_cast<std::int64_t>(r)];
    if (!last.defined()) last = at::empty({config.n_heads, rows, config.head_dim}, query.options());
    last.select(1, row).copy_(query);
  }
}

void Continuations::State::share_copies(Stream& stream, Stream& fork) const {
  for (Stream* one : {&stream, &fork})
    for (auto& layer : one->layers)
      for (auto& head : layer.heads) head.own_rows.reset();
  for (auto& layer : fork.layers)
    if (layer.last_queries.defined()) layer.last_queries = layer.last_queries.clone();
}

std::int64_t Continuations::State::most_rows(const Decoding& part) const {
  return std::min(part.budget, n + 1 + steps);
}

/// Lets the head hold these of its rows alone.
void Continuations::State::keep_rows(Stream& stream, std::int64_t l, std::int64_t g,
                                     const Rows& rows, const std::vector<std::int64_t>& kept) {
  Head& head = stream.layer(l).heads[g];
  if (!head.own_rows) head.own_rows = copies.take(l, most_rows(*stream.plan->decoding));
  const at::Tensor index = at::tensor(kept, at::kLong).to(options.device());
  copies.write(l, *head.own_rows, rows.keys.index_select(0, index),
               rows.values.index_select(0, index));
  std::vector<std::int64_t> tokens;
  for (const auto row : kept) tokens.push_back(rows.positions[row]);
  head.copied = {*head.own_rows, std::make_shared<const std::vector<std::int64_t>>(tokens)};
  head.ranges.clear();
  head.generated_from = stream.taken;
}

void Continuations::State::choose_anew(Stream& stream) {
  const Plan& plan = *stream.plan;
  if (!plan.decoding || stream.taken % plan.decoding->every != 0) return;
  const Decoding& part = *plan.decoding;
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    if (!any_of(plan.cut_heads[l])) continue;
    Layer& layer = stream.layer(l);
    const Scoring& scoring = *scorings[l];
    const std::int64_t first_seen = scoring.window.first_key(stream.first + stream.taken - 1);
    std::vector<Rows> rows;
    std::vector<std::int64_t> unseen;
    std::vector<HeldHead> heads;
    for (std::int64_t g = 0; g < K(); ++g) {
      if (plan.cut_heads[l][g] == 0) continue;
      const Rows& own = rows.emplace_back(gather(stream, l, l, g));
      const auto held = static_cast<std::int64_t>(own.positions.size());
      const auto seen = std::lower_bound(own.positions.begin(), own.positions.end(), first_seen);
      unseen.push_back(seen - own.positions.begin());
      HeldHead head{g,
                    own.keys.narrow(0, unseen.back(), held - unseen.back()),
                    own.keys.new_empty({group(), 0, config.head_dim}),
                    {}};
      if (layer.last_queries.defined())
        head.queries = layer.last_queries.narrow(0, g * group(), group());
      if (part.by == By::h2o) {
        auto& mass = layer.heads[g].mass;
        mass.resize(own.positions.size());
        head.mass.assign(mass.begin() + unseen.back(), mass.end());
      }
      heads.push_back(std::move(head));
    }
    auto kept = tokens_that_stay(
        part, scoring, expected_behind(plan, config, l, stream.first + stream.taken), heads);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const std::int64_t g = heads[i].number;
      layer.heads[g].mass = of_tokens(heads[i].mass, kept[i]);
      for (auto& row : kept[i]) row += unseen[i];
      if (kept[i].size() < rows[i].positions.size()) keep_rows(stream, l, g, rows[i], kept[i]);
    }
  }
}

}  // namespace kvatlas::calibrate
