// Counts of files that are not read as images, or not as intended, with one sentence for each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/data/file_count.h"

namespace orrery::models {

class ImageFileTally {
 public:
  void leave_out(const std::string& path);                                  // a file without the extension of an image
  void leave_out(const std::string& path, const std::string& where);        // a file outside the folders that are read
  void check_orientation(const std::string& path, std::string_view bytes);  // of an image that is read
  std::vector<std::string> notes(const std::string& from) const;            // about files of `from`

 private:
  FileCount left_out_, rotated_;
};

// Returns the Exif orientation of a JPEG or PNG file, 1 to 8: how a viewer turns the stored image.
// Returns 1, as stored, without an orientation or if it is damaged. Exif 2.3, CIPA DC-008; its
// directory is TIFF's.
int exif_orientation(std::string_view bytes);

}  // namespace orrery::models
