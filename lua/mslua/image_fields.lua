--- How numbers become the pixels of pictures, and pictures a grid: arguments of ms.image.write and ms.SampleImages.
return {
  { "low", "number", 0 },
  { "high", "number" },
  { "columns", "integer", 8, min = 1 },
  { "padding", "integer", 2, min = 0 },
}
