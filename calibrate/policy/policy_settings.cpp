// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/policy_settings.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvatlas::calibrate {
namespace {

using Words2 = std::array<std::string_view, 2>;
using Words3 = std::array<std::string_view, 3>;

void visit_proximity(Proximity& keep, Settings& s) {
  s.whole("initial", keep.initial, 0, kMostTokens, "first tokens kept");
  s.whole("recent", keep.recent, 1, kMostTokens, "last tokens kept, the query's own included");
}

void visit_window_budget(WindowBudget& select, Settings& s) {
  s.whole("window", select.window, 1, 4096, "last prompt rows, which score the others; kept");
  s.whole("budget", select.budget, 2, kMostTokens,
          "tokens kept a layer in the mean, the window included");
  s.whole("kernel", select.kernel, 1, 4095, "positions that scores are pooled over, odd");
  s.choice("pooling", select.pooling, Words2{"avg", "max"}, "how they are pooled");
}

struct Visit {
  std::string_view name;
  Settings& s;

  void operator()(Streaming& part) const {
    if (name != "window") return visit_proximity(part.keep, s);
    s.whole("recent", part.keep.recent, 1, kMostTokens,
            "last tokens kept, the query's own included");
  }
  void operator()(SimLayerKv& part) const {
    s.number("threshold", part.threshold, 0, 1, "layers whose proximal mass exceeds it are lazy");
    visit_proximity(part.keep, s);
    s.choice("identify", part.identify, Words2{"decode", "prefill"},
             "when: at the first generated token, or at the last prompt rows");
    s.whole("w_last", part.w_last, 1, 4096, "those prompt rows");
    s.choice("granularity", part.per_head, Words2{"layer", "head"},
             "what is lazy: layers, or KV heads");
    s.flag("opposite", part.opposite, "trim as many layers, those of the smallest mass");
  }
  void operator()(LayerBaseline& part) const {
    s.number("threshold", part.threshold, 0, 1,
             "as many layers are trimmed as simlayerkv finds lazy at it");
    s.optional_whole("layers", part.layers, 0, kMostLayers, "or so many");
    visit_proximity(part.keep, s);
    if (part.choose == LayerBaseline::Choose::pyramid) return;
    s.choice("from", part.from, Words3{"lower", "upper", "all"},
             "the half of the layers that they are drawn from");
    s.seed("seed", part.seed, "of the draw");
  }
  void operator()(Pod& part) const {
    s.number("delta", part.delta, 0, 1, "least similarity of the layers of a block");
    s.whole("initial", part.proximal.initial, 0, kMostTokens, "first tokens, never shared");
    s.whole("recent", part.proximal.recent, 1, kMostTokens, "last tokens, never shared");
    s.choice("granularity", part.per_query_head, Words2{"kv-head", "head"},
             "what has blocks of its own: KV heads, or query heads");
    s.number("tau", part.tau, 0, 1, "gate at which a head skips the distant part; 1: never");
    s.text("blocks", part.blocks_file,
           "profile or policy to take the blocks from; without: the prompt's own rows");
  }
  void operator()(DynamicKv& part) const {
    visit_window_budget(part.select, s);
    s.number("r_max", part.r_max, 1, 1e6, "most tokens of a layer, in budgets");
  }
  void operator()(SnapKv& part) const { visit_window_budget(part.select, s); }
  void operator()(H2o& part) const {
    s.whole("budget", part.budget, 2, kMostTokens, "tokens kept, half of them the most recent");
  }
  void operator()(LagKv& part) const {
    s.whole("sink", part.sink, 0, kMostTokens, "first tokens kept");
    s.whole("lag", part.lag, 2, kMostTokens, "tokens a partition");
    s.text("ratio", part.ratio, "share of a partition kept, as 0.25 or 1/4");
    if (name == "lagkv")
      s.choice("variant", part.variant, Words3{"lag", "local", "l2"},
               "scored against the next partition, its own, or by the key's norm");
  }
  void operator()(MiniCache& part) const {
    s.number("t", part.t, 0, 1, "where between the two layers their merged direction lies");
    s.whole("recent", part.recent, 0, kMostTokens, "last tokens, not merged");
  }
  void operator()(Quest& part) const {
    s.whole("page", part.page, 1, 4096, "tokens a page");
    s.whole("budget", part.budget, 1, kMostTokens, "tokens read a step; all are kept");
  }
};

std::vector<PartName> make_names() {
  LayerBaseline random;
  random.choose = LayerBaseline::Choose::random;
  SnapKv pyramid;
  pyramid.pyramid = true;
  LagKv local, l2;
  local.variant = LagVariant::local;
  l2.variant = LagVariant::l2;
  return {{"streaming", "every layer keeps the first and the last tokens", Streaming{}},
          {"window", "every layer keeps the last tokens", Streaming{{0, 1024}}},
          {"simlayerkv", "lazy layers keep the first and the last tokens", SimLayerKv{}},
          {"pod", "layers of a block share the keys of distant tokens", Pod{}},
          {"dynamickv", "a budget of tokens for each layer, by the prompt's scores", DynamicKv{}},
          {"lagkv", "partitions cut by their scores against the next one", LagKv{}},
          {"snapkv", "the same budget of best scored tokens in every layer", SnapKv{}},
          {"pyramidkv", "budgets that fall linearly over the layers", pyramid},
          {"h2o", "the tokens that took most attention, and the most recent", H2o{}},
          {"pyramid-layers", "the highest layers trimmed", LayerBaseline{}},
          {"random-layers", "layers drawn by a seed trimmed", random},
          {"minicache", "adjacent layers of the upper half merged", MiniCache{}},
          {"local", "lagkv with variant=local", local},
          {"l2", "lagkv with variant=l2", l2},
          {"quest", "pages of tokens read by the bounds of their keys", Quest{}}};
}

struct Check {
  void operator()(const DynamicKv& part) const { check(part.select); }
  void operator()(const SnapKv& part) const { check(part.select); }
  void operator()(const LagKv& part) const { part.keep(); }
  void operator()(const Quest& part) const {
    if (part.budget < part.page)
      fail(ErrorCode::usage, "budget ", part.budget, " is less than a page of ", part.page);
  }
  template <class Other>
  void operator()(const Other&) const {}

  static void check(const WindowBudget& select) {
    if (select.kernel % 2 == 0) fail(ErrorCode::usage, "kernel ", select.kernel, ": must be odd");
    if (select.budget <= select.window)
      fail(ErrorCode::usage, "budget ", select.budget, " must exceed the window of ", select.window,
           " tokens, which is kept");
  }
};

}  // namespace

const std::vector<PartName>& part_names() {
  static const std::vector<PartName> names = make_names();
  return names;
}

const PartName* find_part(std::string_view name) {
  const auto& names = part_names();
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const PartName& part) { return part.name == name; });
  return found == names.end() ? nullptr : &*found;
}

std::string name_of(const Part& part) {
  struct Name {
    std::string operator()(const Streaming& p) const {
      return p.keep.initial == 0 ? "window" : "streaming";
    }
    std::string operator()(const SimLayerKv&) const { return "simlayerkv"; }
    std::string operator()(const LayerBaseline& p) const {
      return p.choose == LayerBaseline::Choose::pyramid ? "pyramid-layers" : "random-layers";
    }
    std::string operator()(const Pod&) const { return "pod"; }
    std::string operator()(const DynamicKv&) const { return "dynamickv"; }
    std::string operator()(const SnapKv& p) const { return p.pyramid ? "pyramidkv" : "snapkv"; }
    std::string operator()(const H2o&) const { return "h2o"; }
    std::string operator()(const LagKv& p) const {
      return p.variant == LagVariant::lag     ? "lagkv"
             : p.variant == LagVariant::local ? "local"
                                              : "l2";
    }
    std::string operator()(const MiniCache&) const { return "minicache"; }
    std::string operator()(const Quest&) const { return "quest"; }
  };
  return std::visit(Name{}, part);
}

void visit_settings(std::string_view name, Part& part, Settings& settings) {
  std::visit(Visit{name, settings}, part);
}

void check_settings(const Part& part) { std::visit(Check{}, part); }

std::int64_t LagKv::keep() const { return kernels::kept_of_partition(ratio, lag); }

std::int64_t LagKv::kept(std::int64_t tokens) const {
  return kernels::lag_length(tokens, sink, lag, keep());
}

}  // namespace kvatlas::calibrate
