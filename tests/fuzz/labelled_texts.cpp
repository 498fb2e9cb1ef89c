// Tables of labelled texts: JSON lines if they begin with a brace, TSV if the first line has a tab,
// else CSV.
#include "models/data/labelled_texts.h"

#include <set>

#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using namespace orrery::models;

void read_table(const std::string& folder, std::string_view bytes) {
  const std::string_view first = bytes.substr(0, bytes.find('\n'));
  const char* const ending = first.starts_with('{') ? "jsonl" : first.find('\t') != first.npos ? "tsv" : "csv";
  const std::string path = folder + "/table." + ending;
  put(path, bytes);
  LabelledTexts all = read_labelled_texts(path, "text", "label");
  promise(!all.texts.empty() && all.texts.size() == all.labels.size(), "texts without labels");
  for (const int32_t label : all.labels)
    promise(label >= 0 && label < static_cast<int32_t>(all.classes.size()), "a label without a class");
  promise(std::set(all.labels.begin(), all.labels.end()).size() == all.classes.size(), "a class without a text");
  promise(std::set(all.classes.begin(), all.classes.end()).size() == all.classes.size(), "equal classes");
  const std::vector<int32_t> before = all.labels;
  all.relabel(std::vector<std::string>(all.classes), path);
  promise(all.labels == before, "labels change by their own classes");
}

REGISTER_FORMAT(labelled_texts, {.name = "labelled_texts",
                                 .readers = {"models/data/labelled_texts.cpp"},
                                 .read = read_table,
                                 .memory_multiple = 2048,
                                 .memory_base = 1 << 22,
                                 .words = json_words({"\t", "\n", "\r\n", "\"\"", "text", "label", "\"text\":",
                                                      "\"label\":", "a,b\n", "{\"text\":\"a\",\"label\":1}\n"})});

}  // namespace
