// Small runs of orrery train, and their files.
#pragma once

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
inline std::string weights(const std::string& checkpoint) { return read_file(checkpoint + "/weights.safetensors"); }
