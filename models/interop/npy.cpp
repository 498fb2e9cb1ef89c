#include "models/interop/npy.h"

#include <map>

#include "engine/system/files.h"

namespace orrery::models {
namespace {

const std::map<std::string, std::string, std::less<>> dtype_codes = {
    {"BOOL", "|b1"}, {"U8", "|u1"},  {"I8", "|i1"},  {"U16", "<u2"}, {"I16", "<i2"}, {"U32", "<u4"},  {"I32", "<i4"},
    {"U64", "<u8"},  {"I64", "<i8"}, {"F16", "<f4"}, {"F32", "<f4"}, {"F64", "<f8"}, {"BF16", "<f4"}, {"C64", "<c8"}};

constexpr const char* end_marker = "),  }";
constexpr std::string_view first_bytes("\x93NUMPY\x01\x00", 8);

std::string header_of(const std::string& code, const std::vector<int64_t>& shape) {
  std::string header = "{'descr': '" + code + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : shape) header += std::to_string(size) + ", ";
  if (shape.size() > 1) header.resize(header.size() - 2);  // one axis keeps its comma: (3, )
  header += end_marker;
  constexpr size_t before = 10;  // bytes: magic, version, length
  header.append(63 - (before + header.size()) % 64, ' ');
  return header + '\n';
}

}  // namespace

OutputKind npy_kind() { return marked_kind("an array that orrery wrote", std::string(first_bytes), end_marker); }

void write_npy(const std::string& path, const StoredTensor& tensor) {
  const auto code = dtype_codes.find(tensor.dtype);
  check(code != dtype_codes.end(), "npy: '", tensor.name, "' has dtype ", tensor.dtype,
        ", which NumPy does not support; supported: BOOL, integers, F16, BF16, F32, F64, C64");
  const std::string header = header_of(code->second, tensor.shape);
  check(header.size() <= 65535, "npy: '", tensor.name, "' has ", tensor.shape.size(),
        " axes, too many for a .npy header");
  const Tensor wide =
      tensor.tensor && tensor.tensor.dtype() == Dtype::bf16 ? tensor.tensor.to(Dtype::f32) : tensor.tensor;
  write_file_atomically(path, [&](FileWriter& file) {
    const auto length = static_cast<uint16_t>(header.size());
    file.write(first_bytes);
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(header);
    if (wide)
      file.write({static_cast<const std::byte*>(wide.raw()), static_cast<size_t>(wide.bytes())});
    else
      file.write(tensor.bytes);
  });
}

}  // namespace orrery::models
