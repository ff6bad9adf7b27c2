// SPDX-License-Identifier: Apache-2.0
// What the viewer reads beside profiles: links to a place, and the file of pins and notes.
#include <filesystem>
#include <iostream>

#include "base/error.hpp"
#include "tests/fuzz/input_file.hpp"
#include "viewer/models/link.hpp"
#include "viewer/models/sidecar.hpp"

using namespace kvatlas;
using namespace kvatlas::viewer;

namespace {

[[noreturn]] void fail_loudly(const std::string& why) {
  std::cerr << why << '\n';
  std::abort();
}

void check_kept(const Sidecar& sidecar, const std::filesystem::path& path) {
  write_sidecar(sidecar, path);
  if (!(read_sidecar(path) == sidecar)) fail_loudly("not read as it was written");
}

void check_link(const std::string& text, const std::filesystem::path& path) {
  Link link;
  try {
    link = parse_link(text);
  } catch (const Error&) {
    return;
  }
  const std::string written = link_text(link);
  if (written.size() > text.size() * 4 + 100) fail_loudly("a link grew: " + written);
  const Link again = parse_link(written);
  if (again.file != link.file || !(again.place == link.place))
    fail_loudly("not read as it was written: " + written);
  check_kept({{{link.place, "pinned"}}, {}}, path);  // as the viewer does at a key
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const InputFile file("p.h5.view.json");
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::filesystem::remove(file.path());  // the last input's, which may be what is not replaced
  if (is_link(text)) check_link(text, file.path());
  try {
    const Sidecar sidecar = read_sidecar(file.write(data, size));
    check_kept(sidecar, file.path());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) fail_loudly(error.what());
  }
  return 0;
}
