"""The families of traces: what each one's configurations and workloads are like."""

import random
from collections.abc import Callable

from trace_file import Json
from workload import EncoderInputs, Grammar, Scenario, Workload

Family = Callable[[random.Random], Scenario]

FAMILIES: dict[str, Family] = {}


def _family(make: Family) -> Family:
    FAMILIES[make.__name__] = make
    return make


def _roomy(rng: random.Random, num_groups: int = 1) -> Json:
    """A configuration in which requests mostly fit."""
    block_size = rng.choice([4, 8, 16])
    num_blocks = rng.choice([24, 40, 64])
    capacity = (num_blocks - 1) // num_groups * block_size
    return {
        "block_size": block_size,
        "num_blocks": num_blocks,
        "max_num_seqs": rng.choice([2, 4, 8]),
        "max_num_batched_tokens": rng.choice([16, 32, 64, 128]),
        "max_model_len": min(rng.choice([96, 160, 256]), capacity),
    }


def _tight(rng: random.Random, num_groups: int = 1) -> Json:
    """A configuration with a small pool, in which requests preempt each other."""
    block_size = rng.choice([4, 8])
    num_blocks = rng.choice([10, 14, 20]) * num_groups
    return {
        "block_size": block_size,
        "num_blocks": num_blocks,
        "max_num_seqs": 8,
        "max_num_batched_tokens": rng.choice([32, 64, 128]),
        "max_model_len": (num_blocks - 1) // num_groups * block_size,
        "scheduler_reserve_full_isl": rng.random() < 0.5,
    }


def _any(rng: random.Random, num_groups: int = 1) -> tuple[Json, Workload]:
    """A roomy configuration, or a tight one with a workload that fills it."""
    if rng.random() < 0.4:
        return _roomy(rng, num_groups), Workload(burst=rng.random() < 0.3)
    return _tight(rng, num_groups), Workload(requests=10, max_output=50, burst=True)


def _draft(config: Json, workload: Workload, count: int, eagle: bool) -> None:
    config["num_speculative_tokens"] = workload.drafts = count
    config["use_eagle"] = eagle
    config["max_num_batched_tokens"] = max(config["max_num_batched_tokens"], 64)


def _prioritize(config: Json, workload: Workload) -> None:
    config["policy"] = "priority"
    workload.priorities = (0, 0, 1, 5, -1)


def _full(block_size: int) -> Json:
    return {"type": "full", "block_size": block_size}


def _window(block_size: int, window: int) -> Json:
    return {"type": "sliding_window", "block_size": block_size, "window": window}


# Kinds of KV cache groups.


@_family
def chunked_local(rng: random.Random) -> Scenario:
    """Chunked local attention: alone, beside full attention, and in three groups."""
    num_groups = rng.choice([1, 1, 2, 2, 3])
    config, workload = _any(rng, num_groups)
    block_size = config["block_size"]
    chunk = rng.choice([1, 2, 2, 3, 4]) * block_size
    if rng.random() < 0.15:
        chunk += rng.randint(1, block_size - 1)
    groups = [{"type": "chunked_local", "block_size": block_size, "chunk": chunk}]
    if num_groups > 1:
        groups.insert(rng.choice([0, 0, 1]), _full(block_size))
    if num_groups > 2:
        groups.append(rng.choice([dict(groups[-1]), _window(block_size, 2 * block_size + 1)]))
    config["groups"] = groups
    config["enable_prefix_caching"] = rng.random() < 0.85
    config["kv_events"] = rng.random() < 0.2
    if rng.random() < 0.2:
        _draft(config, workload, 2, eagle=False)
    workload.abort_rate = rng.choice([0, 0.05])
    return Scenario(config, workload)


def _mamba_groups(rng: random.Random, config: Json, mamba: Json, num_groups: int) -> list[Json]:
    if num_groups == 1:
        return [mamba]
    groups = [_full(config["block_size"]), mamba]
    if num_groups > 2:
        groups.append(dict(mamba))
    elif rng.random() < 0.3:
        groups.reverse()
    return groups


def _mamba_drafts(rng: random.Random, config: Json, workload: Workload) -> int:
    """Speculation in half of the traces; returns the number of speculative blocks."""
    if rng.random() < 0.5:
        return 0
    count = rng.choice([1, 2, 3])
    _draft(config, workload, count, eagle=rng.random() < 0.5)
    if rng.random() < 0.25:
        config["async_scheduling"] = True
        workload.depth = 2
    return count


@_family
def mamba_none(rng: random.Random) -> Scenario:
    """Mamba without prefix caching: one block a request, and the speculative ones."""
    num_groups = rng.choice([1, 2, 2, 3])
    config, workload = _any(rng, num_groups)
    config["enable_prefix_caching"] = False
    mamba = {
        "type": "mamba",
        "block_size": config["max_model_len"],
        "mode": "none",
        "speculative_blocks": _mamba_drafts(rng, config, workload),
    }
    if num_groups == 1:
        config["block_size"] = config["max_model_len"]
        config["num_blocks"] = rng.choice([4, 6, 10])
    config["groups"] = _mamba_groups(rng, config, mamba, num_groups)
    workload.abort_rate = rng.choice([0, 0.05])
    return Scenario(config, workload)


@_family
def mamba_all(rng: random.Random) -> Scenario:
    """Mamba with the state of every block cached."""
    num_groups = rng.choice([1, 2, 2, 3])
    config, workload = _any(rng, num_groups)
    mamba = {
        "type": "mamba",
        "block_size": config["block_size"],
        "mode": "all",
        "speculative_blocks": _mamba_drafts(rng, config, workload),
    }
    config["groups"] = _mamba_groups(rng, config, mamba, num_groups)
    config["kv_events"] = rng.random() < 0.2
    workload.shared_prompts = 0.8
    workload.abort_rate = rng.choice([0, 0.05])
    workload.reset_rate = rng.choice([0, 0, 0.03])
    return Scenario(config, workload)


@_family
def mamba_align(rng: random.Random) -> Scenario:
    """Mamba with states cached at the ends of chunks, which are cut at block boundaries."""
    num_groups = rng.choice([1, 2, 2, 3])
    config, workload = _any(rng, num_groups)
    mamba = {
        "type": "mamba",
        "block_size": config["block_size"],
        "mode": "align",
        "speculative_blocks": _mamba_drafts(rng, config, workload),
    }
    config["groups"] = _mamba_groups(rng, config, mamba, num_groups)
    if rng.random() < 0.3:
        config["long_prefill_token_threshold"] = config["block_size"] * rng.choice([1, 2])
    config["kv_events"] = rng.random() < 0.2
    workload.shared_prompts = 0.8
    workload.abort_rate = rng.choice([0, 0.05])
    workload.reset_rate = rng.choice([0, 0, 0.03])
    return Scenario(config, workload)


@_family
def cross_attention(rng: random.Random) -> Scenario:
    """Encoder-decoder models: cross-attention beside the decoder's own attention."""
    config, workload = _tight(rng, 2), Workload(requests=14, max_output=30, burst=True)
    block_size = config["block_size"]
    config["encoder_decoder"] = True
    config["enable_prefix_caching"] = False
    config["max_num_batched_tokens"] = config["max_model_len"] * rng.choice([1, 1, 2])
    config["encoder_budget"] = rng.choice([16, 32])
    config["encoder_cache_size"] = config["encoder_budget"] * rng.choice([1, 1, 2, 4])
    groups = [_full(block_size), {"type": "cross_attention", "block_size": block_size}]
    if rng.random() < 0.3:
        groups.reverse()
    config["groups"] = groups
    workload.encoder = EncoderInputs(share=0.9, lengths=(1, 7, 12, 16, 24, 32))
    workload.max_prompt = min(24, config["max_model_len"] - 4)
    workload.abort_rate = rng.choice([0, 0.08])
    if rng.random() < 0.3:
        _prioritize(config, workload)
    if rng.random() < 0.2:
        config["async_scheduling"] = True
        workload.depth = 2
    return Scenario(config, workload)


# Kinds of requests.


@_family
def grammar(rng: random.Random) -> Scenario:
    """Structured output: requests that wait for their grammar, and tokens that it refuses."""
    config, workload = _any(rng)
    workload.grammar = Grammar(reject_rate=rng.choice([0, 0.02, 0.1]))
    workload.requests = 14
    workload.abort_rate = rng.choice([0, 0.08])
    if rng.random() < 0.3:
        _prioritize(config, workload)
    if rng.random() < 0.25:
        config["async_scheduling"] = True
        workload.depth = 2
    if rng.random() < 0.25:
        _draft(config, workload, 2, eagle=rng.random() < 0.5)
    if rng.random() < 0.25:
        workload.sessions = 0.5
    if rng.random() < 0.25:
        workload.pause_rate = 0.05
    if rng.random() < 0.25:
        config["max_loras"] = 1
        workload.loras = 2
    return Scenario(config, workload)


@_family
def pooling(rng: random.Random) -> Scenario:
    """Pooling requests, alone or among sampling ones."""
    config, workload = _any(rng)
    workload.pooling = rng.choice([1.0, 1.0, 0.6])
    workload.requests = 24
    workload.arrivals = 4
    workload.abort_rate = rng.choice([0, 0.05])
    workload.depth = rng.choice([1, 1, 2])
    config["enable_prefix_caching"] = rng.random() < 0.8
    if rng.random() < 0.3:
        config["long_prefill_token_threshold"] = rng.choice([5, 8, 16])
    if rng.random() < 0.3:
        _prioritize(config, workload)
    return Scenario(config, workload)


# Ways to run.


@_family
def pipeline(rng: random.Random) -> Scenario:
    """Pipeline parallelism: two or three schedules in flight without asynchronous scheduling."""
    config, workload = _any(rng)
    workload.depth = rng.choice([2, 3])
    workload.requests = 14
    workload.abort_rate = rng.choice([0, 0.06])
    workload.eos_rate = 0.02
    workload.reset_rate = rng.choice([0, 0, 0.03])
    if rng.random() < 0.3:
        _prioritize(config, workload)
    if rng.random() < 0.3:
        config["long_prefill_token_threshold"] = rng.choice([5, 8, 16])
    return Scenario(config, workload)


@_family
def pause(rng: random.Random) -> Scenario:
    """Pause states, with arrivals, aborts and resets while paused."""
    config, workload = _any(rng)
    workload.pause_rate = 0.15
    workload.arrivals_in_pause = rng.random() < 0.7
    workload.abort_rate = rng.choice([0.05, 0.15])
    workload.reset_rate = rng.choice([0, 0.1])
    workload.state_rate = 0.2
    workload.depth = rng.choice([1, 1, 2])
    if rng.random() < 0.4:
        config["async_scheduling"] = True
        workload.depth = 2
    if rng.random() < 0.3:
        workload.sessions = 0.4
        # A session that waits for input holds its blocks: a reset of all would end the trace.
        workload.reset_running = 0.05
    if rng.random() < 0.3:
        _prioritize(config, workload)
    return Scenario(config, workload)


# Pairs of features, and corners that random workloads seldom reach.


@_family
def encoder_preempt(rng: random.Random) -> Scenario:
    """Encoder inputs in a small pool, often with priorities: victims that hold items."""
    config, workload = _tight(rng), Workload(requests=12, max_output=40, burst=True)
    config["encoder_budget"] = rng.choice([8, 12, 16])
    config["encoder_cache_size"] = rng.choice([12, 16, 24])
    workload.encoder = EncoderInputs(share=0.9)
    workload.shared_prompts = 0.2
    if rng.random() < 0.6:
        _prioritize(config, workload)
        workload.burst = False
        workload.arrivals = 2
    return Scenario(config, workload)


@_family
def encoder_eagle(rng: random.Random) -> Scenario:
    """Items that start and end at the edges of chunks, with EAGLE's read-ahead of one token."""
    config = _roomy(rng)
    workload = Workload(max_output=16)
    chunk = rng.choice([8, 12, 16])
    if rng.random() < 0.5:
        config["long_prefill_token_threshold"] = chunk
        config["max_num_batched_tokens"] = 64
    else:
        config["max_num_batched_tokens"] = chunk
    config["max_num_seqs"] = min(config["max_num_seqs"], 4)
    config["num_speculative_tokens"] = workload.drafts = rng.choice([1, 2])
    config["use_eagle"] = rng.random() < 0.8
    config["encoder_budget"] = rng.choice([8, 16])
    config["encoder_cache_size"] = rng.choice([16, 32])
    config["disable_chunked_mm_input"] = rng.random() < 0.3
    workload.encoder = EncoderInputs(share=0.9, max_items=5, edge=chunk)
    workload.shared_prompts = 0.3
    return Scenario(config, workload)


@_family
def encoder_events(rng: random.Random) -> Scenario:
    """Items' hashes and offsets in the keys of blocks, seen in KV events."""
    config, workload = _any(rng)
    config["kv_events"] = True
    config["encoder_budget"] = rng.choice([8, 16])
    config["encoder_cache_size"] = rng.choice([24, 64])
    # Items longer than a block, and several in one.
    workload.encoder = EncoderInputs(share=0.9, lengths=(1, 2, 4, 9, 14), max_items=5)
    workload.encoder.shared_images = 2
    workload.shared_prompts = 0.8
    workload.vocabulary = rng.choice([2, 5])
    workload.salts = rng.random() < 0.5
    if rng.random() < 0.3:
        config["max_loras"] = 2
        workload.loras = 2
    return Scenario(config, workload)


@_family
def async_resets(rng: random.Random) -> Scenario:
    """Asynchronous scheduling, and resets that preempt running requests with steps in flight."""
    config, workload = _any(rng)
    config["async_scheduling"] = True
    workload.depth = rng.choice([2, 2, 3])
    workload.reset_rate = rng.choice([0.05, 0.1])
    workload.reset_running = 0.8
    if rng.random() < 0.4:
        _draft(config, workload, 2, eagle=rng.random() < 0.3)
    return Scenario(config, workload)


@_family
def draft_gaps(rng: random.Random) -> Scenario:
    """Drafts that don't come with every update: none may outlive the step that scheduled them."""
    config, workload = _any(rng)
    _draft(config, workload, rng.choice([1, 2, 4]), eagle=rng.random() < 0.5)
    # A budget that cuts drafts off.
    config["max_num_batched_tokens"] = rng.choice([8, 12, 64])
    config["max_num_seqs"] = min(config["max_num_seqs"], 8)
    workload.draft_gaps = rng.choice([0.3, 0.6])
    return Scenario(config, workload)


@_family
def pipeline_drafts(rng: random.Random) -> Scenario:
    """Drafts judged for a request that was preempted meanwhile, two and three steps deep."""
    config, workload = _tight(rng), Workload(requests=12, max_output=50, burst=True)
    _draft(config, workload, rng.choice([1, 2, 4]), eagle=rng.random() < 0.3)
    workload.depth = rng.choice([2, 3])
    config["async_scheduling"] = rng.random() < 0.5
    workload.draft_gaps = rng.choice([0, 0.2])
    workload.abort_rate = rng.choice([0, 0.03])
    return Scenario(config, workload)


@_family
def block_sizes(rng: random.Random) -> Scenario:
    """Groups of different block sizes: joined hashes, and hits at common multiples only."""
    config = _roomy(rng, 2)
    block_size = config["block_size"] = rng.choice([4, 8])
    multiple = rng.choice([2, 3, 4])
    coarse = block_size * multiple
    config["num_blocks"] = rng.choice([40, 64, 96])
    config["max_model_len"] = min(256, (config["num_blocks"] // 3) * block_size)
    windows = [block_size, coarse, 2 * coarse + 1]
    if rng.random() < 0.5:
        groups = [_full(block_size), _window(coarse, rng.choice(windows))]
    else:
        groups = [_full(coarse), _window(block_size, rng.choice(windows))]
    if rng.random() < 0.3:
        groups.append(_window(block_size, 2 * block_size))
    config["groups"] = groups
    config["kv_events"] = rng.random() < 0.4
    workload = Workload(requests=16)
    workload.shared_prompts = 0.85
    if rng.random() < 0.4:
        _draft(config, workload, 2, eagle=True)
    workload.abort_rate = rng.choice([0, 0.05])
    return Scenario(config, workload)


@_family
def three_groups_eagle(rng: random.Random) -> Scenario:
    """Full attention and two different windows with EAGLE, blocks of the windows evicted."""
    config = _roomy(rng, 3)
    block_size = config["block_size"] = rng.choice([4, 8])
    config["num_blocks"] = rng.choice([30, 45, 60])
    config["max_model_len"] = min(192, (config["num_blocks"] - 1) // 3 * block_size)
    windows = rng.sample([block_size, 2 * block_size + 1, 3 * block_size, 5 * block_size], 2)
    groups = [_full(block_size), *(_window(block_size, window) for window in windows)]
    if rng.random() < 0.3:
        groups.append(groups.pop(0))
    config["groups"] = groups
    workload = Workload(requests=20, max_output=12)
    workload.shared_prompts = 0.9
    _draft(config, workload, rng.choice([1, 2]), eagle=True)
    return Scenario(config, workload)


@_family
def long_window(rng: random.Random) -> Scenario:
    """Requests much longer than the one group's window: the cap on what a request needs."""
    block_size = rng.choice([4, 8])
    num_blocks = rng.choice([16, 24, 32])
    budget = rng.choice([8, 16, 24])
    config = {
        "block_size": block_size,
        "num_blocks": num_blocks,
        "max_num_seqs": rng.choice([2, 4]),
        "max_num_batched_tokens": budget,
        # Longer than the pool: only the cap lets such a request in.
        "max_model_len": block_size * num_blocks * 2,
        "groups": [_window(block_size, rng.choice([1, 2, 3]) * block_size + rng.choice([0, 1, 2]))],
        "enable_prefix_caching": rng.random() < 0.7,
    }
    workload = Workload(requests=8, max_output=30)
    workload.max_prompt = block_size * num_blocks
    return Scenario(config, workload)


@_family
def priority_aborts(rng: random.Random) -> Scenario:
    """Aborts of many waiting requests out of the priority queues, sessions among them."""
    config, workload = _tight(rng), Workload(requests=40, arrivals=8, max_output=20, burst=True)
    _prioritize(config, workload)
    config["max_num_seqs"] = rng.choice([1, 2, 4])
    workload.abort_rate = 0.3
    workload.abort_count = 5
    workload.sessions = rng.choice([0, 0.4])
    if rng.random() < 0.5:
        workload.grammar = Grammar(delays=(2, 5, 8), reject_rate=0)
    return Scenario(config, workload)


@_family
def repetition_odd(rng: random.Random) -> Scenario:
    """Repetition detection with every small set of parameters that vLLM takes, zeros among them."""
    config = _roomy(rng)
    workload = Workload(requests=16, max_output=40, vocabulary=rng.choice([1, 2, 3]))
    detecting = [
        {"max_pattern_size": largest, "min_pattern_size": smallest, "min_count": count}
        for largest in (1, 2, 3, 5)
        for smallest in range(largest + 1)
        for count in (2, 3, 4)
    ]
    # With patterns of at most no token it is off, whatever the count is.
    off = [
        {"max_pattern_size": 0, "min_pattern_size": 0, "min_count": count}
        for count in (-1, 0, 1, 2)
    ]
    workload.repetition = (*detecting, *off, *off)
    return Scenario(config, workload)
