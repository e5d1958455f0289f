"""A component: one library, a test for every x_test.cc beside it, a fuzz target for every x_fuzz.cc."""

def component(name, deps = [], visibility = None, exclude = [], test_deps = [], test_data = [], test_size = "small", test_tags = {}, extra_srcs = [], copts = [], alwayslink = False, device_srcs = [], no_device_srcs = []):
    """Declares `name` from the folder's .cc and .h files, its tests, and its fuzz targets (tools/fuzz).

    Args:
      name: the library; by custom the folder's name.
      deps: what the library includes.
      visibility: which components may include it (docs/explanation/architecture.md).
      exclude: files that belong to another target of the folder.
      test_deps: what the tests need besides the library and GoogleTest.
      test_data: files that the tests read.
      test_size: Bazel's size of every test here.
      test_tags: tags for single tests, by name.
      extra_srcs: generated sources.
      copts: options for the library's sources.
      alwayslink: keep objects that nothing refers to by name.
      device_srcs: sources that --config=cpu leaves out.
      no_device_srcs: sources that it has in their place.
    """
    native.cc_library(
        name = name,
        srcs = native.glob(
            ["*.cc"],
            exclude = ["*_test.cc", "*_fuzz.cc", "*_bench.cc", "*_main.cc"] + exclude + device_srcs + no_device_srcs,
        ) + extra_srcs + select({
            "//tools/bazel:cpu_only": no_device_srcs,
            "//conditions:default": device_srcs,
        }),
        hdrs = native.glob(["*.h"], exclude = exclude),
        copts = copts,
        alwayslink = alwayslink,
        visibility = visibility,
        deps = deps,
    )
    for test in native.glob(["*_test.cc"], exclude = exclude):
        native.cc_test(
            name = test[:-len(".cc")],
            srcs = [test],
            data = test_data,
            size = test_size,
            tags = test_tags.get(test[:-len(".cc")], []),
            deps = [":" + name, "@system//:gtest_main"] + test_deps,
        )
    for fuzz in native.glob(["*_fuzz.cc"], exclude = exclude):
        target = fuzz[:-len(".cc")]
        corpus = native.glob(["fuzz_corpus/" + target[:-len("_fuzz")] + "/*"])
        native.cc_test(
            name = target,
            srcs = [fuzz],
            args = ["$(location %s)" % file for file in corpus],
            data = corpus,
            size = "small",
            deps = [":" + name] + test_deps + select({
                "//tools/fuzz:libfuzzer": [],
                "//conditions:default": ["//tools/fuzz:replay_main"],
            }),
        )
