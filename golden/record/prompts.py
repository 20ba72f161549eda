"""Random prompts that share prefixes, as conversations and system prompts do."""

import random


class PromptSource:
    """Makes prompts over a small vocabulary, many of them beginning like earlier sequences."""

    # Token ids below are special: 2 is the end of sequence.
    FIRST_TOKEN = 3
    END_OF_SEQUENCE = 2
    _SHARED_SEQUENCES = 3

    def __init__(
        self,
        rng: random.Random,
        vocabulary: int,
        max_length: int,
        block_size: int,
        shared_prompts: float,
    ) -> None:
        self._rng = rng
        self._vocabulary = vocabulary
        self._max_length = max_length
        self._block_size = block_size
        self._shared_prompts = shared_prompts
        self._shared = [self.tokens(max_length) for _ in range(self._SHARED_SEQUENCES)]

    def token(self) -> int:
        return self._rng.randrange(self.FIRST_TOKEN, self.FIRST_TOKEN + self._vocabulary)

    def tokens(self, count: int) -> list[int]:
        return [self.token() for _ in range(count)]

    def prompt(self) -> list[int]:
        """A prompt of at least one token; its length is often a multiple of the block size."""
        rng = self._rng
        longest = self._max_length
        length = rng.choice(
            [
                rng.randint(1, longest),
                rng.randint(1, max(1, longest // 4)),
                min(
                    longest, rng.randint(1, max(1, longest // self._block_size)) * self._block_size
                ),
            ]
        )
        if rng.random() >= self._shared_prompts:
            return self.tokens(length)
        shared = rng.choice([length, length // 2, length // self._block_size * self._block_size])
        return rng.choice(self._shared)[:shared] + self.tokens(length - shared)

    def remember(self, sequence: list[int]) -> None:
        """Later prompts may begin with `sequence`, as the next turn of a conversation does."""
        padding = self.tokens(max(0, self._max_length - len(sequence)))
        slot = self._rng.randrange(self._SHARED_SEQUENCES)
        self._shared[slot] = (sequence + padding)[: self._max_length]
