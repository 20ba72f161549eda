"""Golden tests: recorded traces that the engine must answer in the same way."""

def golden_test(family, traces, release = "vllm-0.20.0", behavior = "vllm_0_20", shards = 2):
    """Declares the test golden_<family>, or golden_defects_<family> for a recording of defects.

    Each trace of the family is a GoogleTest case named after it ("Golden/preempt.7").

    Args:
      family: the recording, golden/<release>/<family>.jsonl.gz.
      traces: how many traces the recording holds; the test fails when it is another number.
      release: what recorded it.
      behavior: the engine's behaviour that matches the release.
      shards: the test's parts, run side by side.
    """
    recording = "//golden:%s/%s.jsonl.gz" % (release, family)
    native.cc_test(
        name = "golden_" + family.replace("/", "_").replace(".defects", ""),
        size = "small",
        args = [
            "$(location %s)" % recording,
            str(traces),
            behavior,
        ],
        data = [recording],
        shard_count = shards,
        tags = ["golden"],
        deps = ["//conformance:golden_test_main"],
    )
