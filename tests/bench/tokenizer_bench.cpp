// SPDX-License-Identifier: Apache-2.0
// How fast a tokenizer encodes a text, on one thread: the first pass, and the best of ten.
//
//   bench_tokenizer tokenizer.json|tokenizer.model|FILE.gguf TEXT
// tests/bench/tokenizer_vs_peer.py runs it beside its peer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/tokenizer/tokenizer.hpp"
#include "base/error.hpp"

namespace {

using namespace kvatlas;
using Clock = std::chrono::steady_clock;

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::unreadable, "cannot read ", quoted(path));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<const model::Tokenizer> open(const std::string& path) {
  if (path.ends_with(".json")) return model::Tokenizer::from_json(read(path.c_str()));
  if (path.ends_with(".gguf")) return model::Tokenizer::from_gguf(model::GgufFile::open(path));
  return model::Tokenizer::from_sentencepiece(read(path.c_str()));
}

void run(int argc, char** argv) {
  if (argc != 3) fail(ErrorCode::usage, "bench_tokenizer TOKENIZER TEXT");
  const auto tokenizer = open(argv[1]);
  if (!tokenizer) fail(ErrorCode::unreadable, quoted(argv[1]), " has no tokenizer");
  const std::string text = read(argv[2]);
  double first = 0, best = 1e9;
  std::size_t tokens = 0;
  for (int pass = 0; pass < 10; ++pass) {
    const auto start = Clock::now();
    tokens = tokenizer->encode(text).size();
    const double spent = std::chrono::duration<double>(Clock::now() - start).count();
    if (pass == 0) first = spent;
    best = std::min(best, spent);
  }
  const auto rate = [&](double spent) { return static_cast<double>(text.size()) / spent / 1e6; };
  std::printf("{\"tokens\": %zu, \"first_mb_per_s\": %.2f, \"best_mb_per_s\": %.2f}\n", tokens,
              rate(first), rate(best));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_tokenizer: %s\n", error.what());
    return exit_status(error.code());
  }
}
