#include "models/data/token_fingerprint.h"

#include <algorithm>

#include "engine/system/files.h"
#include "engine/types/format.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

constexpr uint64_t blocks = 256, block_bytes = uint64_t{1} << 20;
constexpr uint64_t max_hashed_apart = 2 * max_hashed_whole;  // bytes of the files that are hashed whole

// Passes the unpacked bytes and their number so far to `add`. Returns the number of all.
// Only a name marks a packed file, because the first token may look like a gzip header.
template <class Add>
uint64_t read_whole(const std::string& file, const Add& add) {
  std::vector<std::byte> chunk(block_bytes);
  uint64_t bytes = 0;
  const auto read = [&](auto reader) {
    while (const size_t got = reader.read_up_to(chunk)) {
      bytes += got;
      add(std::span(chunk).first(got), bytes);
    }
  };
  is_named_packed(file) ? read(DataReader(file)) : read(FileReader(file));
  return bytes;
}

// Returns the fingerprint of files that are not packed, of which only a sample is read.
Fingerprint fingerprint_of_sample(std::span<const std::string> files, uint64_t bytes) {
  TokenFingerprint print(bytes);
  std::vector<std::byte> chunk(block_bytes);
  uint64_t begin = 0;  // of the file
  for (const std::string& path : files) {
    const FileReader file(path);
    const uint64_t end = begin + file.size();
    for (uint64_t at = print.next_hashed(begin); at < end; at = print.next_hashed(at)) {
      const std::span<std::byte> some = std::span(chunk).first(std::min<uint64_t>(chunk.size(), end - at));
      file.read_at(at - begin, some);
      print.add_at(at, some);
      at += some.size();
    }
    begin = end;
  }
  return print.take();
}

}  // namespace

TokenFingerprint::TokenFingerprint(uint64_t bytes) : bytes_(bytes) {
  if (is_sample()) hash_.add(std::as_bytes(std::span(&bytes_, 1)));
}

uint64_t TokenFingerprint::block_begin(uint64_t block) const { return block * (bytes_ - block_bytes) / (blocks - 1); }

uint64_t TokenFingerprint::next_hashed(uint64_t at) const {
  if (!is_sample()) return at;
  for (uint64_t block = 0; block < blocks; ++block)
    if (at < block_begin(block) + block_bytes) return std::max(at, block_begin(block));
  return bytes_;
}

void TokenFingerprint::add_at(uint64_t at, std::span<const std::byte> chunk) {
  if (!is_sample()) return hash_.add(chunk);
  const uint64_t end = at + chunk.size();
  for (uint64_t block = 0; block < blocks; ++block) {
    const uint64_t first = std::max(at, block_begin(block)), last = std::min(end, block_begin(block) + block_bytes);
    if (first < last) hash_.add(chunk.subspan(first - at, last - first));
  }
}

TokenFileFingerprints fingerprints_of_token_files(std::span<const std::string> files,
                                                  const std::function<void(size_t file, uint64_t bytes)>& unpacked) {
  TokenFileFingerprints found;
  const bool packed = std::any_of(files.begin(), files.end(), is_named_packed);
  std::vector<uint64_t> sizes;
  uint64_t bytes = 0, whole = 0;
  for (const std::string& file : files) {
    sizes.push_back(packed ? 0 : FileReader(file).size());
    bytes += sizes.back();
    if (sizes.back() <= max_hashed_whole) whole += sizes.back();
  }
  found.is_sample = bytes > max_hashed_whole;
  if (found.is_sample) {
    found.all = fingerprint_of_sample(files, bytes);
    for (size_t i = 0; i < files.size() && whole <= max_hashed_apart; ++i)
      found.files.push_back(files.size() == 1 ? found.all : fingerprint_of_sample(files.subspan(i, 1), sizes[i]));
    return found;
  }
  Sha256 all;
  for (size_t i = 0; i < files.size(); ++i) {
    Sha256 own;
    const uint64_t size = read_whole(files[i], [&](std::span<const std::byte> chunk, uint64_t so_far) {
      own.add(chunk), all.add(chunk);
      unpacked(i, so_far);
    });
    found.files.push_back({size, own.digits()});
    found.all.bytes += size;
  }
  found.all.sha256 = all.digits();
  return found;
}

std::string note_about_sample(const std::string& path, uint64_t bytes) {
  return text(path, " has ", in_megabytes(static_cast<double>(bytes)),
              " of tokens, more than 1 GiB: its fingerprint hashes the length and ", blocks,
              " blocks of 1 MiB, and tokens are checked when a batch reads them");
}

}  // namespace orrery::models
