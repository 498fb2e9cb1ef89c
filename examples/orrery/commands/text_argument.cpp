#include "examples/orrery/commands/text_argument.h"

#include <iostream>
#include <span>
#include <sstream>
#include <utility>

#include "engine/system/files.h"
#include "engine/types/format.h"
#include "examples/orrery/terminal/messages.h"
#include "models/data/text_files.h"
#include "models/formats/gzip.h"
#include "models/formats/unicode.h"

namespace orrery::program {
namespace {

constexpr uint64_t max_text = uint64_t{1} << 24;  // bytes

std::string read_packed_pipe(const std::string& path, uint64_t limit) {
  std::string bytes = read_pipe(path, limit);
  return models::is_gzip(bytes) ? models::unpack_gzip(bytes, path, limit) : bytes;
}

std::string without_mark(std::string text) {
  if (text.starts_with(models::byte_order_mark)) text.erase(0, models::byte_order_mark.size());
  return text;
}

}  // namespace

std::string text_of_file(const std::string& path) {
  if (is_pipe(path)) return without_mark(read_packed_pipe(path, max_text));
  models::check_is_text(path);
  return without_mark(models::read_data_file(path, max_text));
}

std::string beginning_of_file(const std::string& path) {
  if (is_pipe(path)) return text_of_file(path);
  models::check_is_text(path);
  models::DataReader file(path);
  std::string bytes(max_text + 1, '\0');
  bytes.resize(file.read_up_to(std::as_writable_bytes(std::span(bytes))));
  if (bytes.size() <= max_text) return without_mark(std::move(bytes));
  const size_t line = bytes.rfind('\n', max_text - 1);
  bytes.resize(line != std::string::npos ? line + 1 : models::end_of_characters(bytes.substr(0, max_text)));
  note(text("of ", path, " the first ", with_commas(static_cast<int64_t>(bytes.size())), " bytes are read, of at most ",
            with_commas(static_cast<int64_t>(max_text))));
  return without_mark(std::move(bytes));
}

std::string text_or_input(const std::string& given) { return given == "-" ? text_of_file(given) : given; }

std::string text_argument(const std::string& given) {
  const std::string scheme = "FILE:";
  return given.starts_with(scheme) ? text_of_file(given.substr(scheme.size())) : text_or_input(given);
}

void each_line_of_pipe(const std::string& path, const std::string& what, const models::TakeLine& take) {
  if (path == "-") return models::each_line(std::cin, what, take);  // may be longer than memory
  std::istringstream input(read_packed_pipe(path, models::max_unpacked_bytes));
  models::each_line(input, what, take);
}

}  // namespace orrery::program
