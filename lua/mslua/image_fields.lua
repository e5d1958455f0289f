--- How numbers become the pixels of pictures, and pictures a grid: arguments of ms.image.write and ms.SampleImages.
return {
  { "low", "number", 0, doc = "the number that becomes 0, black" },
  { "high", "number", doc = "the number that becomes 255; default: 1, of uint8 255" },
  { "columns", "integer", 8, min = 1, doc = "pictures in a row of the grid" },
  { "padding", "integer", 2, min = 0, doc = "pixels around each picture of a grid" },
}
