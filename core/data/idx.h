// Folders of IDX files as MNIST has them (Y. LeCun, C. Cortes, C. Burges): train-images-idx3-ubyte,
// train-labels-idx1-ubyte, t10k-..., each plain or with ".gz". A file is the big-endian magic 0x0000TTDD (T the element
// type, 8 = u8; D the number of dimensions), a big-endian u32 for each dimension, then the elements.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/data/sources/define.h"

namespace mslua::data {

// What tells datasets in this format apart.
struct IdxFolder {
  const char* dataset;                  // the user's name
  const char* download;                 // "'THE MNIST DATABASE' from http://..."
  const char* make;                     // the name for `mslua data make`; null: there is no stand-in
  std::vector<std::string> subfolders;  // "" and those that downloads unpack to, each with a slash in front
};

// Reads the fields dataset_dir and usage. Columns: image u8[height,width,1], label i32[] in 0..9.
StatusOr<std::unique_ptr<Reader>> OpenIdx(const IdxFolder& names, const Fields& fields);

}  // namespace mslua::data
