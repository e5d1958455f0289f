#include "core/data/decode.h"

// clang-format off: jpeglib.h uses FILE and size_t and includes neither.
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
// clang-format on

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mslua::data {
namespace {

constexpr int64_t kMaxPixels = 100'000'000;  // more is taken for a decompression bomb

struct Size {
  int64_t height = 0, width = 0;
  int64_t channels = 3;  // in the file: 1 for grey
};

// libjpeg reports errors by a call that must not return.
struct JpegErrors {
  jpeg_error_mgr base;  // first: libjpeg knows this struct by it
  jmp_buf out;
  char message[JMSG_LENGTH_MAX];
};
void OnJpegError(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  errors->base.format_message(jpeg, errors->message);
  longjmp(errors->out, 1);
}
// Level -1: damaged data that libjpeg would replace by grey. Stray bytes between segments are harmless.
void OnJpegMessage(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA) OnJpegError(jpeg);
}

// `message` of JMSG_LENGTH_MAX bytes on failure. Nothing with a destructor lives in this function's frame,
// since longjmp skips destructors; *pixels is the caller's.
bool DecodeJpeg(const std::vector<uint8_t>& bytes, std::vector<uint8_t>* pixels, Size* size, char* message) {
  jpeg_decompress_struct jpeg;
  JpegErrors errors;
  jpeg.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = OnJpegError;
  errors.base.emit_message = OnJpegMessage;
  jpeg_create_decompress(&jpeg);
  if (setjmp(errors.out) != 0) {
    snprintf(message, JMSG_LENGTH_MAX, "%s", errors.message);
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  size->height = jpeg.image_height;
  size->width = jpeg.image_width;
  size->channels = jpeg.num_components == 1 ? 1 : 3;
  if (size->height * size->width > kMaxPixels) {
    snprintf(message, JMSG_LENGTH_MAX, "%ux%u pixels", jpeg.image_height, jpeg.image_width);
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg.out_color_space = JCS_RGB;
  pixels->resize(static_cast<size_t>(size->height * size->width * 3));
  jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels->data() + size_t{jpeg.output_scanline} * size->width * 3;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return true;
}

Status DecodePng(const std::vector<uint8_t>& bytes, std::vector<uint8_t>* pixels, Size* size) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size())) {
    return absl::DataLossError(image.message);
  }
  size->height = image.height;
  size->width = image.width;
  size->channels = (image.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1;
  if (size->height * size->width > kMaxPixels) {
    png_image_free(&image);
    return absl::DataLossError(absl::StrCat(image.height, "x", image.width, " pixels"));
  }
  image.format = PNG_FORMAT_RGBA;  // the alpha is dropped here, not blended by libpng
  const int64_t count = size->height * size->width;
  pixels->resize(static_cast<size_t>(count * 4));
  const bool ok = png_image_finish_read(&image, nullptr, pixels->data(), 0, nullptr);
  // Bit 1 marks an error. Warnings are about metadata.
  if (!ok || (image.warning_or_error & 2) != 0) {
    png_image_free(&image);
    return absl::DataLossError(image.message);
  }
  uint8_t* p = pixels->data();
  for (int64_t i = 0; i < count; ++i) {
    for (int c = 0; c < 3; ++c) p[3 * i + c] = p[4 * i + c];
  }
  return absl::OkStatus();
}

// The next number of a PNM header, behind blanks and comments; -1 where there is none.
int64_t HeaderNumber(const std::vector<uint8_t>& bytes, size_t* at) {
  constexpr int64_t kMost = 1'000'000'000;
  const auto blank = [](uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (*at < bytes.size() && (blank(bytes[*at]) || bytes[*at] == '#')) {
    const bool comment = bytes[(*at)++] == '#';
    while (comment && *at < bytes.size() && bytes[*at] != '\n') ++*at;
  }
  int64_t number = -1;
  for (; *at < bytes.size() && bytes[*at] >= '0' && bytes[*at] <= '9' && number < kMost; ++*at)
    number = std::max<int64_t>(number, 0) * 10 + (bytes[*at] - '0');
  return number;
}

Status DecodePnm(const std::vector<uint8_t>& bytes, std::vector<uint8_t>* pixels, Size* size) {
  size->channels = bytes[1] == '6' ? 3 : 1;
  size_t at = 2;
  size->width = HeaderNumber(bytes, &at);
  size->height = HeaderNumber(bytes, &at);
  const int64_t most = HeaderNumber(bytes, &at);
  if (size->width < 1 || size->height < 1 || most < 1) return absl::DataLossError("its header is cut off");
  if (most > 255) return absl::DataLossError(absl::StrCat("its values go up to ", most, ", expected up to 255"));
  if (size->width > kMaxPixels || size->height > kMaxPixels || size->height * size->width > kMaxPixels)
    return absl::DataLossError(absl::StrCat(size->height, "x", size->width, " pixels"));
  ++at;  // one blank
  const size_t count = static_cast<size_t>(size->height * size->width), channels = static_cast<size_t>(size->channels);
  if (at > bytes.size() || bytes.size() - at < count * channels) {
    return absl::DataLossError(
        absl::StrCat("it is cut off: ", size->height, "x", size->width, " pixels take ", count * channels, " bytes"));
  }
  pixels->resize(count * 3);
  if (most == 255 && channels == 3) {  // as they are
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count * 3, pixels->begin());
    return absl::OkStatus();
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t c = 0; c < 3; ++c) {
      const int64_t value = std::min<int64_t>(bytes[at + i * channels + (channels == 3 ? c : 0)], most);
      (*pixels)[3 * i + c] = static_cast<uint8_t>((value * 255 + most / 2) / most);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status DecodeImage(const std::vector<uint8_t>& bytes, std::vector<uint8_t>* pixels, int64_t* height, int64_t* width,
                   int64_t* channels) {
  Size size;
  if (bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0) {
    const Status status = DecodePng(bytes, pixels, &size);
    if (!status.ok()) return absl::DataLossError(absl::StrCat("is a corrupt PNG (", status.message(), ")"));
  } else if (bytes.size() >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8) {
    char message[JMSG_LENGTH_MAX];
    if (!DecodeJpeg(bytes, pixels, &size, message)) {
      return absl::DataLossError(absl::StrCat("is a corrupt JPEG (", message, ")"));
    }
  } else if (bytes.size() >= 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6')) {
    const Status status = DecodePnm(bytes, pixels, &size);
    if (!status.ok()) return absl::DataLossError(absl::StrCat("is a corrupt PNM (", status.message(), ")"));
  } else {
    return absl::DataLossError("is neither a JPEG nor a PNG nor a PPM file");
  }
  if (channels != nullptr) *channels = size.channels;
  *height = size.height;
  *width = size.width;
  return absl::OkStatus();
}

}  // namespace mslua::data
