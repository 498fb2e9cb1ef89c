// What is not read among pictures, or not as it was meant: counted, and reported in one sentence each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

class PictureTally {
 public:
  void leave_out(const std::string& path);                            // a file whose ending is not a picture's
  void leave_out(const std::string& path, const std::string& where);  // a file that is not where pictures are read
  void check_turn(const std::string& path, std::string_view bytes);   // of a picture that is read
  std::vector<std::string> notes(const std::string& from) const;      // about files of `from`

 private:
  struct Count {
    std::map<std::string, int64_t> of_kind = {};
    std::string first = {};  // path
    void add(const std::string& kind, const std::string& path);
    std::string print(const std::string& from, const char* of_one, const char* of_several) const;
  };
  Count left_out_, turned_;
};

// Returns the Exif orientation of a JPEG or PNG file, 1 to 8: how a viewer turns the stored picture.
// A file without one, or with a damaged one, has 1: as it is stored. Exif 2.3, CIPA DC-008; its
// directory is TIFF's.
int exif_orientation(std::string_view bytes);

}  // namespace orrery::models
