"""What a random workload is like: the knobs that a family sets and the generator reads."""

import dataclasses

from trace_file import Json


@dataclasses.dataclass
class EncoderInputs:
    """Requests with items for the encoder."""

    # Share of the requests that have items.
    share: float = 0.7
    # Lengths of items to choose from, in tokens; longer ones than the budget are cut to it.
    lengths: tuple[int, ...] = (2, 4, 7)
    max_items: int = 3
    # Tokens: items are put so that they start or end at multiples of it. 0: anywhere.
    edge: int = 0
    # How many different images requests share; an item is one of them or new.
    shared_images: int = 4


@dataclasses.dataclass
class Grammar:
    """Requests with structured output."""

    share: float = 0.6
    # A grammar is there so many steps after its request, one of these.
    delays: tuple[int, ...] = (0, 0, 1, 2, 5)
    # Share of the requests whose grammar never comes; they end by an abort.
    never: float = 0.05
    # Probability that a step's tokens of a request are refused.
    reject_rate: float = 0.03


@dataclasses.dataclass
class Workload:
    """Random requests and what happens to them. Rates are probabilities per step."""

    requests: int = 12
    # At most so many arrive before a step.
    arrivals: int = 3
    # Several arrive at once before the first step.
    burst: bool = False
    # Longest prompt in tokens; None: from the pool and the model length.
    max_prompt: int | None = None
    # Share of the prompts that begin with a sequence seen before.
    shared_prompts: float = 0.6
    # Different tokens; None: a random choice. Few make repetitions and equal blocks.
    vocabulary: int | None = None
    max_output: int = 24
    # Share of the samples that are the end of sequence.
    eos_rate: float = 0.002
    stops: bool = False
    salts: bool = False
    skip_reading: bool = False
    priorities: tuple[int, ...] = ()
    loras: int = 0
    # Parameters of repetition detection to choose from.
    repetition: tuple[Json, ...] = ()
    # Share of the requests that are streaming sessions.
    sessions: float = 0.0
    pooling: float = 0.0
    encoder: EncoderInputs | None = None
    grammar: Grammar | None = None
    # Draft tokens that an update brings for a request; 0: none.
    drafts: int = 0
    # Share of the updates that bring none although there is a drafter.
    draft_gaps: float = 0.0
    # Schedules in flight: an update follows when there are so many.
    depth: int = 1
    abort_rate: float = 0.0
    # An abort takes at most so many requests, waiting ones first when it is more than two.
    abort_count: int = 2
    reset_rate: float = 0.0
    # Share of the resets that preempt the running requests.
    reset_running: float = 0.5
    # Rate of pauses; a pause lasts at most `pause_steps`.
    pause_rate: float = 0.0
    pause_steps: int = 4
    # Whether requests arrive during a pause too.
    arrivals_in_pause: bool = False
    state_rate: float = 0.03
    max_steps: int = 220


@dataclasses.dataclass
class Scenario:
    """A trace's configuration and its workload."""

    config: Json
    workload: Workload
