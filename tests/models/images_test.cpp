// Images: layouts of folders, and errors.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "engine/system/files.h"
#include "models/data/images.h"
#include "models/formats/gzip.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/png.h"
#include "tests/support/text.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::contains;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::Message;
namespace fs = std::filesystem;

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/images";

std::string copy_of(const std::string& scrap, const Folder& folder) {
  fs::copy(scraps + "/" + scrap, folder / scrap, fs::copy_options::recursive);
  return folder / scrap;
}
Message failure(const std::string& folder, const ImageOptions& options = {}) {
  return expect_error([&] { read_images(folder, options); });
}

std::string big_endian(std::initializer_list<uint32_t> numbers) {
  std::string bytes;
  for (const uint32_t number : numbers)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift & 0xff));
  return bytes;
}
// Writes an IDX set of 2 x 2 pixels with these labels; every pixel of image i is i.
void write_idx(const std::string& folder, const std::string& split, const std::string& labels) {
  const auto count = static_cast<uint32_t>(labels.size());
  std::string pixels;
  for (uint32_t i = 0; i < count; ++i) pixels += std::string(4, static_cast<char>(i));
  write_file_atomically(folder + "/" + split + "-images-idx3-ubyte", big_endian({0x803, count, 2, 2}) + pixels);
  write_file_atomically(folder + "/" + split + "-labels-idx1-ubyte", big_endian({0x801, count}) + labels);
}
std::string cifar_record(char label, char red, char green, char blue) {
  return std::string(1, label) + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
}

}  // namespace

TEST_CASE("images: IDX files, packed, with a validation split") {
  const ImageSet set = read_images(scraps + "/fashion", {});
  CHECK(set.train.count() == 60);
  CHECK(set.validation.count() == 20);
  CHECK(set.classes.size() == 10);
  CHECK((set.train.height == 28 && set.train.width == 28 && set.train.channels == 1));
  const std::string labels = read_data_file(scraps + "/fashion/train-labels-idx1-ubyte.gz"),
                    pixels = read_data_file(scraps + "/fashion/train-images-idx3-ubyte.gz");
  for (int64_t i = 0; i < 60; ++i) {
    CHECK(set.train.labels[static_cast<size_t>(i)] == labels[static_cast<size_t>(8 + i)]);
    CHECK(set.train.image(i)[400] == static_cast<uint8_t>(pixels[static_cast<size_t>(16 + i * 784 + 400)]));
  }
  CHECK(read_images(scraps + "/fashion", {.size = 14}).validation.pixels.size() == 20 * 14 * 14);
  failure(scraps + "/fashion", {.channels = 3}).names("fashion").value(1).value(3).offers("--channels=1");
}

TEST_CASE("images: the classes of IDX files are the labels that occur, as EMNIST's letters from 1 to 26") {
  const Folder folder;
  std::string labels;
  for (int round = 0; round < 2; ++round)
    for (char letter = 26; letter >= 1; --letter) labels.push_back(letter);
  write_idx(folder.path.string(), "train", labels);
  write_idx(folder.path.string(), "t10k", std::string("\x1a\x01", 2));
  const ImageSet set = read_images(folder.path.string(), {});
  REQUIRE(set.classes.size() == 26);
  CHECK(set.classes.front() == "1");
  CHECK(set.classes.back() == "26");
  CHECK(set.train.labels.front() == 25);
  CHECK(set.validation.labels == std::vector<int32_t>{25, 0});
}

TEST_CASE("images: class folders of PNG and JPEG, with one split or two") {
  const ImageSet set = read_images(scraps + "/shapes", {});
  CHECK(set.classes == std::vector<std::string>{"rings", "stripes"});
  CHECK(set.train.labels == std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(set.validation.labels == std::vector<int32_t>{0, 0, 1, 1});
  CHECK((set.train.height == 12 && set.train.channels == 3));
  const auto color = set.train.image(0), grey = set.train.image(1);  // channels: (grey, 255 - grey, 0), and only grey
  for (size_t i = 0; i < color.size(); i += 3) {
    CHECK(color[i] + color[i + 1] == 255);
    CHECK(color[i + 2] == 0);
    CHECK((grey[i] == grey[i + 1] && grey[i] == grey[i + 2]));
  }
  CHECK(read_images(scraps + "/shapes", {.size = 5, .channels = 1}).train.pixels.size() == 8 * 25);
  const ImageSet one = read_images(scraps + "/shapes/train", {.validation_fraction = 0.25});
  CHECK(one.train.labels == std::vector<int32_t>{0, 0, 0, 1, 1, 1});
  CHECK(one.validation.labels == std::vector<int32_t>{0, 1});
  CHECK(!(one.fingerprint() == set.fingerprint()));
  CHECK(set.fingerprint() == read_images(scraps + "/shapes", {.size = 7}).fingerprint());
  // These images again; the first `rings` of them are labeled rings.
  const Folder folder;
  const auto divided = [&](int rings) {
    const std::string to = folder / std::to_string(rings);
    for (const char* name : {"/rings", "/stripes"}) fs::create_directories(to + name);
    int count = 0;
    for (const char* name : {"/rings", "/stripes"})
      for (const char* file : {"/0.png", "/1.png", "/2.png"}) {
        const std::string number = "/" + std::to_string(count) + ".png";
        fs::copy(scraps + "/shapes/train" + name + file, to + (count < rings ? "/rings" : "/stripes") + number);
        ++count;
      }
    return read_images(to, {.validation_fraction = 0.34}).fingerprint();
  };
  const Fingerprint two = divided(2), three = divided(3);
  CHECK(two.bytes == three.bytes);
  CHECK(two.sha256 != three.sha256);
}

TEST_CASE("images: CIFAR's binary files, with planes of color converted to pixels") {
  const Folder folder;
  const std::string path = folder.path.string();
  write_file_atomically(folder / "data_batch_1.bin", cifar_record(0, 10, 20, 30) + cifar_record(1, 40, 50, 60));
  write_file_atomically(folder / "data_batch_2.bin", cifar_record(1, 70, 80, 90));
  write_file_atomically(folder / "test_batch.bin", cifar_record(1, 1, 2, 3));
  write_file_atomically(folder / "batches.meta.txt", "plane\ncar\n\n");
  const ImageSet set = read_images(path, {});
  CHECK(set.classes == std::vector<std::string>{"plane", "car"});
  write_file_atomically(folder / "batches.meta.txt", "plane\r\ncar\r\n\r\n");
  CHECK(read_images(path, {}).classes == set.classes);
  CHECK(set.train.labels == std::vector<int32_t>{0, 1, 1});
  const auto image = set.train.image(2);
  for (size_t i = 0; i < image.size(); ++i) REQUIRE(image[i] == 70 + 10 * (i % 3));
  const ImageSet gray = read_images(path, {.size = 8, .channels = 1, .convert_channels = true});
  CHECK((gray.train.channels == 1 && gray.train.height == 8));
  for (const uint8_t pixel : gray.train.image(2)) CHECK(pixel == (77 * 70 + 150 * 80 + 29 * 90) / 256);
  const ImageSet colored = read_images(scraps + "/fashion", {.channels = 3, .convert_channels = true}),
                 plain = read_images(scraps + "/fashion", {});
  REQUIRE(colored.train.pixels.size() == 3 * plain.train.pixels.size());
  for (size_t i = 0; i < 3000; ++i) REQUIRE(colored.train.pixels[i] == plain.train.pixels[i / 3]);
  write_file_atomically(folder / "data_batch_3.bin", cifar_record(2, 0, 0, 0));
  failure(path).names(path).names("label").value(2).value(2).offers("0 to 1");
  write_file_atomically(folder / "data_batch_3.bin", "short");
  failure(path).names("data_batch_3.bin").value(5).offers(3073);
}

TEST_CASE("images: an error in a folder has the file and a way out") {
  const Folder folder;
  const std::string idx = folder / "idx";
  fs::create_directories(idx);
  failure(folder / "nowhere").names("images").value(folder / "nowhere");
  failure(idx).names(idx).offers("data_batch_N.bin").offers("train-images-idx3-ubyte").offers("PNG");
  write_idx(idx, "train", std::string("\0\1\0\1", 4));
  write_idx(idx, "t10k", std::string("\0\1", 2));
  CHECK(read_images(idx, {}).train.count() == 4);
  write_idx(idx, "t10k", std::string("\0\2", 2));
  failure(idx).names("label").value(2).offers("0, 1");
  fs::remove(idx + "/t10k-images-idx3-ubyte");
  failure(idx).names(idx).names("validation_fraction").value(0.1).offers("raise");
  CHECK(read_images(idx, {.validation_fraction = 0.5}).validation.count() == 2);
  const std::string images = idx + "/train-images-idx3-ubyte", whole = read_file(images);
  write_file_atomically(images, big_endian({0x802}) + whole.substr(4));
  failure(idx).names(images).value(2050).offers(2051);
  write_file_atomically(images, whole.substr(0, whole.size() - 1));
  failure(idx).names(images).value(15).offers(16);
  write_file_atomically(images, whole.substr(0, 9));
  failure(idx).names(images).names("header");
  write_file_atomically(images, big_endian({0x803, 0xffffffff, 0xffffffff, 0xffffffff}));
  failure(idx).names(images).value("4294967295 x 4294967295").names("memory");
  write_file_atomically(images, "\x1f\x8b\x08 not gzip");
  failure(idx).names(images).names("gzip");
  write_file_atomically(images, whole);
  write_file_atomically(idx + "/train-labels-idx1-ubyte", big_endian({0x801, 3}) + std::string("\0\1\1", 3));
  failure(idx).names(images).value(4).names("train-labels-idx1-ubyte").value(3);
  write_idx(idx, "train", std::string("\0\2\0\2", 4));
  CHECK(read_images(idx, {.validation_fraction = 0.5}).classes == std::vector<std::string>{"0", "2"});
  fs::remove(idx + "/train-labels-idx1-ubyte");
  failure(idx).names("train-images-idx3-ubyte").names("train-labels-idx1-ubyte");
}

TEST_CASE("images: IDX files precede folders next to them; if two files are possible, a note names the one read") {
  const Folder folder;
  const std::string path = folder.path.string();
  write_idx(path, "train", std::string("\0\1\0\1", 4));
  fs::create_directories(folder / "__MACOSX");
  const ImageOptions half{.validation_fraction = 0.5};
  ImageSet set = read_images(path, half);
  CHECK(set.classes == std::vector<std::string>{"0", "1"});
  CHECK(set.notes.empty());
  const std::string images = folder / "train-images-idx3-ubyte";
  write_file_atomically(images + ".gz", "not read");
  set = read_images(path, half);
  CHECK(set.train.count() == 2);
  REQUIRE(set.notes.size() == 1);
  Message(set.notes[0]).names(images).names(images + ".gz");
}

TEST_CASE("images: each of CIFAR's numbered files is read once, and a copy is reported") {
  const Folder folder;
  const std::string path = folder.path.string();
  for (const char* name : {"data_batch_1.bin", "data_batch_10k.bin", "data_batch_1 copy.bin", "data_batch_1.bin.gz",
                           "data_batch_1(1).bin", "test_batch.bin"})
    write_file_atomically(folder / name, cifar_record(contains(name, "10k") ? 1 : 0, 10, 20, 30));
  write_file_atomically(folder / "batches.meta.txt", "plane\ncar\n");
  const ImageSet set = read_images(path, {.splits = ImageOptions::Splits::training});
  CHECK(set.train.labels == std::vector<int32_t>{0, 1});
  CHECK(set.notes.size() == 3);
  for (const char* name : {"/data_batch_1 copy.bin", "/data_batch_1(1).bin", "/data_batch_1.bin.gz"})
    CHECK(std::count_if(set.notes.begin(), set.notes.end(),
                        [&](const std::string& note) { return contains(note, name); }) == 1);
}

TEST_CASE("images: classes of the validation split match the training classes by name or by number") {
  const Folder folder;
  const std::string set = folder / "set", rings = scraps + "/shapes/train/rings";
  const auto add = [&](const std::string& name) {
    fs::create_directories(set + "/" + name);
    fs::copy(rings, set + "/" + name);
  };
  for (const char* name : {"train/1", "train/2", "val/002"}) add(name);
  const ImageSet numbered = read_images(set, {});
  CHECK(numbered.classes == std::vector<std::string>{"1", "2"});
  CHECK(numbered.validation.labels == std::vector<int32_t>(4, 1));
  REQUIRE(numbered.notes.size() == 1);
  Message(numbered.notes[0]).names(set + "/val").value("002").names(set + "/train").value("1, 2").names("number");
  add("val/3");
  failure(set).names(set + "/val/").value("002").offers("1, 2");
}

TEST_CASE("images: a folder next to train that is not a split is counted") {
  const Folder folder;
  const std::string shapes = copy_of("shapes", folder);
  CHECK(read_images(shapes, {}).notes.empty());
  fs::rename(shapes + "/val", shapes + "/valid");
  const ImageSet set = read_images(shapes, {.validation_fraction = 0.25});
  CHECK(set.validation.count() == 2);
  REQUIRE(set.notes.size() == 1);
  Message(set.notes[0])
      .value("4 files")
      .names(shapes)
      .value(4)
      .offers("train, val, validation and test")
      .names(shapes + "/valid/")
      .names("left out");
  for (const auto& each : fs::recursive_directory_iterator(shapes + "/valid"))
    if (each.is_regular_file() && each.path().filename() != "0.png") fs::remove(each.path());
  fs::remove_all(shapes + "/valid/stripes");
  const std::string of_one = read_images(shapes, {.validation_fraction = 0.25}).notes.at(0);
  Message(of_one).value("1 file").names(shapes).names("left out");
}

TEST_CASE("images: one of two possible validation splits is read, and the images of the other are counted") {
  const Folder folder;
  const std::string shapes = copy_of("shapes", folder);
  fs::copy(shapes + "/val", shapes + "/test", fs::copy_options::recursive);
  const ImageSet set = read_images(shapes, {});
  CHECK(set.validation.count() == 4);
  REQUIRE(set.notes.size() == 1);
  Message(set.notes[0]).value("4 files").names(shapes).names(shapes + "/test/");
}

TEST_CASE("images: the error for a broken image names it; on request it is skipped") {
  const Folder folder;
  const std::string shapes = copy_of("shapes", folder), broken = shapes + "/train/rings/0.png",
                    whole = read_file(broken);
  for (const std::string& bytes : {std::string(), std::string("no picture"), whole.substr(0, 90)}) {
    write_file_atomically(broken, bytes);
    failure(shapes).names("images").names(broken).names("decoded").offers("PNG").offers("--skip_broken=yes");
    const ImageSet rest = read_images(shapes, {.skip_broken = true});
    CHECK(rest.train.count() == 7);
    CHECK(rest.skipped.size() == 1);
  }
  write_file_atomically(broken, whole.substr(0, whole.size() - 12));  // cuts the last chunk, IEND
  const std::string without_end = failure(shapes).names(broken).offers("save it again").message();
  CHECK_MESSAGE(!contains(without_end, ": ;"), without_end);
  std::string huge = whole;
  huge.replace(16, 8, big_endian({15000, 15000}));
  write_file_atomically(broken, testing::with_chunk_sums(huge));
  failure(shapes).names(broken).value("15000 x 15000");
  fs::resize_file(broken, uint64_t{1} << 40);  // no memory is allocated for it
  failure(shapes).names("images").names(broken).value(max_image_bytes).offers("--skip_broken");
  CHECK(read_images(shapes, {.skip_broken = true}).skipped.size() == 1);
  write_file_atomically(broken, whole);
  fs::create_directory(shapes + "/val/dots");
  failure(shapes).names(shapes + "/val/dots").value("dots").offers("rings, stripes");
  fs::create_directory(shapes + "/train/dots");
  failure(shapes).names(shapes + "/train/dots").offers(".png, .jpg, .jpeg");
  fs::copy(scraps + "/shapes/val/rings/0.png", shapes + "/train/dots/0.png");
  fs::remove(shapes + "/val/dots");
  CHECK(read_images(shapes, {}).classes.size() == 3);
  const std::string large = shapes + "/train/dots/1.png";
  write_file_atomically(large, read_file(scraps + "/large.png"));
  failure(shapes).names(large).value("9 x 20").value("12 x 12").offers("--image_size");
  CHECK(read_images(shapes, {.size = 12}).train.count() == 10);
}

TEST_CASE("images: a JPEG whose Huffman table has more symbols than bytes is an error before it is decoded") {
  const auto refused = [](const std::string& bytes) { return expect_error([&] { decode_image(bytes, 3, "a.jpg"); }); };
  const std::string table = std::string("\xff\xc4\x00\x13\x00", 5) + std::string(16, '\x11');
  for (const std::string& bytes : {"\xff\xd8" + table, "\xff\xff\xd8\xff\xff" + table.substr(1),
                                   std::string("\xff\xd8\xff\xda\x00\x02", 6) + "..." + table})
    refused(bytes).names("a.jpg").names("decoded").names("Huffman").value(272).offers(256).offers("again");
  const std::string comment("\xff\xfe\x00\x17", 4);  // a comment segment holds no table
  CHECK(!contains(refused("\xff\xd8" + comment + table).message(), "Huffman"));
}

TEST_CASE("images: a set for validation only is read as the validation split, in every layout") {
  using Splits = ImageOptions::Splits;
  const Folder folder;
  const std::string shapes = copy_of("shapes", folder);
  const auto counts = [](const std::string& path, Splits splits) {
    const ImageSet set = read_images(path, {.splits = splits});
    return std::pair(set.train.count(), set.validation.count());
  };
  using Counts = std::pair<int64_t, int64_t>;
  CHECK(counts(shapes, Splits::both) == Counts{8, 4});
  CHECK(counts(shapes, Splits::training) == Counts{8, 0});
  CHECK(counts(shapes, Splits::held_out) == Counts{0, 4});
  CHECK(counts(shapes + "/val", Splits::held_out) == Counts{0, 4});
  fs::remove_all(shapes + "/train");
  CHECK(counts(shapes, Splits::held_out) == Counts{0, 4});
  CHECK(counts(shapes, Splits::evaluating) == Counts{0, 4});
  CHECK(read_images(shapes, {.splits = Splits::held_out}).classes == std::vector<std::string>{"rings", "stripes"});
  failure(shapes).names(shapes).names("training");
  const std::string idx = folder / "idx", cifar = folder / "cifar";
  make_folders(idx), make_folders(cifar);
  write_idx(idx, "t10k", std::string("\0\1\0", 3));
  write_file_atomically(cifar + "/test_batch.bin", cifar_record(1, 2, 3, 4) + cifar_record(0, 2, 3, 4));
  for (const auto& [path, count] : {std::pair{idx, 3}, std::pair{cifar, 2}}) {
    CHECK(counts(path, Splits::held_out) == Counts{0, count});
    CHECK(counts(path, Splits::evaluating) == Counts{0, count});
    failure(path).names(path).names("training");
  }
}
