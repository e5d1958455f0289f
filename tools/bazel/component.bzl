"""A component: one library, a test for every x_test.cc beside it, a fuzz target for every x_fuzz.cc."""

def _apart(endings):
    """What is no part of the library."""
    return [folder + "*" + ending + ".cc" for folder in ["", "*/"] for ending in endings]

def component(name, deps = [], visibility = None, exclude = [], folders = False, test_deps = [], test_data = [], test_size = "small", test_tags = {}, test_env = {}, extra_srcs = [], copts = [], alwayslink = False, device_srcs = [], no_device_srcs = []):
    """Declares `name` from the folder's .cc and .h files, its tests, and its fuzz targets (tools/fuzz).

    Args:
      name: the library; by custom the folder's name.
      deps: what the library includes.
      visibility: which components may include it (docs/explanation/architecture.md).
      exclude: files that belong to another target of the folder.
      folders: whether the files of the folders below, which have no BUILD file, belong to it too. There x_main.cc is a
        program for the folder's tests, and x_process_test.cc, which starts processes, runs outside the sandbox.
      test_deps: what the tests need besides the library and GoogleTest.
      test_data: files that the tests read.
      test_size: Bazel's size of every test here.
      test_tags: tags for single tests, by name.
      test_env: variables of the environment for single tests, by name.
      extra_srcs: generated sources.
      copts: options for the library's sources.
      alwayslink: keep objects that nothing refers to by name.
      device_srcs: sources that --config=cpu leaves out.
      no_device_srcs: sources that it has in their place.
    """
    sources, headers = ["*.cc"], ["*.h"]
    if folders:
        sources, headers = sources + ["*/*.cc"], headers + ["*/*.h"]
    native.cc_library(
        name = name,
        srcs = native.glob(
            sources,
            exclude = _apart(["_test", "_fuzz", "_bench", "_main"]) + exclude + device_srcs + no_device_srcs,
        ) + extra_srcs + select({
            "//tools/bazel:cpu_only": no_device_srcs,
            "//conditions:default": device_srcs,
        }),
        hdrs = native.glob(headers, exclude = exclude),
        copts = copts,
        alwayslink = alwayslink,
        visibility = visibility,
        deps = deps,
    )
    programs = {}  # of tests, by folder
    for main in native.glob(["*/*_main.cc"] if folders else []):
        program = main[:-len("_main.cc")]
        programs[main.split("/")[0]] = programs.get(main.split("/")[0], []) + [":" + program]
        native.cc_binary(
            name = program,
            testonly = True,
            srcs = [main],
            deps = [":" + name, "@system//:gtest"] + test_deps,
        )
    for test in native.glob([s.replace("*.cc", "*_test.cc") for s in sources], exclude = exclude):
        test_name = test[:-len(".cc")]
        tags = test_tags.get(test_name, [])
        if folders and test.endswith("_process_test.cc"):
            tags = tags + ["local"]
        native.cc_test(
            name = test_name,
            srcs = [test],
            data = test_data + programs.get(test.split("/")[0], []),
            size = test_size,
            tags = tags,
            env = test_env.get(test_name, {}),
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
