// Existing files at an output path: only a file with the marks of its kind may be replaced.
#include "models/formats/output_file.h"

#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;

void read_output(const std::string& folder, std::string_view bytes) {
  constexpr std::string_view first = "<!doctype html>", later = "content=\"orrery\"";
  put(folder + "/page.html", bytes);
  orrery::models::check_output("report", folder + "/page.html",
                               orrery::models::marked_kind("a page", std::string(first), std::string(later)));
  promise(bytes.starts_with(first), "a file that does not begin as a page would be replaced");
  promise(bytes.find(later, first.size()) != bytes.npos, "a page of another program would be replaced");
}
REGISTER_FORMAT(output, {.name = "output",
                         .readers = {"models/formats/output_file.cpp"},
                         .read = read_output,
                         .memory_multiple = 4,
                         .memory_base = 1 << 16,
                         .words = {"<!doctype html>", "content=\"orrery\"", "<meta name=\"generator\""}});

}  // namespace
