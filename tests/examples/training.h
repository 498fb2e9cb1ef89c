// Small runs of orrery train, and their files.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/examples/program.h"

inline const std::string shakespeare = ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt";

inline std::vector<std::string> train_tiny(const Folder& folder, const std::string& out,
                                           const std::vector<std::string>& more = {}) {
  return std::vector<std::string>{"train", "--data=" + folder.write("text.txt", tiny_text()),
                                  "--out=" + (folder / out)} +
         tiny + more;
}
// Trains a run, which must succeed, and returns its folder. With `learns`, the exit code must be 0.
inline std::string trained_run(const Folder& folder, const std::string& out, const std::vector<std::string>& more = {},
                               bool learns = true) {
  const Outcome outcome = run_orrery(train_tiny(folder, out, more));
  REQUIRE_MESSAGE((learns ? outcome.code == 0 : is_complete(outcome)), outcome.err);
  return folder / out;
}
inline std::string weights(const std::string& checkpoint) { return read_file(checkpoint + "/weights.safetensors"); }
