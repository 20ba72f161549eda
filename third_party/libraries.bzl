"""The system libraries Tally uses, one repository each. Keep debian-packages.txt in step."""

load("//third_party:debian.bzl", "debian_library", "debian_sources")

# Abseil is some sixty small libraries in Debian; these are the ones behind the headers we include
# (status, strings, containers, hash, time, synchronization) and what those refer to.
_ABSL_LIBRARIES = [
    "absl_statusor",
    "absl_status",
    "absl_cord",
    "absl_cordz_info",
    "absl_cordz_handle",
    "absl_cordz_functions",
    "absl_cord_internal",
    "absl_raw_hash_set",
    "absl_hashtablez_sampler",
    "absl_exponential_biased",
    "absl_hash",
    "absl_city",
    "absl_low_level_hash",
    "absl_bad_optional_access",
    "absl_bad_variant_access",
    "absl_bad_any_cast_impl",
    "absl_str_format_internal",
    "absl_synchronization",
    "absl_graphcycles_internal",
    "absl_stacktrace",
    "absl_symbolize",
    "absl_debugging_internal",
    "absl_demangle_internal",
    "absl_malloc_internal",
    "absl_time",
    "absl_civil_time",
    "absl_time_zone",
    "absl_strings",
    "absl_strings_internal",
    "absl_strerror",
    "absl_throw_delegate",
    "absl_int128",
    "absl_base",
    "absl_spinlock_wait",
    "absl_raw_logging_internal",
    "absl_log_severity",
]

def tally_libraries():
    """Declares the repositories; none is looked for until a target that uses it is built."""

    # Debian builds Abseil with absl::string_view as a type of its own, not std::string_view
    # (absl/base/options.h): converting between the two takes an explicit constructor call.
    debian_library(
        name = "absl",
        package = "libabsl-dev",
        headers = ["absl"],
        targets = {"absl": _ABSL_LIBRARIES},
    )

    debian_library(
        name = "benchmark",
        package = "libbenchmark-dev",
        headers = ["benchmark"],
        targets = {
            "benchmark": ["benchmark"],
            "benchmark_main": ["benchmark_main"],
        },
        linkopts = ["-pthread"],
    )

    debian_library(
        name = "cli11",
        package = "libcli11-dev",
        headers = ["CLI"],
        targets = {"cli11": []},
    )

    debian_library(
        name = "fmt",
        package = "libfmt-dev",
        headers = ["fmt"],
        targets = {"fmt": ["fmt"]},
    )

    debian_sources(
        name = "googletest",
        package = "googletest",
        path = "/usr/src/googletest",
        folders = ["googlemock", "googletest"],
        build_file = "//third_party:googletest.BUILD",
    )

    debian_library(
        name = "hiredis",
        package = "libhiredis-dev",
        headers = ["hiredis"],
        targets = {"hiredis": ["hiredis"]},
    )

    debian_library(
        name = "msgpack",
        package = "libmsgpack-dev",
        headers = [
            "msgpack",
            "msgpack.h",
        ],
        targets = {"msgpack": ["msgpackc"]},
    )

    debian_library(
        name = "nlohmann_json",
        package = "nlohmann-json3-dev",
        headers = ["nlohmann"],
        targets = {"json": []},
    )

    debian_library(
        name = "openssl",
        package = "libssl-dev",
        headers = ["openssl"],
        targets = {"crypto": ["crypto"]},
    )

    # :rapidcheck_gtest adds nothing to link: rapidcheck/gtest.h only needs GoogleTest beside it.
    debian_library(
        name = "rapidcheck",
        package = "librapidcheck-dev",
        headers = [
            "rapidcheck",
            "rapidcheck.h",
        ],
        targets = {
            "rapidcheck": ["rapidcheck"],
            "rapidcheck_gtest": [],
        },
    )

    debian_library(
        name = "simdjson",
        package = "libsimdjson-dev",
        headers = ["simdjson.h"],
        targets = {"simdjson": ["simdjson"]},
    )

    debian_library(
        name = "xxhash",
        package = "libxxhash-dev",
        headers = [
            "xxh3.h",
            "xxhash.h",
        ],
        targets = {"xxhash": ["xxhash"]},
    )

    debian_library(
        name = "zlib",
        package = "zlib1g-dev",
        headers = [
            "zconf.h",
            "zlib.h",
        ],
        targets = {"zlib": ["z"]},
    )

    debian_library(
        name = "zeromq",
        package = "libzmq3-dev",
        headers = [
            "zmq.h",
            "zmq_utils.h",
        ],
        targets = {"zeromq": ["zmq"]},
    )
