// SPDX-License-Identifier: Apache-2.0
#include "analyzer/jinja/jinja.hpp"

#include <algorithm>
#include <cmath>

#include "analyzer/jinja/jinja_methods_impl.hpp"
#include "analyzer/jinja/jinja_syntax_impl.hpp"

namespace kvatlas::model {

namespace {

using Node = JinjaNode;
using Op = JinjaOp;
using Scope = JinjaScope;

/// Steps of the tree inside one another, macros included, that a run may take: what the stack
/// bears.
constexpr int kDeepestRun = 600;
/// What a run may make and do, in bytes: so much, and so much more for each byte of its variables.
constexpr std::int64_t kAllowance = std::int64_t{64} << 20, kAllowanceForByte = 64;

enum class Flow { on, leave, next };  // break, continue

class Run {
 public:
  explicit Run(JinjaHeap& heap) : heap_(heap) {}

  std::string text_of(const Node& body, Scope& scope) {
    std::string text;
    std::string* outer = std::exchange(out_, &text);
    flow_ = run(body, scope);
    out_ = outer;
    return text;
  }

 private:
  class Deeper {
   public:
    Deeper(Run& run, const Node& node) : run_(run) {
      run.heap_.line = node.line;
      run.heap_.spend(16);
      if (++run.depth_ > kDeepestRun) run.heap_.refuse("the template calls itself too deeply");
    }
    ~Deeper() { --run_.depth_; }

   private:
    Run& run_;
  };

  // Statements.

  Flow run(const Node& node, Scope& scope) {
    const Deeper deeper(*this, node);
    switch (node.op) {
      case Op::block:
        return run_block(node, scope);
      case Op::scope:
        return run_block(node, heap_.scope(&scope));
      case Op::text:
        write(node.text);
        return Flow::on;
      case Op::output:
        write(to_text(heap_, value_of(*node.kids[0], scope)));
        return Flow::on;
      case Op::branch:
        return run_branch(node, scope);
      case Op::loop:
        return run_loop(node, scope, value_of(*node.kids[1], scope), 0);
      case Op::assign:
        assign(*node.kids[0], value_of(*node.kids[1], scope), scope);
        return Flow::on;
      case Op::assign_text:
        return assign_text(node, scope);
      case Op::macro:
        set(scope, node.text, heap_.macro(&node, &scope));
        return Flow::on;
      case Op::call_block: {
        const JinjaValue caller = heap_.macro(node.kids[1], &scope);
        write(to_text(heap_, call(*node.kids[0], scope, &caller)));
        return Flow::on;
      }
      case Op::filter_block: {
        const JinjaValue body = heap_.string(text_of(*node.kids[1], scope));
        write(to_text(heap_, filtered(*node.kids[0], scope, body)));
        return flow_;
      }
      case Op::with:
        return run_with(node, scope);
      case Op::leave:
        return Flow::leave;
      case Op::next:
        return Flow::next;
      default:
        heap_.refuse("no such statement");
    }
  }

  void write(std::string_view text) {
    heap_.spend(text.size());
    *out_ += text;
  }

  void set(Scope& scope, std::string_view name, JinjaValue value) {
    heap_.spend(sizeof(scope.variables[0]) + scope.variables.size());
    scope.set(name, value);
  }

  Flow run_block(const Node& block, Scope& scope) {
    for (const Node* kid : block.kids)
      if (const Flow flow = run(*kid, scope); flow != Flow::on) return flow;
    return Flow::on;
  }

  Flow run_branch(const Node& node, Scope& scope) {
    std::size_t at = 0;
    for (; at + 1 < node.kids.size(); at += 2)
      if (is_true(value_of(*node.kids[at], scope))) return run(*node.kids[at + 1], scope);
    return at < node.kids.size() ? run(*node.kids[at], scope) : Flow::on;
  }

  Flow run_loop(const Node& node, Scope& scope, const JinjaValue& iterated, std::int64_t level) {
    const Node* condition = node.kids[2];
    JinjaValues all = iterate(heap_, iterated);
    if (condition != nullptr) {
      std::erase_if(all, [&](const JinjaValue& one) {
        Scope& inner = heap_.scope(&scope);
        assign(*node.kids[0], one, inner);
        return !is_true(value_of(*condition, inner));
      });
    }
    if (all.empty()) return node.kids[4] != nullptr ? run(*node.kids[4], scope) : Flow::on;
    const JinjaValue values = heap_.list(std::move(all));
    JinjaLoop& loop = heap_.loop();
    loop.values = &values.values();
    loop.level = level;
    loop.node = &node;
    loop.scope = &scope;
    for (; loop.index < loop.values->size(); ++loop.index) {
      Scope& inner = heap_.scope(&scope);
      set(inner, "loop", JinjaValue::thing(JinjaKind::loop, &loop));
      assign(*node.kids[0], (*loop.values)[loop.index], inner);
      if (run(*node.kids[3], inner) == Flow::leave) break;
    }
    return Flow::on;
  }

  void assign(const Node& target, const JinjaValue& value, Scope& scope) {
    if (target.op == Op::name) return set(scope, target.text, value);
    if (target.op == Op::tuple) {
      const JinjaValues parts = iterate(heap_, value);
      if (parts.size() != target.kids.size())
        heap_.refuse(target.kids.size(), " values are expected, not ", parts.size());
      for (std::size_t k = 0; k < parts.size(); ++k) assign(*target.kids[k], parts[k], scope);
      return;
    }
    const JinjaValue object = look_up(target.kids[0]->text, scope);
    if (!object.is(JinjaKind::attributes))
      heap_.refuse(quoted(target.kids[0]->text), " is no namespace, and cannot be changed");
    set(object.as<Scope>(), target.text, value);
  }

  Flow assign_text(const Node& node, Scope& scope) {
    JinjaValue text = heap_.string(text_of(*node.kids[2], scope));
    if (flow_ != Flow::on) return flow_;
    if (node.kids[1] != nullptr) text = filtered(*node.kids[1], scope, text);
    assign(*node.kids[0], text, scope);
    return Flow::on;
  }

  Flow run_with(const Node& node, Scope& scope) {
    Scope& inner = heap_.scope(&scope);
    for (std::size_t k = 0; k + 1 < node.kids.size(); k += 2)
      assign(*node.kids[k], value_of(*node.kids[k + 1], scope), inner);
    return run(*node.kids.back(), inner);
  }

  // Expressions.

  JinjaValue look_up(std::string_view name, Scope& scope) {
    for (Scope* at = &scope; at != nullptr; at = at->outer) {
      heap_.spend(1 + at->variables.size());
      if (const JinjaValue* found = at->find(name)) return *found;
    }
    return is_function(name) ? JinjaValue::function(name) : JinjaValue::undefined(name);
  }

  JinjaValue value_of(const Node& node, Scope& scope) {
    const Deeper deeper(*this, node);
    const auto kid = [&](std::size_t k) { return value_of(*node.kids[k], scope); };
    switch (node.op) {
      case Op::constant:
        return node.value;
      case Op::name:
        return look_up(node.text, scope);
      case Op::list:
        return heap_.list(values_of(node, scope));
      case Op::tuple:
        return heap_.tuple(values_of(node, scope));
      case Op::dict:
        return dict_of(node, scope);
      case Op::attribute: {
        const JinjaValue object = kid(0);
        return get_attribute(at(node), object, node.text);
      }
      case Op::item: {
        const JinjaValue object = kid(0), index = kid(1);
        return get_item(at(node), object, index);
      }
      case Op::slice: {
        const JinjaValue object = kid(0), start = part_of(node, 1, scope),
                         stop = part_of(node, 2, scope), step = part_of(node, 3, scope);
        return get_slice(at(node), object, start, stop, step);
      }
      case Op::call:
        return call(node, scope, nullptr);
      case Op::filter:
        return filtered(node, scope, {});
      case Op::test:
        return tested(node, scope);
      case Op::negate:
        return JinjaValue::boolean(!is_true(kid(0)));
      case Op::both: {
        const JinjaValue first = kid(0);
        return is_true(first) ? kid(1) : first;
      }
      case Op::either: {
        const JinjaValue first = kid(0);
        return is_true(first) ? first : kid(1);
      }
      case Op::choose:
        if (is_true(kid(0))) return kid(1);
        return node.kids[2] != nullptr ? kid(2) : JinjaValue::undefined("what no 'else' gives");
      case Op::compare:
        return compared(node, scope);
      case Op::minus:
      case Op::plus: {
        const JinjaValue value = kid(0);
        return signed_value(at(node), value, node.op == Op::minus);
      }
      case Op::concatenate: {
        const JinjaValue first = kid(0), second = kid(1);
        std::string text = to_text(at(node), first);
        return heap_.string(text += to_text(heap_, second));
      }
      default: {
        const JinjaValue first = kid(0), second = kid(1);
        at(node);
        return computed(node.op, first, second);
      }
    }
  }

  /// The heap, whose errors are those of this node.
  JinjaHeap& at(const Node& node) {
    heap_.line = node.line;
    return heap_;
  }

  JinjaValues values_of(const Node& node, Scope& scope) {
    JinjaValues values;
    for (const Node* one : node.kids) values.push_back(value_of(*one, scope));
    return values;
  }

  JinjaValue dict_of(const Node& node, Scope& scope) {
    JinjaItems items;
    for (std::size_t k = 0; k < node.kids.size(); k += 2) {
      const JinjaValue key = value_of(*node.kids[k], scope);
      set_item(heap_, items, key, value_of(*node.kids[k + 1], scope));
    }
    return heap_.dict(std::move(items));
  }

  /// A part of a slice: none where it is left out.
  JinjaValue part_of(const Node& node, std::size_t kid, Scope& scope) {
    return node.kids[kid] != nullptr ? value_of(*node.kids[kid], scope) : JinjaValue::none();
  }

  JinjaArguments arguments_of(const Node& node, Scope& scope) {
    JinjaArguments arguments;
    for (std::size_t k = 1; k < node.kids.size(); ++k) {
      const JinjaValue value = value_of(*node.kids[k], scope);
      if (node.words[k].empty()) {
        arguments.values.push_back(value);
      } else if (node.words[k] == "*") {
        for (const JinjaValue& one : iterate(heap_, value)) arguments.values.push_back(one);
      } else if (node.words[k] == "**") {
        if (!value.is(JinjaKind::dict)) heap_.refuse("'**' needs a dict");
        for (const auto& [key, one] : value.items())
          if (key.is_string()) arguments.named.emplace_back(key.text(), one);
      } else {
        arguments.named.emplace_back(node.words[k], value);
      }
    }
    return arguments;
  }

  /// The filters of a filter block have no input of their own at their beginning.
  JinjaValue filtered(const Node& node, Scope& scope, const JinjaValue& block) {
    const Node* before = node.kids[0];
    const JinjaValue input = before == nullptr          ? block
                             : before->op == Op::filter ? filtered(*before, scope, block)
                                                        : value_of(*before, scope);
    const JinjaArguments arguments = arguments_of(node, scope);
    return apply_filter(at(node), node.text, input, arguments);
  }

  JinjaValue tested(const Node& node, Scope& scope) {
    const JinjaValue input = value_of(*node.kids[0], scope);
    const JinjaArguments arguments = arguments_of(node, scope);
    return JinjaValue::boolean(passes_test(at(node), node.text, input, arguments));
  }

  JinjaValue compared(const Node& node, Scope& scope) {
    JinjaValue left = value_of(*node.kids[0], scope);
    for (std::size_t k = 0; k < node.words.size(); ++k) {
      const JinjaValue right = value_of(*node.kids[k + 1], scope);
      if (!is_so(left, node.words[k], right, node)) return JinjaValue::boolean(false);
      left = right;
    }
    return JinjaValue::boolean(true);
  }
  bool is_so(const JinjaValue& left, std::string_view word, const JinjaValue& right,
             const Node& node) {
    JinjaHeap& heap = at(node);
    if (word == "==") return are_equal(heap, left, right);
    if (word == "!=") return !are_equal(heap, left, right);
    if (word == "in") return holds(heap, right, left);
    if (word == "not in") return !holds(heap, right, left);
    const int order = compare_values(heap, left, right);
    return word == "<"    ? order < 0
           : word == "<=" ? order <= 0
           : word == ">"  ? order > 0
                          : order >= 0;
  }

  // Calls.

  JinjaValue call(const Node& node, Scope& scope, const JinjaValue* caller) {
    const JinjaValue callee = value_of(*node.kids[0], scope);
    const JinjaArguments arguments = arguments_of(node, scope);
    at(node);
    switch (callee.kind()) {
      case JinjaKind::macro:
        return call_macro(callee.as<JinjaMacro>(), arguments, caller);
      case JinjaKind::method:
        return call_method(heap_, callee.as<JinjaMethod>(), arguments);
      case JinjaKind::function:
        return call_function(heap_, callee.text(), arguments);
      case JinjaKind::loop:
        return call_loop(callee.as<JinjaLoop>(), arguments);
      case JinjaKind::undefined:
        heap_.refuse(quoted(callee.text()), " is undefined");
      default:
        heap_.refuse("a value of type ", kind_name(callee), " cannot be called");
    }
  }

  JinjaValue call_loop(JinjaLoop& loop, const JinjaArguments& arguments) {
    if (!loop.node->recursive) heap_.refuse("only a loop that says 'recursive' can be called");
    const JinjaValue iterated = arguments.match(heap_, "loop()", {"iterable"})[0];
    std::string text;
    std::string* outer = std::exchange(out_, &text);
    run_loop(*loop.node, *loop.scope, iterated, loop.level + 1);
    out_ = outer;
    return heap_.string(std::move(text));
  }

  JinjaValue call_macro(const JinjaMacro& macro, const JinjaArguments& arguments,
                        const JinjaValue* caller) {
    const Node& node = *macro.node;
    Scope& inner = heap_.scope(macro.scope);
    const std::size_t count = node.words.size();
    if (arguments.values.size() > count && !node.takes_more)
      heap_.refuse("the macro ", quoted(node.text), " takes at most ", count, " arguments");
    JinjaItems others;
    for (const auto& [name, value] : arguments.named) {
      if (std::find(node.words.begin(), node.words.end(), name) != node.words.end()) continue;
      if (!node.takes_named)
        heap_.refuse("the macro ", quoted(node.text), " has no argument ", quoted(name));
      others.emplace_back(JinjaValue::string(name), value);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const std::string_view name = node.words[k];
      const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                      [&](const auto& one) { return one.first == name; });
      JinjaValue value = JinjaValue::undefined(name);
      if (k < arguments.values.size()) {
        value = arguments.values[k];
      } else if (named != arguments.named.end()) {
        value = named->second;
      } else if (node.kids[k + 1] != nullptr) {
        value = value_of(*node.kids[k + 1], inner);
      }
      set(inner, name, value);
    }
    if (node.takes_more) {
      JinjaValues more;
      for (std::size_t k = count; k < arguments.values.size(); ++k)
        more.push_back(arguments.values[k]);
      set(inner, "varargs", heap_.tuple(std::move(more)));
    }
    if (node.takes_named) set(inner, "kwargs", heap_.dict(std::move(others)));
    if (node.takes_caller)
      set(inner, "caller", caller != nullptr ? *caller : JinjaValue::undefined("caller"));
    return heap_.string(text_of(*node.kids[0], inner));
  }

  // Numbers, texts and lists.

  JinjaValue signed_value(JinjaHeap& heap, const JinjaValue& value, bool negative) {
    if (!value.is_number()) heap.refuse("a value of type ", kind_name(value), " has no sign");
    if (value.is(JinjaKind::real))
      return JinjaValue::real(negative ? -value.number() : value.number());
    return computed(Op::subtract, JinjaValue::integer(negative ? 0 : value.whole()),
                    JinjaValue::integer(negative ? value.whole() : 0));
  }

  JinjaValue computed(Op op, const JinjaValue& a, const JinjaValue& b) {
    for (const JinjaValue& one : {a, b})
      if (one.is(JinjaKind::undefined)) heap_.refuse(quoted(one.text()), " is undefined");
    if (op == Op::modulo && a.is_string()) return format_text(heap_, a.text(), b);
    if (a.is_whole() && b.is_whole()) return computed_whole(op, a.whole(), b.whole());
    if (a.is_number() && b.is_number()) return computed_real(op, a.number(), b.number());
    if (op == Op::add && a.is_string() && b.is_string()) {
      heap_.spend(a.text().size());
      const bool is_safe = a.is_safe() || b.is_safe();
      const auto part = [&](const JinjaValue& one) {
        return is_safe && !one.is_safe() ? escaped_text(one.text()) : std::string(one.text());
      };
      return heap_.string(part(a) + part(b)).marked_safe(is_safe);
    }
    if (op == Op::add && a.is_sequence() && a.kind() == b.kind()) {
      heap_.spend((a.values().size() + b.values().size()) * sizeof(JinjaValue));
      JinjaValues values = a.values();
      values.insert(values.end(), b.values().begin(), b.values().end());
      return a.is(JinjaKind::list) ? heap_.list(std::move(values)) : heap_.tuple(std::move(values));
    }
    if (op == Op::multiply && b.is_whole()) {
      const auto times = static_cast<std::size_t>(std::max<std::int64_t>(0, b.whole()));
      if (a.is_string()) return repeated(a.text(), times);
      if (a.is(JinjaKind::list)) return repeated(a.values(), times);
    }
    if (op == Op::multiply && a.is_whole() && !b.is_number()) return computed(op, b, a);
    constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
    heap_.refuse("'", kSigns[static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::add)],
                 "' does not go with values of types ", kind_name(a), " and ", kind_name(b));
  }

  /// Spends what will be made before it is made.
  void spend_product(std::size_t bytes, std::size_t times) {
    std::size_t all = 0;
    heap_.spend(__builtin_mul_overflow(bytes, times, &all) ? SIZE_MAX / 2 : all);
  }
  JinjaValue repeated(std::string_view text, std::size_t times) {
    spend_product(text.size(), times);
    std::string out;
    for (; times > 0 && !text.empty(); --times) out += text;
    return heap_.string(std::move(out));
  }
  JinjaValue repeated(const JinjaValues& values, std::size_t times) {
    spend_product(values.size() * sizeof(JinjaValue), times);
    JinjaValues out;
    for (; times > 0 && !values.empty(); --times)
      out.insert(out.end(), values.begin(), values.end());
    return heap_.list(std::move(out));
  }

  JinjaValue computed_whole(Op op, std::int64_t a, std::int64_t b) {
    std::int64_t out = 0;
    bool too_large = false;
    switch (op) {
      case Op::add:
        too_large = __builtin_add_overflow(a, b, &out);
        break;
      case Op::subtract:
        too_large = __builtin_sub_overflow(a, b, &out);
        break;
      case Op::multiply:
        too_large = __builtin_mul_overflow(a, b, &out);
        break;
      case Op::floor_divide:
      case Op::modulo:
        if (b == 0) heap_.refuse("a number is divided by 0");
        if (b == -1) return computed_whole(op == Op::modulo ? Op::multiply : Op::subtract, 0, a);
        out = op == Op::modulo ? a % b : a / b;
        if (a % b != 0 && (a < 0) != (b < 0)) out += op == Op::modulo ? b : -1;
        break;
      case Op::power:
        if (b < 0) return computed_real(op, static_cast<double>(a), static_cast<double>(b));
        out = 1;
        // Beyond 64 steps only 0, 1 and -1 stay small, and they repeat.
        for (std::int64_t k = b > 64 ? 64 + b % 2 : b; k > 0 && !too_large; --k)
          too_large = __builtin_mul_overflow(out, a, &out);
        break;
      default:
        return computed_real(op, static_cast<double>(a), static_cast<double>(b));
    }
    if (too_large) heap_.refuse("a number is too large");
    return JinjaValue::integer(out);
  }

  JinjaValue computed_real(Op op, double a, double b) {
    switch (op) {
      case Op::add:
        return JinjaValue::real(a + b);
      case Op::subtract:
        return JinjaValue::real(a - b);
      case Op::multiply:
        return JinjaValue::real(a * b);
      case Op::power:
        return JinjaValue::real(std::pow(a, b));
      default:
        break;
    }
    if (b == 0) heap_.refuse("a number is divided by 0");
    if (op == Op::divide) return JinjaValue::real(a / b);
    if (op == Op::floor_divide) return JinjaValue::real(std::floor(a / b));
    const double rest = std::fmod(a, b);
    return JinjaValue::real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }

  JinjaHeap& heap_;
  std::string* out_ = nullptr;
  Flow flow_ = Flow::on;  // how the last text_of() ended
  int depth_ = 0;
};

std::int64_t text_bytes(const nlohmann::ordered_json& value) {
  if (value.is_string())
    return static_cast<std::int64_t>(value.get_ref<const std::string&>().size());
  std::int64_t bytes = 0;
  if (value.is_structured())
    for (const auto& one : value) bytes += text_bytes(one);
  return bytes;
}

}  // namespace

JinjaTemplate::JinjaTemplate(std::string_view source) {
  auto program = std::make_shared<JinjaProgram>();
  parse_jinja(source, *program);
  program_ = std::move(program);
}

std::string JinjaTemplate::render(const nlohmann::ordered_json& variables) const {
  JinjaHeap heap(kAllowance + kAllowanceForByte * text_bytes(variables));
  Scope& scope = heap.scope(nullptr);
  for (const auto& [name, value] : variables.items())
    scope.set(heap.string(name).text(), heap.json(value));
  // What a template sets does not change its variables, but hides them.
  return Run(heap).text_of(*program_->body, heap.scope(&scope));
}

}  // namespace kvatlas::model
