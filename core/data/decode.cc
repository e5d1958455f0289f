#include "core/data/decode.h"

// clang-format off: jpeglib.h uses FILE and size_t and includes neither.
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
// clang-format on

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace mslua::data {
namespace {

constexpr int64_t kMaxPixels = 100'000'000;  // more is taken for a decompression bomb

struct Size {
  int64_t height = 0, width = 0;
  int64_t channels = 3;  // in the file: 1 for grey
};

bool TooLarge(const Size& size) {
  return size.height > kMaxPixels || size.width > kMaxPixels || size.height * size.width > kMaxPixels;
}

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

// A row of cyan, magenta, yellow and black, as Adobe's programs store them (255: no ink), to red, green and blue, as
// PIL: the light that a colour and black let through.
void PixelsOfInks(uint8_t* row, int64_t width) {
  for (int64_t x = 0; x < width; ++x) {
    const int black = row[4 * x + 3];
    for (int64_t c = 0; c < 3; ++c) {
      const int ink = 255 - row[4 * x + c];
      const int product = ink * black + 128, share = (product + (product >> 8)) >> 8;  // of 255, rounded
      row[3 * x + c] = static_cast<uint8_t>(black - share);
    }
  }
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
  if (TooLarge(*size)) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  const bool inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  // A row of inks has four bytes a pixel and becomes three in place: the last one needs more memory.
  pixels->resize(static_cast<size_t>(size->height * size->width * 3 + (inks ? size->width : 0)));
  jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels->data() + size_t{jpeg.output_scanline} * size->width * 3;
    jpeg_read_scanlines(&jpeg, &row, 1);
    if (inks) PixelsOfInks(row, size->width);
  }
  pixels->resize(static_cast<size_t>(size->height * size->width * 3));
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return true;
}

// libpng reports errors by a call that must not return.
struct PngErrors {
  jmp_buf out;
  char message[JMSG_LENGTH_MAX];
};
void OnPngError(png_structp png, png_const_charp message) {
  auto* errors = static_cast<PngErrors*>(png_get_error_ptr(png));
  snprintf(errors->message, sizeof(errors->message), "%s", message);
  longjmp(errors->out, 1);
}
void OnPngWarning(png_structp, png_const_charp) {}  // warnings are about metadata

// The bytes of a file that are not read yet.
struct PngBytes {
  const uint8_t* at;
  size_t left;
};
void ReadPngBytes(png_structp png, png_bytep out, png_size_t count) {
  auto* bytes = static_cast<PngBytes*>(png_get_io_ptr(png));
  if (count > bytes->left) png_error(png, "read beyond end of data");
  std::memcpy(out, bytes->at, count);
  bytes->at += count;
  bytes->left -= count;
}

// As PIL, torchvision and OpenCV: values as they are in the file, whatever its gamma or colour profile says; of 16 bits
// the high 8; alpha is dropped, not blended. Like DecodeJpeg, this function has nothing with a destructor in its frame.
bool DecodePng(const std::vector<uint8_t>& bytes, std::vector<uint8_t>* pixels, Size* size, char* message) {
  PngErrors errors;
  PngBytes input{bytes.data(), bytes.size()};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &errors, OnPngError, OnPngWarning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  if (info == nullptr) {
    snprintf(message, JMSG_LENGTH_MAX, "out of memory");
    png_destroy_read_struct(&png, nullptr, nullptr);
    return false;
  }
  if (setjmp(errors.out) != 0) {
    snprintf(message, JMSG_LENGTH_MAX, "%s", errors.message);
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_set_read_fn(png, &input, ReadPngBytes);
  png_read_info(png, info);
  size->height = png_get_image_height(png, info);
  size->width = png_get_image_width(png, info);
  size->channels = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
  if (TooLarge(*size)) {
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_set_strip_16(png);
  png_set_expand(png);  // palettes, grey of fewer than 8 bits
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  pixels->resize(static_cast<size_t>(size->height * size->width * 3));
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t y = 0; y < size->height; ++y) png_read_row(png, pixels->data() + y * size->width * 3, nullptr);
  }
  png_destroy_read_struct(&png, &info, nullptr);
  return true;
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

// What is wrong with a file of that kind. `problem` counts where the image is not too large.
Status Refused(const char* kind, const Size& size, absl::string_view problem) {
  if (TooLarge(size)) {
    return absl::DataLossError(
        absl::StrCat("has ", size.height, "x", size.width, " pixels, expected ", kMaxPixels, " at most"));
  }
  return absl::DataLossError(absl::StrCat("is a corrupt ", kind, " (", problem, ")"));
}

Status DecodePnm(const std::vector<uint8_t>& bytes, std::vector<uint8_t>* pixels, Size* size) {
  size->channels = bytes[1] == '6' ? 3 : 1;
  size_t at = 2;
  size->width = HeaderNumber(bytes, &at);
  size->height = HeaderNumber(bytes, &at);
  const int64_t most = HeaderNumber(bytes, &at);
  if (size->width < 1 || size->height < 1 || most < 1) return Refused("PNM", *size, "its header is cut off");
  if (TooLarge(*size)) return Refused("PNM", *size, "");
  if (most > 255) {
    return absl::DataLossError(
        absl::StrCat("is a PNM whose values go up to ", most, ", expected up to 255; fix: convert it to 8 bits"));
  }
  ++at;  // one blank
  const size_t count = static_cast<size_t>(size->height * size->width), channels = static_cast<size_t>(size->channels);
  if (at > bytes.size() || bytes.size() - at < count * channels) {
    return Refused(
        "PNM", *size,
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
  char message[JMSG_LENGTH_MAX] = "";
  if (bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0) {
    if (!DecodePng(bytes, pixels, &size, message)) return Refused("PNG", size, message);
  } else if (bytes.size() >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8) {
    if (!DecodeJpeg(bytes, pixels, &size, message)) return Refused("JPEG", size, message);
  } else if (bytes.size() >= 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6')) {
    RETURN_IF_ERROR(DecodePnm(bytes, pixels, &size));
  } else {
    return absl::DataLossError("is neither a JPEG nor a PNG nor a PPM file");
  }
  if (channels != nullptr) *channels = size.channels;
  *height = size.height;
  *width = size.width;
  return absl::OkStatus();
}

}  // namespace mslua::data
