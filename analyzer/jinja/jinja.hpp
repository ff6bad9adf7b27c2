// SPDX-License-Identifier: Apache-2.0
// The Jinja that chat templates are written in. A template comes with a model, so that it is not
// trusted: its size, its nesting, the steps of a run and all that a run makes are bounded, and
// nothing but the variables that it is given can be reached from it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace kvatlas::model {

struct JinjaProgram;

class JinjaTemplate {
 public:
  /// Reads a template as transformers does: a block tag swallows the newline behind it and the
  /// spaces before it on its line. Error(unreadable), with the line, where it is not Jinja;
  /// Error(unsupported) for a tag that chat templates have no use for.
  explicit JinjaTemplate(std::string_view source);

  /// The text that the template makes of the variables, which are the members of an object, with
  /// transformers' functions and filters at hand. Error(unsupported), with the line, for what this
  /// interpreter has not; Error(unreadable) where the template refuses or fails, or takes too long.
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  std::shared_ptr<const JinjaProgram> program_;
};

}  // namespace kvatlas::model
