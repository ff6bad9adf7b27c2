// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "analyzer/jinja/jinja_syntax_impl.hpp"

namespace kvatlas::model {
namespace {

using Node = JinjaNode;
using Op = JinjaOp;

/// An operator between two expressions.
struct Binary {
  std::string_view sign;
  Op op;
};
constexpr Binary kSums[] = {{"+", Op::add}, {"-", Op::subtract}};
constexpr Binary kJoins[] = {{"~", Op::concatenate}};
constexpr Binary kProducts[] = {
    {"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}};
constexpr Binary kPowers[] = {{"**", Op::power}};
/// From those that bind least on.
constexpr std::span<const Binary> kLevels[] = {kSums, kJoins, kProducts, kPowers};

class Parser {
 public:
  Parser(std::vector<JinjaLexeme> lexemes, JinjaProgram& program)
      : lexemes_(std::move(lexemes)), program_(program) {}

  const Node* run() { return parse_statements({}); }

 private:
  // Lexemes.

  const JinjaLexeme& now() const { return lexemes_[at_]; }
  const JinjaLexeme& next() const { return lexemes_[std::min(at_ + 1, lexemes_.size() - 1)]; }
  JinjaLexeme take() { return lexemes_[at_ + 1 < lexemes_.size() ? at_++ : at_]; }
  bool at_sign(std::string_view sign) const {
    return now().token == JinjaToken::sign && now().text == sign;
  }
  bool at_name(std::string_view name) const {
    return now().token == JinjaToken::name && now().text == name;
  }
  bool skip_sign(std::string_view sign) { return at_sign(sign) && (take(), true); }
  bool skip_name(std::string_view name) { return at_name(name) && (take(), true); }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) fail_here("'", sign, "' is expected, not ", shown());
  }
  std::string expect_name() {
    if (now().token != JinjaToken::name) fail_here("a name is expected, not ", shown());
    return take().text;
  }
  std::string shown() const {
    switch (now().token) {
      case JinjaToken::output_end:
        return "'}}'";
      case JinjaToken::tag_end:
        return "'%}'";
      case JinjaToken::end:
        return "the end";
      default:
        return quoted(now().text);
    }
  }
  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    fail_at(now().line, ErrorCode::unreadable, parts...);
  }

  // The tree.

  /// Ends a template that nests deeper than the program's stack should have to follow.
  class Deeper {
   public:
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kDeepestTemplate) parser_.fail_deep();
    }
    ~Deeper() { --parser_.depth_; }

   private:
    Parser& parser_;
  };
  [[noreturn]] void fail_deep() const {
    fail_here("the template is nested deeper than ", kDeepestTemplate, " levels");
  }

  Node* make(Op op, int line, const std::vector<Node*>& kids = {}, std::string text = {}) {
    Node& node = program_.nodes.emplace_back();
    node.op = op;
    node.line = line;
    node.text = std::move(text);
    for (Node* kid : kids) adopt(node, kid);
    return &node;
  }
  void adopt(Node& node, Node* kid) {
    node.kids.push_back(kid);
    if (kid == nullptr) return;
    node.depth = std::max(node.depth, kid->depth + 1);
    if (node.depth > kDeepestTemplate) fail_deep();
  }
  Node* constant(int line, JinjaValue value) {
    Node* node = make(Op::constant, line);
    node->value = value;
    return node;
  }
  Node* string_constant(int line, std::string text) {
    Node* node = make(Op::constant, line, {}, std::move(text));
    node->value = JinjaValue::string(node->text);
    return node;
  }

  // Statements.

  /// The name that a tag begins with, where one begins here; else empty.
  std::string tag_name() const {
    return now().token == JinjaToken::tag && next().token == JinjaToken::name ? next().text : "";
  }

  /// All up to a tag of one of these names, which is left.
  Node* parse_statements(std::initializer_list<std::string_view> ends, Op op = Op::block) {
    const Deeper deeper(*this);
    Node* block = make(op, now().line);
    while (now().token != JinjaToken::end) {
      if (now().token == JinjaToken::text) {
        const int line = now().line;
        adopt(*block, make(Op::text, line, {}, take().text));
      } else if (now().token == JinjaToken::output) {
        const int line = take().line;
        adopt(*block, make(Op::output, line, {parse_tuple()}));
        if (now().token != JinjaToken::output_end) fail_here("'}}' is expected, not ", shown());
        take();
      } else {
        const std::string name = tag_name();
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) return block;
        if (name.starts_with("end") || name == "else" || name == "elif") {
          if (ends.size() == 0) fail_here("{% ", name, " %} ends nothing");
          fail_here("{% ", *(ends.end() - 1), " %} is expected, not {% ", name, " %}");
        }
        adopt(*block, parse_tag());
      }
    }
    if (ends.size() > 0) fail_here("{% ", *(ends.end() - 1), " %} is missing at the end");
    return block;
  }

  void end_tag() {
    if (now().token != JinjaToken::tag_end) fail_here("'%}' is expected, not ", shown());
    take();
  }
  /// The statements up to the end tag, which is passed over.
  Node* parse_body(std::string_view end, Op op = Op::block) {
    end_tag();
    Node* body = parse_statements({end}, op);
    pass_tag();
    return body;
  }
  /// Passes over a tag that is only its name.
  void pass_tag() {
    take();
    take();
    end_tag();
  }
  /// Passes over the opening and the name of a tag that goes on.
  void open_tag() {
    take();
    take();
  }

  Node* parse_tag() {
    take();
    const int line = now().line;
    const std::string name = expect_name();
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") {
      const std::string macro = expect_name();
      return parse_macro(line, macro, "endmacro");
    }
    if (name == "call") return parse_call_block(line);
    if (name == "filter") {
      Node* filter = parse_filters(nullptr, false);
      return make(Op::filter_block, line, {filter, parse_body("endfilter", Op::scope)});
    }
    if (name == "with") return parse_with(line);
    if (name == "generation") return parse_body("endgeneration", Op::scope);
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_at(line, ErrorCode::unreadable, "{% ", name, " %} stands in no loop");
      end_tag();
      return make(name == "break" ? Op::leave : Op::next, line);
    }
    fail_at(line, ErrorCode::unsupported, "the tag {% ", printable(name), " %} is not supported");
  }

  Node* parse_if(int line) {
    Node* branch = make(Op::branch, line);
    while (true) {
      adopt(*branch, parse_tuple(false));
      end_tag();
      adopt(*branch, parse_statements({"elif", "else", "endif"}));
      const std::string name = tag_name();
      if (name == "elif") {
        open_tag();
        continue;
      }
      pass_tag();
      if (name == "endif") return branch;
      adopt(*branch, parse_statements({"endif"}));
      pass_tag();
      return branch;
    }
  }

  Node* parse_for(int line) {
    Node* target = parse_targets(false);
    if (!skip_name("in")) fail_here("'in' is expected, not ", shown());
    Node* iterated = parse_tuple(false);
    Node* condition = skip_name("if") ? parse_expression() : nullptr;
    const bool recursive = skip_name("recursive");
    end_tag();
    ++loops_;
    Node* body = parse_statements({"else", "endfor"});
    --loops_;
    Node* otherwise = nullptr;
    const bool has_else = tag_name() == "else";
    pass_tag();
    if (has_else) {
      otherwise = parse_statements({"endfor"}, Op::scope);
      pass_tag();
    }
    Node* loop = make(Op::loop, line, {target, iterated, condition, body, otherwise});
    loop->recursive = recursive;
    return loop;
  }

  Node* parse_set(int line) {
    Node* target = parse_targets(true);
    if (skip_sign("=")) {
      Node* value = parse_tuple();
      end_tag();
      return make(Op::assign, line, {target, value});
    }
    if (now().token == JinjaToken::name) fail_here("'=' is expected, not ", shown());
    Node* filter = parse_filters(nullptr, false);
    return make(Op::assign_text, line, {target, filter, parse_body("endset", Op::scope)});
  }

  Node* parse_macro(int line, const std::string& name, std::string_view end) {
    Node* macro = make(Op::macro, line, {nullptr}, name);
    if (end == "endmacro" || at_sign("(")) {
      expect_sign("(");
      while (!at_sign(")")) {
        macro->words.push_back(expect_name());
        adopt(*macro, skip_sign("=") ? parse_expression() : nullptr);
        if (!skip_sign(",")) break;
      }
      expect_sign(")");
    }
    if (end == "endcall") return macro;
    parse_macro_body(*macro, end);
    return macro;
  }
  void parse_macro_body(Node& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Node* outer = std::exchange(macro_, &macro);
    Node* body = parse_body(end);
    macro.kids[0] = body;
    macro.depth = std::max(macro.depth, body->depth + 1);
    macro_ = outer;
    loops_ = loops;
  }

  /// {% call(parameters) macro(arguments) %}
  Node* parse_call_block(int line) {
    Node* caller = parse_macro(line, "caller", "endcall");
    Node* call = parse_expression();
    if (call->op != Op::call) fail_at(line, ErrorCode::unreadable, "{% call %} needs a call");
    parse_macro_body(*caller, "endcall");
    return make(Op::call_block, line, {call, caller});
  }

  Node* parse_with(int line) {
    Node* with = make(Op::with, line);
    while (now().token != JinjaToken::tag_end) {
      adopt(*with, parse_targets(false));
      expect_sign("=");
      adopt(*with, parse_expression());
      if (!skip_sign(",")) break;
    }
    adopt(*with, parse_body("endwith"));
    return with;
  }

  /// What is assigned to: a name, name.attribute where `with_attributes`, or a tuple of them.
  Node* parse_targets(bool with_attributes) {
    const int line = now().line;
    const bool in_brackets = skip_sign("(");
    std::vector<Node*> targets;
    bool is_tuple = false;
    do {
      if (is_tuple && now().token != JinjaToken::name) break;  // a comma at the end
      Node* target = make(Op::name, now().line, {}, expect_name());
      if (with_attributes && skip_sign("."))
        target = make(Op::attribute, line, {target}, expect_name());
      targets.push_back(target);
      if (at_sign(",")) is_tuple = true;
    } while (skip_sign(","));
    if (in_brackets) expect_sign(")");
    return is_tuple ? make(Op::tuple, line, targets) : targets.front();
  }

  // Expressions.

  /// Expressions with commas between them are a tuple.
  Node* parse_tuple(bool with_choice = true) {
    const int line = now().line;
    Node* first = with_choice ? parse_expression() : parse_either();
    if (!at_sign(",")) return first;
    std::vector<Node*> parts = {first};
    while (skip_sign(",")) {
      if (now().token == JinjaToken::output_end || now().token == JinjaToken::tag_end ||
          at_sign(")"))
        break;
      parts.push_back(with_choice ? parse_expression() : parse_either());
    }
    return make(Op::tuple, line, parts);
  }

  Node* parse_expression() {
    const Deeper deeper(*this);
    Node* value = parse_either();
    while (at_name("if")) {
      const int line = take().line;
      Node* condition = parse_either();
      Node* otherwise = skip_name("else") ? parse_expression() : nullptr;
      value = make(Op::choose, line, {condition, value, otherwise});
    }
    return value;
  }

  Node* parse_either() {
    Node* value = parse_both();
    while (at_name("or")) {
      const int line = take().line;
      value = make(Op::either, line, {value, parse_both()});
    }
    return value;
  }
  Node* parse_both() {
    Node* value = parse_not();
    while (at_name("and")) {
      const int line = take().line;
      value = make(Op::both, line, {value, parse_not()});
    }
    return value;
  }
  Node* parse_not() {
    if (!at_name("not")) return parse_compare();
    const Deeper deeper(*this);
    const int line = take().line;
    return make(Op::negate, line, {parse_not()});
  }

  Node* parse_compare() {
    Node* first = parse_binary(0);
    Node* compare = nullptr;
    while (true) {
      std::string word;
      constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};
      const int line = now().line;
      if (now().token == JinjaToken::sign &&
          std::find(std::begin(kComparisons), std::end(kComparisons), now().text) !=
              std::end(kComparisons)) {
        word = take().text;
      } else if (skip_name("in")) {
        word = "in";
      } else if (at_name("not") && next().token == JinjaToken::name && next().text == "in") {
        take();
        take();
        word = "not in";
      } else {
        return compare != nullptr ? compare : first;
      }
      if (compare == nullptr) compare = make(Op::compare, line, {first});
      compare->words.push_back(word);
      adopt(*compare, parse_binary(0));
    }
  }

  Node* parse_binary(std::size_t level) {
    if (level == std::size(kLevels)) return parse_unary();
    Node* value = parse_binary(level + 1);
    while (now().token == JinjaToken::sign) {
      const auto& signs = kLevels[level];
      const auto sign = std::find_if(signs.begin(), signs.end(),
                                     [&](const Binary& one) { return one.sign == now().text; });
      if (sign == signs.end()) break;
      const int line = take().line;
      value = make(sign->op, line, {value, parse_binary(level + 1)});
    }
    return value;
  }

  /// A sign binds closer than a filter.
  Node* parse_unary(bool with_filters = true) {
    const Deeper deeper(*this);
    Node* value = nullptr;
    if (at_sign("-") || at_sign("+")) {
      const JinjaLexeme sign = take();
      value = make(sign.text == "-" ? Op::minus : Op::plus, sign.line, {parse_unary(false)});
    } else {
      value = parse_primary();
    }
    value = parse_postfix(value);
    return with_filters ? parse_filters(value, true) : value;
  }

  Node* parse_primary() {
    const JinjaLexeme lexeme = take();
    switch (lexeme.token) {
      case JinjaToken::name:
        return parse_name(lexeme);
      case JinjaToken::string: {
        std::string text = lexeme.text;
        while (now().token == JinjaToken::string) text += take().text;
        return string_constant(lexeme.line, std::move(text));
      }
      case JinjaToken::number:
        return parse_number(lexeme);
      case JinjaToken::sign:
        if (lexeme.text == "(") return parse_brackets(lexeme.line);
        if (lexeme.text == "[") {
          Node* list = make(Op::list, lexeme.line);
          while (!at_sign("]")) {
            adopt(*list, parse_expression());
            if (!skip_sign(",")) break;
          }
          expect_sign("]");
          return list;
        }
        if (lexeme.text == "{") {
          Node* dict = make(Op::dict, lexeme.line);
          while (!at_sign("}")) {
            adopt(*dict, parse_expression());
            expect_sign(":");
            adopt(*dict, parse_expression());
            if (!skip_sign(",")) break;
          }
          expect_sign("}");
          return dict;
        }
        break;
      default:
        break;
    }
    if (at_ > 0 && lexeme.token != JinjaToken::end) --at_;
    fail_here("an expression is expected, not ", shown());
  }

  Node* parse_name(const JinjaLexeme& lexeme) {
    const std::string& name = lexeme.text;
    if (name == "true" || name == "True") return constant(lexeme.line, JinjaValue::boolean(true));
    if (name == "false" || name == "False")
      return constant(lexeme.line, JinjaValue::boolean(false));
    if (name == "none" || name == "None") return constant(lexeme.line, JinjaValue::none());
    if (macro_ != nullptr) {
      macro_->takes_more |= name == "varargs";
      macro_->takes_named |= name == "kwargs";
      macro_->takes_caller |= name == "caller";
    }
    return make(Op::name, lexeme.line, {}, name);
  }

  Node* parse_number(const JinjaLexeme& lexeme) {
    const char* end = lexeme.text.data() + lexeme.text.size();
    if (lexeme.text.find_first_of(".e") == std::string::npos) {
      std::int64_t whole = 0;
      const auto read = std::from_chars(lexeme.text.data(), end, whole);
      if (read.ec != std::errc() || read.ptr != end)
        fail_at(lexeme.line, ErrorCode::unsupported, "the number ", printable(lexeme.text),
                " is too large");
      return constant(lexeme.line, JinjaValue::integer(whole));
    }
    double real = 0;
    const auto read = std::from_chars(lexeme.text.data(), end, real);
    if (read.ec != std::errc() || read.ptr != end)
      fail_at(lexeme.line, ErrorCode::unsupported, "the number ", printable(lexeme.text),
              " cannot be read");
    return constant(lexeme.line, JinjaValue::real(real));
  }

  Node* parse_brackets(int line) {
    if (skip_sign(")")) return make(Op::tuple, line);
    Node* inside = parse_tuple();
    expect_sign(")");
    return inside;
  }

  Node* parse_postfix(Node* value) {
    while (now().token == JinjaToken::sign) {
      const int line = now().line;
      if (skip_sign(".")) {
        if (now().token == JinjaToken::number) {
          value = make(Op::item, line, {value, parse_number(take())});
        } else {
          value = make(Op::attribute, line, {value}, expect_name());
        }
      } else if (skip_sign("[")) {
        value = parse_subscript(value, line);
      } else if (at_sign("(")) {
        value = make(Op::call, line, {value});
        parse_arguments(*value);
      } else {
        break;
      }
    }
    return value;
  }

  Node* parse_subscript(Node* object, int line) {
    Node* parts[3] = {};
    std::size_t part = 0;
    while (!at_sign("]")) {
      if (skip_sign(":")) {
        if (++part > 2) fail_here("a slice has at most three parts");
      } else if (parts[part] != nullptr) {
        fail_here("']' is expected, not ", shown());
      } else {
        parts[part] = parse_expression();
      }
    }
    expect_sign("]");
    if (part > 0) return make(Op::slice, line, {object, parts[0], parts[1], parts[2]});
    if (parts[0] == nullptr) fail_at(line, ErrorCode::unreadable, "[] holds no index");
    return make(Op::item, line, {object, parts[0]});
  }

  /// The arguments in brackets become kids of the node, with their names in its words. A list of
  /// arguments is named "*", a dict of them "**".
  void parse_arguments(Node& node) {
    node.words.resize(node.kids.size());
    expect_sign("(");
    while (!at_sign(")")) {
      std::string name;
      if (at_sign("*") || at_sign("**")) {
        name = take().text;
      } else if (now().token == JinjaToken::name && next().token == JinjaToken::sign &&
                 next().text == "=") {
        name = take().text;
        take();
      } else if (!node.words.empty() && !node.words.back().empty()) {
        fail_here("an argument without a name follows one with a name");
      }
      adopt(node, parse_expression());
      node.words.push_back(name);
      if (!skip_sign(",")) break;
    }
    expect_sign(")");
  }

  /// Filters and tests behind a value. A filter block begins with the name of a filter, and its
  /// first filter has no input.
  Node* parse_filters(Node* value, bool with_tests) {
    bool named_first = value == nullptr && now().token == JinjaToken::name;
    while (true) {
      const int line = now().line;
      if (named_first || skip_sign("|")) {
        named_first = false;
        value = make(Op::filter, line, {value}, dotted_name());
        value->words.resize(1);
        if (at_sign("(")) parse_arguments(*value);
      } else if (with_tests && skip_name("is")) {
        value = parse_test(value, line);
      } else if (with_tests && at_sign("(")) {
        value = make(Op::call, line, {value});
        parse_arguments(*value);
      } else {
        return value;
      }
    }
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_sign(".")) name += "." + expect_name();
    return name;
  }

  /// A test may have one argument without brackets.
  Node* parse_test(Node* value, int line) {
    const bool negated = skip_name("not");
    Node* test = make(Op::test, line, {value}, dotted_name());
    test->words.resize(1);
    const bool begins_value = now().token == JinjaToken::name ||
                              now().token == JinjaToken::string ||
                              now().token == JinjaToken::number || at_sign("[") || at_sign("{");
    if (at_sign("(")) {
      parse_arguments(*test);
    } else if (begins_value && !at_name("else") && !at_name("or") && !at_name("and") &&
               !at_name("is") && !at_name("if")) {
      adopt(*test, parse_postfix(parse_primary()));
      test->words.emplace_back();
    }
    return negated ? make(Op::negate, line, {test}) : test;
  }

  const std::vector<JinjaLexeme> lexemes_;
  JinjaProgram& program_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;          // that stand around this place
  Node* macro_ = nullptr;  // that stands around it
};

}  // namespace

void parse_jinja(std::string_view source, JinjaProgram& program) {
  program.body = Parser(jinja_lexemes(source), program).run();
}

}  // namespace kvatlas::model
