// SPDX-License-Identifier: Apache-2.0
// The command line: the list of commands, and the one place where a failure becomes an exit code.
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include <CLI/CLI.hpp>

#include "kernels/base/error.hpp"

namespace {

int report(int status, const std::string& text) {
  std::cerr << "kvatlas: " << text << '\n';
  return status;
}

int run(int argc, char** argv) {
  CLI::App app("Profiles a language model's attention and calibrates KV-cache policies from it",
               "kvatlas");
  app.set_version_flag("--version", "kvatlas " KVATLAS_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report(kvatlas::exit_status(kvatlas::ErrorCode::usage),
                  std::string(error.what()) + " (see kvatlas --help)");
  }
  if (app.get_subcommands().empty()) std::cout << app.help();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using kvatlas::ErrorCode;
  using kvatlas::exit_status;
  try {
    return run(argc, argv);
  } catch (const kvatlas::Error& error) {
    return report(exit_status(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return report(exit_status(ErrorCode::resource), "not enough memory");
  } catch (const std::exception& error) {
    return report(exit_status(ErrorCode::internal), std::string("internal error: ") + error.what());
  }
}
